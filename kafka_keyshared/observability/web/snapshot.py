"""The snapshot: all visible facts about an instance as one value.

It is the status with derived facts (the diagnosis, sums, stuck records) and its context (the
process, the settings). Keys are hidden in it unless ``show_keys`` is set. It never has payloads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.shared_status import SharedStatus
from kafka_keyshared.status import Status, SubscriptionStatus, WorkerStatus

VERSION = 1

STUCK_AFTER = 1.0
"""Seconds after which a running record counts as making no progress."""


class SnapshotOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The process of a snapshot, its versions, and the dead-letter topic of each topic."""

    host: str
    pid: int
    version: str
    python: str
    librdkafka: str
    topics: tuple[str, ...]
    dlq: dict[str, str]


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting in force and its source; a secret is masked."""

    name: str
    value: Any
    origin: str


class DiagnosisView(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnosis as JSON: see
    :class:`~kafka_keyshared.observability.diagnosis.findings.Diagnosis`."""

    text: str
    healthy: bool
    number: int
    findings: tuple[Finding, ...]


class SnapshotTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over partitions, subscriptions and workers; counts are since the start.

    ``lag`` and ``backlog`` are None until they are known of every partition; ``lag_seconds`` is the
    greatest.
    """

    fetched: int
    ok: int
    dropped: int
    failed_attempts: int
    retried: int
    dead_letters: int
    held: int
    held_max: int
    bytes: int
    leased: int
    queued: int
    running: int
    workers: int
    busy: int
    stuck: int
    closed: int
    draining: int
    lag: int | None
    backlog: int | None
    lag_seconds: float | None


class StuckRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record without progress: it runs for long, or its lane is closed.

    ``state`` is ``running``, ``detached``, ``stuck``, or that of its lane. ``where`` is the code
    line of its handler or of its last failure. ``error`` is the last attempt's error, ``waiting``
    the number of records behind it. ``due_seconds`` is the time until its next attempt, if known.
    """

    subscription: str
    state: str
    topic: str
    partition: int
    offset: int
    key: str | None
    slot: int | None
    worker: str
    seconds: float
    attempts: int
    waiting: int
    due_seconds: float | None
    where: str
    error: str
    stack: str


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters: the topic of each source, counts by the broker's answer, and pending ones.

    ``topics`` is empty without a dead-letter topic. ``refused`` lanes wait for a letter that has
    been refused before.
    """

    topics: dict[str, str]
    answers: dict[str, dict[str, int]]
    waiting: int
    refused: int


class InstanceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All visible facts about an instance at one moment. ``version`` is that of its layout.

    ``keys_shown``: ``key`` is the actual key, instead of None for a hidden one. A record without a
    key has no ``slot`` either. ``refresh`` is the time between two snapshots, in seconds.
    """

    version: int
    taken_at: float
    refresh: float
    keys_shown: bool
    about: SnapshotOrigin
    diagnosis: DiagnosisView
    totals: SnapshotTotals
    stuck: tuple[StuckRecord, ...]
    dlq: DeadLetters
    settings: tuple[Setting, ...]
    status: Status


REFRESH = 1.0


def snapshot(
    status: Status, about: SnapshotOrigin, settings: tuple[Setting, ...], *, keys: bool
) -> InstanceSnapshot:
    """Return the snapshot; without ``keys`` every key in it is hidden."""
    diagnosis = diagnose(status, keys=keys)
    status = status if keys else without_keys(status)
    return InstanceSnapshot(
        version=VERSION,
        taken_at=status.taken_at,
        refresh=REFRESH,
        keys_shown=keys,
        about=about,
        diagnosis=DiagnosisView(
            text=diagnosis.text,
            healthy=diagnosis.healthy,
            number=diagnosis.number,
            findings=diagnosis.findings,
        ),
        totals=totals(status),
        stuck=stuck(status),
        dlq=_dead_letters(status, about.dlq),
        settings=settings,
        status=status,
    )


def totals(status: Status) -> SnapshotTotals:
    """Return the sums over a status."""
    subs = status.subscriptions
    workers = [each for sub in subs for each in sub.workers]
    outcomes = [each for sub in subs for each in sub.processed.values()]
    attempts = [each for sub in subs for each in sub.attempts.values()]
    lags = [each.lag for each in status.partitions]
    backlogs = [each.backlog for each in status.partitions]
    seconds = [each.lag_seconds for each in status.partitions if each.lag_seconds is not None]
    return SnapshotTotals(
        fetched=sum(status.fetched.values()),
        ok=sum(each.get("ok", 0) for each in outcomes),
        dropped=sum(each.get("dropped", 0) for each in outcomes),
        failed_attempts=sum(each.get("failed", 0) + each.get("timed_out", 0) for each in attempts),
        retried=sum(sum(each.values()) for sub in subs for each in sub.retried.values()),
        dead_letters=sum(
            each.get("dead_lettered", 0) + each.get("diverted", 0) for each in outcomes
        ),
        held=sum(sub.records for sub in subs),
        held_max=sum(sub.records_max for sub in subs),
        bytes=sum(sub.bytes for sub in subs),
        leased=sum(each.leased for each in workers),
        queued=sum(each.queued for each in workers),
        running=sum(each.runs for each in workers),
        workers=len(workers),
        busy=sum(each.runs > 0 for each in workers),
        stuck=sum(each.stuck for each in workers),
        closed=sum(sum(sub.lanes.values()) for sub in subs),
        draining=sum(sub.draining_slots for sub in subs),
        lag=_sum(lags),
        backlog=_sum(backlogs),
        lag_seconds=max(seconds, default=None),
    )


