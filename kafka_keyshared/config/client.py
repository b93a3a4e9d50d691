"""Settings of the Kafka client: defaults, refusals, and shared settings.

Each rule comes from the client's measured behavior (``docs/internals/client-behavior.md``), or from
a named decision. The doctor warns of settings that are merely dangerous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException

from kafka_keyshared.config.options import Options
from kafka_keyshared.config.properties import (
    CALLBACKS,
    CONSUMER,
    CONSUMER_ONLY,
    FOR_LETTERS,
    PRODUCER,
)
from kafka_keyshared.config.secrets import MASK, is_secret, scrub
from kafka_keyshared.config.setting_faults import Fault, guess, refuse
from kafka_keyshared.config.tokens import with_guarded_tokens
from kafka_keyshared.errors import ConfigError

_OWN_COMMITS = "this package commits settled offsets itself"
DEFAULTS_AND_REASONS: Mapping[str, tuple[Any, str]] = {
    "enable.auto.commit": (False, _OWN_COMMITS),
    "enable.auto.offset.store": (False, _OWN_COMMITS),
    "fetch.max.bytes": (
        8 << 20,
        "the client's default, 50 MiB from each broker at a time, is most of a window's bytes. "
        "This default follows message.max.bytes up and queued.max.messages.kbytes down, as the "
        "client's does",
    ),
    "fetch.queue.backoff.ms": (
        5,
        "the client's default of 1000 ends fetching from a busy partition for up to a second",
    ),
    "fetch.wait.max.ms": (50, "maximum delay until a resumed partition delivers again"),
    "statistics.interval.ms": (15_000, "the metrics of the client come from these statistics"),
}
DEFAULTS: Mapping[str, Any] = {name: value for name, (value, _) in DEFAULTS_AND_REASONS.items()}
"""The default values. :func:`with_defaults` adapts them to the user's settings."""

_QUEUED_KBYTES = 65_536
_MESSAGE_BYTES = 1_000_000
"""The client's own defaults of ``queued.max.messages.kbytes`` and ``message.max.bytes``."""

MAX_POLL_INTERVAL_MS = 300_000
SESSION_TIMEOUT_MS = 45_000
"""Default session timeout of the client, and of a broker under the protocol of KIP-848."""

_PROBE = "keyshared.is.asking"
_NOT_PROBED = ("plugin.library.paths",)
"""Settings that are not probed, because the client would load the files that they name."""

_OF_CONNECTION = (
    "bootstrap.",
    "metadata.broker.list",
    "security.",
    "sasl.",
    "ssl.",
    "https.",
    "enable.sasl.",
    "enable.ssl.",
    "plugin.",
    "group.instance.id",
    "log",
    "debug",
)

_BEGINNING = ("earliest", "smallest", "beginning")
"""Values of ``auto.offset.reset`` that mean the beginning of a log."""

_BY_THE_BROKER = {
    "session.timeout.ms": "the broker's group.consumer.session.timeout.ms counts",
    "heartbeat.interval.ms": "the broker's group.consumer.heartbeat.interval.ms counts",
    "partition.assignment.strategy": "the broker assigns, see group.remote.assignor",
    "group.protocol.type": "that protocol has no types",
}

# --- settings that would break the contract ---

_FALSE = ("false", "f", "0")


class RefusedSetting(NamedTuple):
    """A refused setting. ``values`` describes the refused values in words.

    ``injected`` settings are refused only where no code review covers them: in the environment and
    in flags.
    """

    setting: str
    values: str
    is_meant: Callable[[str], bool]
    why: str
    cure: str
    injected: bool = False


def _not_false(text: str) -> bool:
    return text not in _FALSE


def _before_0_10(text: str) -> bool:
    return text.startswith(("0.8", "0.9"))


def _not_zero(text: str) -> bool:
    return text != "0"


def _any(_text: str) -> bool:
    return True


_COMMITS = "it would commit records that are not done"
_CODE = "it runs the code that it names, in this process or as a command"
_REVIEWED = "set it in the file or in the program, where it is reviewed"

