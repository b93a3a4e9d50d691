"""A report: an instance's periodic report to its group.

Others may read its topic, so it has no record data: no key and no value. It has only the kind and
the place of a handler's error.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from kafka_keyshared.core.status.builder import settled_in
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.diagnosis.causes import Level
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.observability.web.snapshot import totals
from kafka_keyshared.status import Phase, Status

VERSION = 1

MOST_BYTES = 256 << 10
"""Maximum length of a report that is read. One of 10,000 partitions has 60,000 bytes."""


class Who(NamedTuple):
    """The identity of an instance. ``instance`` is unique, also among later runs.

    ``name`` is for people: the host, or the value of ``group.instance.id``. ``url`` is the address
    of its console, empty without one.
    """

    instance: str
    name: str
    host: str
    pid: int
    url: str
    software: str


class InstanceReport(msgspec.Struct, frozen=True, kw_only=True):
    """An instance's report about itself. ``version`` is that of this layout.

    ``at`` and ``started_at`` are by its own clock, in seconds since 1970. Reports come every
    ``every`` seconds. ``topics`` are those that it reads, ``partitions`` those that it holds.
    ``settled`` counts records since its start. ``healthy``, ``level``, ``code`` and ``text`` are
    its diagnosis; ``level`` and ``code`` are empty without findings. ``rebalanced_at`` is when
    partitions last came or went. The rest is as in a snapshot's totals and in the status.
    """

    version: int
    group: str
    instance: str
    name: str
    host: str
    pid: int
    url: str
    software: str
    at: float
    started_at: float
    every: float
    phase: Phase
    joined: bool
    topics: tuple[str, ...]
    partitions: dict[str, tuple[int, ...]]
    workers: int
    busy: int
    running: int
    held: int
    held_max: int
    closed: int
    stuck: int
    settled: int
    backlog: int | None
    lag: int | None
    lag_seconds: float | None
    oldest_seconds: float
    healthy: bool
    level: Level | None
    code: str
    text: str
    rebalance_seconds: float | None
    rebalanced_at: float | None

    @property
    def held_partitions(self) -> int:
        """Return the number of held partitions."""
        return sum(map(len, self.partitions.values()))


class UnreadableReportError(KeySharedError):
    """A report that this release cannot read."""


class _ReportLayout(msgspec.Struct):
    version: int


def report_of(status: Status, who: Who, every: float) -> InstanceReport:
    """Return the report of an instance with this status."""
    sums = totals(status)
    diagnosis = diagnose(without_messages(status))
    held: dict[str, list[int]] = {}
    for each in status.partitions:
        held.setdefault(each.topic, []).append(each.partition)
    return InstanceReport(
        version=VERSION,
        group=status.group,
        **who._asdict(),
        at=status.taken_at,
        started_at=status.started_at,
        every=every,
        phase=status.phase,
        joined=status.joined,
        topics=tuple(sorted(status.fetched)),
        partitions={topic: tuple(sorted(numbers)) for topic, numbers in sorted(held.items())},
        workers=sums.workers,
        busy=sums.busy,
        running=sums.running,
        held=sums.held,
        held_max=sums.held_max,
        closed=sums.closed,
        stuck=sums.stuck,
        settled=settled_in(status),
        backlog=sums.backlog,
        lag=sums.lag,
        lag_seconds=sums.lag_seconds,
        oldest_seconds=max((each.oldest_seconds for each in status.partitions), default=0.0),
        healthy=diagnosis.healthy,
        level=None if diagnosis.first is None else diagnosis.first.level,
        code="" if diagnosis.first is None else diagnosis.first.code,
        text=diagnosis.text,
        rebalance_seconds=status.rebalance_seconds,
        rebalanced_at=status.rebalanced[-1].at if status.rebalanced else None,
    )


_KIND = re.compile(r"[A-Za-z_][\w.]*(?: at [^:\s]+:\d+)?")


def without_messages(status: Status) -> Status:
    """Return the status with only the kind and place of errors: a message may quote its record."""
    replace = msgspec.structs.replace

    def kind(error: str) -> str:
        found = _KIND.match(error)
        whole = found is not None and error[found.end() :][:1] in {"", ":"}
        return found[0] if found is not None and whole else "an error"

    return replace(
        status,
        subscriptions=tuple(
            replace(
                sub,
                blocked=tuple(replace(each, error=kind(each.error)) for each in sub.blocked),
                closed=tuple(replace(each, error=kind(each.error)) for each in sub.closed),
                unreadable_keys=tuple(
                    replace(each, error=kind(each.error)) for each in sub.unreadable_keys
                ),
                failure_rates=tuple(replace(each, message="") for each in sub.failure_rates),
                waiting=sub.waiting and replace(sub.waiting, message=""),
            )
            for sub in status.subscriptions
        ),
    )


def packed(report: InstanceReport) -> bytes:
    """Return an encoded report."""
    return msgspec.json.encode(report)


def unpacked(text: bytes) -> InstanceReport:
    """Return a decoded report. Raise :class:`UnreadableReportError` for an invalid or long one."""
    if len(text) > MOST_BYTES:
        raise UnreadableReportError(f"a report of {len(text):,} bytes; {MOST_BYTES:,} are read")
    try:
        version = msgspec.json.decode(text, type=_ReportLayout).version
        if version != VERSION:
            raise UnreadableReportError(
                f"a report of version {version}; this release reads version {VERSION}"
            )
        return msgspec.json.decode(text, type=InstanceReport)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableReportError(f"not a report: {error}") from error


def key_of(group: str, instance: str) -> bytes:
    """Return the key of an instance's reports. Compaction keeps the last of each."""
    return f"{group}/{instance}".encode()