def _sum(numbers: list[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


def stuck(status: Status) -> tuple[StuckRecord, ...]:
    """Return the records without progress, of every subscription."""
    return tuple(each for sub in status.subscriptions for each in _stuck(sub))


def _stuck(sub: SubscriptionStatus) -> Iterator[StuckRecord]:
    """Yield records without progress: running ones, the longest first, then closed lanes."""
    detached = () if sub.shared is None else sub.shared.detached
    behind = {(each.topic, each.partition, each.offset): each.waiting for each in detached}
    long = [
        (each.running, each)
        for each in sub.workers
        if each.running is not None and (each.stuck or each.running.seconds >= STUCK_AFTER)
    ]
    for running, worker in sorted(long, key=lambda pair: -pair[0].seconds):
        apart = behind.get((running.topic, running.partition, running.offset))
        yield StuckRecord(
            subscription=sub.name,
            state="detached" if apart is not None else "stuck" if worker.stuck else "running",
            topic=running.topic,
            partition=running.partition,
            offset=running.offset,
            key=running.key,
            slot=running.slot,
            worker=worker.name,
            seconds=running.seconds,
            attempts=0,
            waiting=_behind(worker) if apart is None else apart,
            due_seconds=None,
            where=running.where,
            error="",
            stack=running.stack,
        )
    for lane in sub.closed:
        if lane.state in {"running", "stuck", "opening"}:
            continue  # a worker has it, or it is over
        yield StuckRecord(
            subscription=sub.name,
            state=lane.state,
            topic=lane.topic,
            partition=lane.partition,
            offset=lane.offset,
            key=lane.key,
            slot=lane.slot,
            worker="",
            seconds=lane.seconds,
            attempts=lane.attempts,
            waiting=lane.waiting,
            due_seconds=lane.due_seconds,
            where="",
            error=lane.error,
            stack=lane.stack,
        )


def _behind(worker: WorkerStatus) -> int:
    """Return the number of records that wait for a worker's running record."""
    return max(0, worker.queued + worker.leased - worker.runs)


def _dead_letters(status: Status, topics: dict[str, str]) -> DeadLetters:
    answers: dict[str, dict[str, int]] = {}
    for sub in status.subscriptions:
        for topic, counts in sub.dlq_writes.items():
            of_topic = answers.setdefault(topic, {})
            for answer, count in counts.items():
                of_topic[answer] = of_topic.get(answer, 0) + count
    lanes = [sub.lanes for sub in status.subscriptions]
    on_their_way = ("dead_lettering", "archiving", "diverting")
    return DeadLetters(
        topics=topics,
        answers=answers,
        waiting=sum(each.get(state, 0) for each in lanes for state in on_their_way),
        refused=sum(each.refused > 0 for sub in status.subscriptions for each in sub.closed),
    )


def without_keys(status: Status) -> Status:
    """Return the status with every key hidden; slots stay."""
    replace = msgspec.structs.replace
    return replace(
        status,
        subscriptions=tuple(
            replace(
                sub,
                hottest_key=None,
                shared=_without_keys(sub.shared),
                blocked=tuple(replace(each, key=None) for each in sub.blocked),
                closed=tuple(replace(each, key=None) for each in sub.closed),
                errors=tuple(
                    replace(each, keys=tuple((None, count) for _, count in each.keys))
                    for each in sub.errors
                ),
                workers=tuple(
                    each
                    if each.running is None
                    else replace(each, running=replace(each.running, key=None))
                    for each in sub.workers
                ),
            )
            for sub in status.subscriptions
        ),
    )


def _without_keys(shared: SharedStatus | None) -> SharedStatus | None:
    if shared is None:
        return None
    replace = msgspec.structs.replace
    return replace(
        shared,
        hot_keys=tuple(replace(each, key=None) for each in shared.hot_keys),
        detached=tuple(replace(each, key=None) for each in shared.detached),
    )


def without_record_data(status: Status) -> Status:
    """Return the status without keys, stacks and error messages; types and places of errors stay.

    The metrics port serves it, without a token. An exception's message and its stack may quote
    record data.
    """
    replace = msgspec.structs.replace
    hidden = without_keys(status)
    return replace(
        hidden,
        subscriptions=tuple(
            replace(
                sub,
                blocked=tuple(replace(each, error=kind_of(each.error)) for each in sub.blocked),
                closed=tuple(
                    replace(each, error=kind_of(each.error), stack="") for each in sub.closed
                ),
                errors=tuple(replace(each, message="", stack="") for each in sub.errors),
                workers=tuple(
                    each
                    if each.running is None
                    else replace(each, running=replace(each.running, stack=""))
                    for each in sub.workers
                ),
            )
            for sub in hidden.subscriptions
        ),
    )


def kind_of(error: str) -> str:
    """Return the type and place of an error's text, without its message."""
    return error.partition(": ")[0]