REFUSED: tuple[RefusedSetting, ...] = (
    RefusedSetting(
        "enable.auto.commit",
        "true",
        _not_false,
        _COMMITS,
        f"leave it out, {_OWN_COMMITS}",
    ),
    RefusedSetting(
        "enable.auto.offset.store",
        "true",
        _not_false,
        _COMMITS,
        f"leave it out, {_OWN_COMMITS}",
    ),
    RefusedSetting(
        "default.topic.config",
        "anything",
        _any,
        "its auto.offset.reset would override the setting of this package, and the client would "
        "repeat or skip records by itself",
        "move its settings out of it, beside the others",
    ),
    RefusedSetting(
        "test.mock.num.brokers",
        "all but 0",
        _not_zero,
        "the client would connect to mock brokers instead of bootstrap.servers",
        "leave it out",
    ),
    RefusedSetting(
        "broker.version.fallback",
        "0.8 and 0.9",
        _before_0_10,
        "with api.version.request=false the client would wait for records forever, without an "
        "error",
        "leave it out",
    ),
    RefusedSetting("plugin.library.paths", "anything", _any, _CODE, _REVIEWED, injected=True),
    RefusedSetting("ssl.engine.location", "anything", _any, _CODE, _REVIEWED, injected=True),
    RefusedSetting("sasl.kerberos.kinit.cmd", "anything", _any, _CODE, _REVIEWED, injected=True),
)

# --- the client's configuration ---


def client_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's configuration: the user's settings over our defaults.

    Raises :class:`ConfigError` for missing settings, settings that the client refuses, and settings
    that would break the contract. It lists all of them, not only the first.
    """
    if not isinstance(conf, Mapping):
        raise ConfigError(f"conf is a {type(conf).__name__}: give a dict of client settings")
    own = with_guarded_tokens(with_defaults(conf))
    faults = []
    if not (own.get("bootstrap.servers") or own.get("metadata.broker.list")):
        text = "'bootstrap.servers' is missing: give the address of a broker, host:port"
        faults.append(Fault(("bootstrap.servers",), text))
    if not own.get("group.id"):
        text = "'group.id' is missing: give the consumer group's name"
        faults.append(Fault(("group.id",), text))
    faults += filter(None, (setting_fault(name, value) for name, value in conf.items()))
    refuse(faults or [*conflict_faults(own)] or combination_faults(conf, own))
    return own


def with_defaults(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with our defaults for those that are not set."""
    own = {**DEFAULTS, **conf}
    if "fetch.max.bytes" not in conf:
        own["fetch.max.bytes"] = fetch_bytes(conf, DEFAULTS["fetch.max.bytes"])
    return own


def fetch_bytes(conf: Mapping[str, Any], most: int) -> int:
    """Return a ``fetch.max.bytes`` near ``most`` that the client accepts with the user's settings.

    The client adjusts its own default in the same way, but refuses such a value if it is set. It
    refuses one below ``message.max.bytes``, and one that does not fit
    ``receive.message.max.bytes``.
    """
    try:
        queued = int(conf.get("queued.max.messages.kbytes", _QUEUED_KBYTES))
        message = int(conf.get("message.max.bytes", _MESSAGE_BYTES))
    except (TypeError, ValueError):  # the client will report it
        return most
    return max(min(most, queued * 1_024), message)


def combination_faults(conf: Mapping[str, Any], own: Mapping[str, Any]) -> list[Fault]:
    """Return the combinations that the installed client refuses although it accepts each setting.

    ``own`` is ``conf`` with our defaults. The client is made without an address, so it connects to
    nothing. Connection settings are left out, because they may read files and wait for tokens.
    """
    asked = {name for name in own if not name.startswith(_OF_CONNECTION) and name not in CALLBACKS}
    if not (asked & conf.keys()) - {"group.id", "auto.offset.reset"}:
        return []
    kept = {name: own[name] for name in asked}
    try:
        Consumer({**kept, "log_level": 0}).close()
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0] if error.args else error
        text = reason.str() if isinstance(reason, KafkaError) else str(reason)
        said = text.rpartition("Failed to create consumer: ")[2]
        names = tuple(name for name in sorted(own) if f"`{name}`" in said)
        ours = [f"{name} is {own[name]}" for name in names if name not in conf]
        why = f" (by default here {', '.join(ours)})" if ours else ""
        return [Fault(names, f"the Kafka client refuses these settings together: {said}{why}")]
    return []


def starts_at_beginning(conf: Mapping[str, Any]) -> bool:
    """Return whether a partition without a committed position is read from its beginning."""
    return str(conf.get("auto.offset.reset", "latest")).lower() in _BEGINNING


def session_seconds(conf: Mapping[str, Any]) -> float:
    """Return the session timeout in seconds, after which the group removes a silent member."""
    try:
        return float(conf.get("session.timeout.ms", SESSION_TIMEOUT_MS)) / 1_000
    except (TypeError, ValueError):  # the client will report it
        return SESSION_TIMEOUT_MS / 1_000


def client_error(conf: Mapping[str, Any]) -> str | None:
    """Return the installed client's error for these settings; None if it accepts each of them.

    No client is made: settings are read one after the other, and the last one is always refused.
    """
    try:
        made = Consumer({"group.id": "unused", **conf, _PROBE: ""})
    except KafkaException as error:
        text = str(error.args[0].str())
    except (TypeError, ValueError, AttributeError) as error:
        text = str(error)
    else:
        made.close()
        return None
    return None if _PROBE in text else text.strip()


