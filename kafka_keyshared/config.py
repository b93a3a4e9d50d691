"""What a user may set, in one typed place, and how it becomes the core's settings.

Every error names the setting and what it may be. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kafka_keyshared.core.commit import CommitPolicy
from kafka_keyshared.core.settle import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.subscription import SubscriptionSettings
from kafka_keyshared.errors import ConfigError

_WORKERS = re.compile(r"(?:(?P<pool>[a-z]+):)?(?P<count>[0-9]+)")
POOLS = ("thread",)


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often and how soon a failed record runs again."""

    attempts: int = 5
    backoff: float = 0.1
    factor: float = 2.0
    backoff_max: float = 30.0
    jitter: float = 0.2


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything but the Kafka client's own configuration.

    ``dlq`` True means ``<topic>.dlq``, a text is the topic's name. ``poison`` is what follows
    exhausted attempts: ``dead_letter`` when there is a dead-letter topic, else ``block``.
    ``http_port`` is where metrics and health checks are served (0: any free port, None: nowhere);
    ``partition_metrics`` False leaves out what has one sample for each partition.
    """

    workers: int | str = 16
    dlq: bool | str = False
    dlq_create: bool = False
    poison: PoisonPolicy | None = None
    retry: RetryOptions = RetryOptions()
    order_scope: Literal["topic", "partition", "subscription"] = "topic"
    window_records: int = 10_000
    window_bytes: int = 64 << 20
    leases_per_worker: int = 1_000
    max_leases_per_key: int | None = None
    commit_interval: float = 1.0
    stop_timeout: float = 25.0
    revoke_deadline: float = 5.0
    ack_timeout: float | None = None
    on_stuck: Literal["hold", "exit"] = "hold"
    http_port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] | None = None
    http_host: str = "127.0.0.1"
    partition_metrics: bool = True

    def worker_names(self) -> tuple[str, ...]:
        """Return ``worker-0`` to ``worker-(n-1)``; raise :class:`ConfigError` for no worker."""
        match = _WORKERS.fullmatch(str(self.workers))
        if match is None or (match["pool"] or "thread") not in POOLS:
            raise ConfigError(
                f"workers={self.workers!r}: give a number of threads such as 16 or 'thread:16'"
            )
        count = int(match["count"])
        if count < 1:
            raise ConfigError(f"workers={self.workers!r}: there must be at least 1 worker")
        return tuple(f"worker-{index}" for index in range(count))

    def subscription(self, name: str = "default") -> SubscriptionSettings:
        """Return the core's settings of a subscription with these options."""
        has_dlq = self.dlq is not False
        settings = SubscriptionSettings(
            name=name,
            workers=self.worker_names(),
            order_scope=self.order_scope,
            retry=RetryPolicy(**msgspec.structs.asdict(self.retry)),
            poison=self.poison or ("dead_letter" if has_dlq else "block"),
            dlq=has_dlq,
            window_records=self.window_records,
            window_bytes=self.window_bytes,
            leases_per_worker=self.leases_per_worker,
            max_leases_per_key=self.max_leases_per_key,
            ack_timeout=self.ack_timeout,
            exit_when_stuck=self.on_stuck == "exit",
        )
        settings.check()
        return settings

    def commit_policy(self) -> CommitPolicy:
        """Return when to commit."""
        policy = CommitPolicy(interval=self.commit_interval)
        policy.check()
        return policy

    def dlq_topic(self, topic: str) -> str:
        """Return the dead-letter topic of a topic."""
        return self.dlq if isinstance(self.dlq, str) else f"{topic}.dlq"


class FileConfig(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration file: the options, what to read, and the client's settings."""

    topics: list[str] = []
    group: str | None = None
    bootstrap: str | None = None
    kafka: dict[str, str | int | float | bool] = {}

    def options(self) -> Options:
        """Return the options alone."""
        return Options(**{name: getattr(self, name) for name in Options.__struct_fields__})


def make_options(values: Mapping[str, Any]) -> Options:
    """Return checked options; raise :class:`ConfigError` naming the wrong one."""
    try:
        return msgspec.convert(dict(values), Options)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(error, Options)) from error


def load_file(path: str | Path) -> FileConfig:
    """Read a TOML file; raise :class:`ConfigError` naming the file and what is wrong in it."""
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give the path of a TOML file") from error
    try:
        return msgspec.convert(tomllib.loads(text), FileConfig)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_explain(error, FileConfig)}") from error


_UNKNOWN = re.compile(r"unknown field `([^`]+)`(?: - at `\$\.(\w+)`)?")


def _explain(error: msgspec.ValidationError, struct: type[msgspec.Struct]) -> str:
    found = _UNKNOWN.search(str(error))
    if found is not None and found[2] == "retry":
        struct = RetryOptions
    names = struct.__struct_fields__
    near = [] if found is None else get_close_matches(found[1], names, n=1)
    meant = f"; did you mean {near[0]!r}?" if near else ""
    return f"{error}{meant}; the settings are {', '.join(names)}"


# --- the client's configuration ---

DEFAULTS: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # librdkafka's default stops fetching a partition for up to 1 s once its queue is full.
    "fetch.queue.backoff.ms": 5,
    # A partition that was paused delivers again after this long at worst.
    "fetch.wait.max.ms": 50,
    # What the client says of itself in the metrics.
    "statistics.interval.ms": 15_000,
}


def client_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's configuration with our defaults below the user's.

    Raises :class:`ConfigError` for a setting that is missing or that would commit what is not done.
    """
    if not isinstance(conf, Mapping):
        raise ConfigError(f"conf is a {type(conf).__name__}: give the dict of client settings")
    own = {**DEFAULTS, **conf}
    if not (own.get("bootstrap.servers") or own.get("metadata.broker.list")):
        raise ConfigError("'bootstrap.servers' is missing: give the address of a broker, host:port")
    if not own.get("group.id"):
        raise ConfigError("'group.id' is missing: give the consumer group's name")
    for name in ("enable.auto.commit", "enable.auto.offset.store"):
        if str(own[name]).lower() not in ("false", "0"):
            raise ConfigError(
                f"{name!r} is {own[name]!r}: it would commit records that are not done; leave it "
                "out, this package commits what is safe"
            )
    return own


def check_deadlines(options: Options, conf: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` when a revoke could outlast the client's poll interval."""
    interval = conf.get("max.poll.interval.ms", 300_000)
    try:
        most = float(interval) / 2_000 - 0.5
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"'max.poll.interval.ms' is {interval!r}: give a number of milliseconds"
        ) from error
    if options.revoke_deadline > most:
        raise ConfigError(
            f"revoke_deadline={options.revoke_deadline:g} s is above {most:g} s, half of "
            "'max.poll.interval.ms' less 0.5 s: lower it or raise that"
        )
    if not (options.stop_timeout > 0 and options.revoke_deadline >= 0):
        raise ConfigError(
            f"stop_timeout={options.stop_timeout:g}, revoke_deadline={options.revoke_deadline:g}: "
            "give seconds, not negative, the stop timeout above 0"
        )
