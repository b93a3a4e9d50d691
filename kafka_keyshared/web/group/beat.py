"""A beat: what an instance says of itself to its group, every few seconds.

It goes to a topic that others read, so there is nothing in it that is a record's: no key, no value,
and of what a handler has failed with only the kind and the place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from kafka_keyshared.core.status import settled_in
from kafka_keyshared.diagnosis.causes import Level
from kafka_keyshared.diagnosis.judge import diagnose
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.status import Phase, Status
from kafka_keyshared.web.snapshot import totals

VERSION = 1

MOST_BYTES = 256 << 10
"""A beat that is longer is not read: one of 10,000 partitions has 60,000."""


class Who(NamedTuple):
    """Which instance it is. ``instance`` is a name that no other one ever has, nor a later run.

    ``name`` is for people: the host, or what ``group.instance.id`` says. ``url`` is where its
    console is, empty without one.
    """

    instance: str
    name: str
    host: str
    pid: int
    url: str
    software: str


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance says of itself. ``version`` is that of this layout.

    ``at`` and ``started_at`` are by its own clock, in seconds since 1970; there is another beat
    after ``every`` seconds. ``topics`` are those that it reads, ``partitions`` what it holds of
    them. ``settled`` counts records since its start. ``healthy``, ``level``, ``code`` and ``text``
    are what its diagnosis says; ``level`` and ``code`` are empty where nothing is wrong.
    ``rebalanced_at`` is when partitions last came or went; the rest is as in a snapshot's totals
    and in the status.
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
        """Return how many partitions it holds."""
        return sum(map(len, self.partitions.values()))


class UnreadableBeatError(KeySharedError):
    """What was to be a beat is none that this release reads."""


class _Layout(msgspec.Struct):
    version: int


def beat_of(status: Status, who: Who, every: float) -> Beat:
    """Return what an instance with this status says of itself."""
    sums = totals(status)
    diagnosis = diagnose(without_messages(status))
    held: dict[str, list[int]] = {}
    for each in status.partitions:
        held.setdefault(each.topic, []).append(each.partition)
    return Beat(
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
    """Return the status with the kind and place of errors alone: a message may quote its record."""
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
                unread=tuple(replace(each, error=kind(each.error)) for each in sub.unread),
                failure_rates=tuple(replace(each, message="") for each in sub.failure_rates),
            )
            for sub in status.subscriptions
        ),
    )


def packed(beat: Beat) -> bytes:
    """Return a beat as it is written."""
    return msgspec.json.encode(beat)


def unpacked(text: bytes) -> Beat:
    """Return a beat; raise :class:`UnreadableBeatError` for what is none, or is not to be read."""
    if len(text) > MOST_BYTES:
        raise UnreadableBeatError(f"a beat of {len(text):,} bytes; {MOST_BYTES:,} are read")
    try:
        version = msgspec.json.decode(text, type=_Layout).version
        if version != VERSION:
            raise UnreadableBeatError(
                f"a beat of version {version}; this release reads version {VERSION}"
            )
        return msgspec.json.decode(text, type=Beat)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableBeatError(f"what is no beat: {error}") from error


def key_of(group: str, instance: str) -> bytes:
    """Return the key of an instance's beats: the last of each is what compaction keeps."""
    return f"{group}/{instance}".encode()