def setting_fault(name: str, value: Any, *, injected: bool = False) -> Fault | None:
    """Return the fault in one client setting, None if there is none.

    ``injected`` means that it comes from the environment or a flag.
    """
    text = str(value).lower()
    for refused in REFUSED:
        if name == refused.setting and refused.is_meant(text) and injected >= refused.injected:
            return _fault(name, value, f": {refused.why}; {refused.cure}")
    if name in CALLBACKS and not isinstance(value, str | int | float):
        return None
    if (why := _no_value(name, value)) is not None:
        return Fault((name,), why)
    if name in _NOT_PROBED or (said := client_error({name: value})) is None:
        return None
    if said.startswith("No such configuration property"):
        meant = guess(name, CONSUMER) or guess(name, PRODUCER)
        return Fault((name,), f'"{name}" is not a setting of the Kafka client{meant}')
    return _fault(name, value, f", which the client refuses: {said}")


def _no_value(name: str, value: Any) -> str | None:
    if name in CALLBACKS:
        return f"{name!r} takes a Python function: pass it to KeyShared in a program"
    if name.endswith("_cb"):
        return f"{name!r} is for C programs: the callbacks in Python are {', '.join(CALLBACKS)}"
    if isinstance(value, Mapping | list | tuple | set | bytes):
        return f"{name!r} is a {type(value).__name__}: give text, a number, true or false"
    return None


def _fault(name: str, value: Any, what: str) -> Fault:
    text = MASK if is_secret(name, value) else repr(value)
    return Fault((name,), f"{name!r} is {text}{scrub(what, {name: value})}")


def is_kip_848(conf: Mapping[str, Any]) -> bool:
    """Return whether the broker assigns per member (``group.protocol=consumer``, KIP-848)."""
    return str(conf.get("group.protocol", "classic")).lower() == "consumer"


def conflict_faults(conf: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield client settings that work one by one, but not together."""
    if is_kip_848(conf):
        for name, why in _BY_THE_BROKER.items():
            if name in conf:
                text = (
                    f"{name!r} cannot be given with 'group.protocol'=consumer: {why}; leave it out"
                )
                yield Fault((name, "group.protocol"), text)
        return
    session = _number(conf, "session.timeout.ms", SESSION_TIMEOUT_MS)
    interval = _number(conf, "max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
    if interval < session:
        text = (
            f"'max.poll.interval.ms' is {interval:g} and below 'session.timeout.ms', {session:g}: "
            "raise the first, or lower the second"
        )
        yield Fault(("max.poll.interval.ms", "session.timeout.ms"), text)


def deadline_faults(options: Options, conf: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield a revoke deadline that could outlast the client's poll interval."""
    interval = _number(conf, "max.poll.interval.ms", MAX_POLL_INTERVAL_MS)
    most = interval / 2_000 - 0.5
    if options.revoke_deadline > most:
        text = (
            f"revoke_deadline={options.revoke_deadline:g} s is above {most:g} s, half of "
            f"'max.poll.interval.ms', {interval:g}, less 0.5 s: lower the first, or raise the "
            "second"
        )
        yield Fault(("revoke_deadline", "max.poll.interval.ms"), text)


def check_deadlines(options: Options, conf: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` when a revoke could outlast the client's poll interval."""
    refuse(deadline_faults(options, conf))


def _number(conf: Mapping[str, Any], name: str, default: float) -> float:
    value = conf.get(name, default)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name!r} is {value!r}: give a number of milliseconds") from error


def without_effect(conf: Mapping[str, Any]) -> list[str]:
    """Return the given settings without effect on a consumer or on our producers."""
    return [name for name in conf if name in PRODUCER and name not in FOR_LETTERS]


# --- other clients of the same user ---

_NOT_SHARED = frozenset(
    {
        *CONSUMER_ONLY,
        *PRODUCER,
        *CALLBACKS,
        # Nothing reads the statistics of these clients.
        "statistics.interval.ms",
        # The code that it names was reviewed for the consumer only.
        "plugin.library.paths",
    }
) - {"oauth_cb", "logger"}


def connection_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a consumer for another client of the same user.

    Settings that only a consumer or only a producer uses are left out. So are the callbacks about
    the consumer itself. ``oauth_cb`` stays, because no connection opens without it, and ``logger``.
    A setting that this version does not know is shared: a client that does not use it logs a line.
    """
    return with_guarded_tokens(
        {name: value for name, value in conf.items() if name not in _NOT_SHARED}
    )
