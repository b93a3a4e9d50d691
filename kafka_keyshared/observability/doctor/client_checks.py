"""Checks of ``keyshared doctor`` on client settings and brokers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from kafka_keyshared.client.standalone import ALL_DOWN
from kafka_keyshared.config import Fault
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import counted, some
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
    skipped,
)

_YES = ("true", "1", "t")

# --- the client's settings ---


class _Danger(NamedTuple):
    setting: str
    is_set: Callable[[str, Mapping[str, Any]], bool]
    why: str
    cure: str


def _number(given: object, otherwise: float = float("inf")) -> float:
    """Return the value as a number above 0, or ``otherwise`` if it is none."""
    try:
        found = float(str(given))
    except ValueError:
        return otherwise
    return found if found > 0 else otherwise


def _number_below(limit: float) -> Callable[[str, Mapping[str, Any]], bool]:
    return lambda text, _: _number(text) < limit


DANGERS = (
    _Danger(
        "isolation.level",
        lambda text, _: text == "read_uncommitted",
        "records of aborted transactions are processed",
        "leave it out, or set read_committed",
    ),
    _Danger(
        "allow.auto.create.topics",
        lambda text, _: text in _YES,
        "a mistyped topic is created instead of refused",
        "leave it out",
    ),
    _Danger(
        "enable.ssl.certificate.verification",
        lambda text, _: text not in _YES,
        "any host can pretend to be the broker",
        "leave it out and name the authority with ssl.ca.location",
    ),
    _Danger(
        "ssl.endpoint.identification.algorithm",
        lambda text, _: text == "none",
        "a certificate of any host is taken for the broker's",
        "leave it out",
    ),
    _Danger(
        "session.timeout.ms",
        _number_below(6_000),
        "a broker with default settings refuses a session shorter than 6 s",
        "set 6000 or more, or lower the broker's group.min.session.timeout.ms",
    ),
    _Danger(
        "socket.timeout.ms",
        lambda text, conf: _number(text) < _number(conf.get("session.timeout.ms"), 45_000),
        "a commit may wait behind a rebalance for as long as a session lasts; then the connection "
        "breaks, the partitions may be lost, and settled records run again",
        "set more than session.timeout.ms (45000 unless given), or leave it out",
    ),
    _Danger(
        "statistics.interval.ms",
        _number_below(1_000),
        "statistics are made more than once a second, on the thread that fetches",
        "set 1000 or more",
    ),
    _Danger(
        "debug",
        lambda text, _: bool(text),
        "the client logs each step, with some values of records",
        "leave it out once the search is over",
    ),
)


def dangers(conf: Mapping[str, Any]) -> list[DoctorFinding]:
    """Return risks of settings that the client accepts."""
    found = []
    for danger in DANGERS:
        text = str(conf.get(danger.setting, "")).lower()
        if text and danger.is_set(text, conf):
            why = f"{danger.setting}={conf[danger.setting]}: {danger.why}"
            cure = f"{danger.setting}: {danger.cure}"
            found.append(DoctorFinding(FindingKind.SETTING_DANGEROUS, CheckStatus.WARN, why, cure))
    return found + _addresses(str(conf.get("bootstrap.servers", "")))


def _addresses(servers: str) -> list[DoctorFinding]:
    """Return invalid ports. The client does not refuse them but takes them modulo 65,536."""
    found = []
    for address in filter(None, (each.strip() for each in servers.split(","))):
        port = re.search(r":([^:\]]*)$", address.rpartition("://")[2])
        if port is not None and not (port[1].isdecimal() and 0 < int(port[1]) < 65_536):
            why = f"bootstrap.servers: {address!r} has no port between 1 and 65535"
            cure = "give host:port, such as localhost:9092"
            found.append(DoctorFinding(FindingKind.NO_SUCH_PORT, CheckStatus.FAIL, why, cure))
    return found


# --- the broker ---


class _Meaning(NamedTuple):
    """The meaning of a client error text that matches one of the regular expressions ``words``."""

    words: tuple[str, ...]
    kind: FindingKind
    why: str
    cure: str


_MUTE = _Meaning(
    ("timed out", "transport failure", "Timed out"),
    FindingKind.NO_ANSWER,
    "there is a connection and no answer, or no connection in time",
    "see firewalls between here and there, and that the port is a Kafka broker's",
)

_REASONS = (
    _Meaning(
        ("Failed to resolve", "Name or service not known"),
        FindingKind.HOST_UNKNOWN,
        "the host name is not known here",
        "see the spelling of the host and this machine's DNS",
    ),
    _Meaning(
        ("Connection refused",),
        FindingKind.NO_LISTENER,
        "nothing listens there",
        "see that the broker runs and that the port is its listener's",
    ),
    _Meaning(
        (
            "connecting to a PLAINTEXT broker",
            # The same, where the client saw the end of the connection before OpenSSL did.
            "Disconnected.* in state SSL_HANDSHAKE",
            "broker's supported mechanisms:  ",
        ),
        FindingKind.PLAIN_LISTENER,
        "the listener at that port is a plain one",
        "leave security.protocol out, or give the port of the broker's TLS or SASL listener",
    ),
    _Meaning(
        ("connecting to a SSL broker", "incorrect security.protocol", "might be caused by"),
        FindingKind.OTHER_PROTOCOL,
        "the listener at that port speaks another protocol",
        "set security.protocol as that listener has it: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    ),
    _Meaning(
        ("certificate", "SSL handshake"),
        FindingKind.TLS_REFUSED,
        "the TLS handshake failed",
        "see ssl.ca.location, the certificate's host name and that the port is a TLS listener's",
    ),
    _Meaning(
        ("uthentication", "SASL"),
        FindingKind.CREDENTIALS_REFUSED,
        "the broker refuses these credentials",
        "see sasl.mechanism, sasl.username and sasl.password",
    ),
    _Meaning(
        # The client's text depends on its current step: writing, reading, waiting.
        (
            ALL_DOWN,
            "[Bb]roken pipe",
            "[Cc]onnection reset",
            "[Cc]onnection aborted",
            "Disconnected",
        ),
        FindingKind.CONNECTION_CLOSED,
        "connections are closed before there is an answer",
        "see security.protocol (that listener may want SASL), and that it is a Kafka broker",
    ),
    _Meaning(
        ("Required feature not supported",),
        FindingKind.NOT_A_BROKER,
        "what answers there is no broker that this client can use",
        "give the port of a broker's client listener, not that of a KRaft controller",
    ),
    _MUTE,
)
_OTHERWISE = _Meaning(
    (),
    FindingKind.NO_ANSWER,
    "no broker answers",
    "see that the cluster is up and can be reached from here",
)

_TLS_LISTENER = _Meaning(
    (),
    FindingKind.TLS_LISTENER,
    "the listener at that port wants TLS",
    "set security.protocol=SSL, or SASL_SSL when it also wants a user; or give the port of a plain "
    "listener",
)

# The client names a broker by its address and number, or calls it "bootstrap".
_TOLD = re.compile(r"(?:^|//)([^/\s]+:[0-9]+)/[0-9]+: ")


def unanswered(
    address: str,
    reason: str,
    speaks_tls: Callable[[], bool],
    is_mute: Callable[[], bool] = lambda: False,
) -> Check:
    """Return the check for a cluster without an answer. ``reason`` is the client's.

    ``speaks_tls`` and ``is_mute`` try the listener itself. A listener that wants TLS and one that
    wants SASL give the same client error: that the connection was closed. If a listener never
    answers, the client reports only that all brokers are down, after its timeout.
    """
    known = (each for each in _REASONS if any(re.search(word, reason) for word in each.words))
    meant = next(known, _OTHERWISE)
    if meant.kind is FindingKind.CONNECTION_CLOSED and speaks_tls():
        meant = _TLS_LISTENER
    elif meant.kind is FindingKind.CONNECTION_CLOSED and ALL_DOWN in reason and is_mute():
        meant = _MUTE
    if (told := _TOLD.search(reason)) is not None:
        # Not the address given here, but one that an answering broker advertised.
        finding = _misled(told[1], meant.why)
    else:
        finding = DoctorFinding(meant.kind, CheckStatus.FAIL, meant.why, meant.cure)
    return conclude("broker", f"{address}: {reason}", [finding])


def _misled(address: str, reason: str) -> DoctorFinding:
    return DoctorFinding(
        FindingKind.MISLEADING_ADDRESS,
        CheckStatus.FAIL,
        f"the cluster says that a broker is at {address}, where none answers: {reason}",
        "see advertised.listeners of that broker: clients must be able to reach it there",
    )


def brokers(answers: Mapping[str, str | None]) -> Check:
    """Check that each broker answers at the address it advertises (None: it does)."""
    silent = {address: reason for address, reason in answers.items() if reason is not None}
    seen = f"{len(answers) - len(silent)} of {counted(len(answers), 'broker')} answered: "
    seen += some(answers)
    return conclude(
        "broker",
        seen,
        [_misled(address, reason) for address, reason in silent.items()],
    )


def unasked(name: str, kind: FindingKind, what: str, error: KafkaError, cure: str) -> Check:
    """Return the check for a query that the cluster did not answer, or does not support."""
    if error.code() == KafkaError._UNSUPPORTED_FEATURE:
        return skipped(name, f"{what}: this cluster does not answer that question")
    why = f"no answer about {what}: {error.str()}"
    if error.code() == KafkaError._TIMED_OUT:
        cure = "ask again: a broker that has much to do, or has just started, answers late"
    return conclude(name, what, [DoctorFinding(kind, CheckStatus.FAIL, why, cure)])


def refused(kind: FindingKind, error: ConfigError | Fault) -> DoctorFinding:
    """Return the finding for a setting that a run would refuse with the same sentence."""
    cure = "mend it there; `keyshared run` would refuse it too"
    return DoctorFinding(kind, CheckStatus.FAIL, str(error), cure)
