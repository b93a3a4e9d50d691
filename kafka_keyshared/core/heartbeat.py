"""The heartbeat, every 500 ms: five phases, in this order, each its own function.

The phases are those of Danube's Key-Shared dispatcher: acknowledgement time-outs, poison, retries
that are due, eviction of workers that are gone, and room for more records. Most of what they look
for has been dealt with when it happened; the heartbeat is the backstop.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_keyshared.core import failures
from kafka_keyshared.core.commands import Command, Halt, Level, Notice
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.model import (
    About,
    Record,
    in_words,
    name_of,
    named_key,
    partition_of,
)

BEAT_SECONDS = 0.5
NAMED_AT_ONCE = 3
"""Records of one worker that one beat names."""

AGAIN_AFTER = (60.0, 120.0, 300.0)
AGAIN_EVERY = 600.0
"""Seconds of running at which a record that was named is named again, and then each so many."""


@dataclass(slots=True)
class RunningSince:
    """Since when a record has been seen running, in monotonic seconds.

    ``worker`` is by subscription and id. ``told_at`` is how long it had been running
    when it was named last, 0 before it is.
    """

    record: Record
    worker: tuple[str, int]
    since: float
    told_at: float = 0.0
    stuck: bool = False

    def due(self, warn_after: float) -> float:
        """Return after how many seconds of running it is to be named next."""
        if not self.told_at:
            return warn_after
        again = next((each for each in AGAIN_AFTER if each > self.told_at), None)
        return again or (self.told_at // AGAIN_EVERY + 1) * AGAIN_EVERY


@dataclass(slots=True)
class Watch:
    """What the heartbeat remembers from beat to beat: what runs, by slice and index."""

    running: dict[tuple[int, int], RunningSince] = field(default_factory=dict)


def ack_timeouts(sub: Subscription, watch: Watch, progress: Progress, now: float) -> list[Command]:
    """Phase 1: name records that run for long, and count as stuck those past the time-out.

    How long a record has been running comes from its running at two beats, so it is exact to one
    beat and costs nothing per record. A thread cannot be killed: its record is stuck, not a failed
    attempt; its lane stays closed and a late result is accepted once.
    """
    commands: list[Command] = []
    seen: dict[tuple[int, int], RunningSince] = {}
    for worker in sub.workers.values():
        named = 0
        for id_, leased in worker.slices.items():
            for index in leased.running(progress):
                known = watch.running.get((id_, index))
                if known is None:
                    known = RunningSince(leased.slice.came[index], (sub.name, worker.id), now)
                seen[id_, index] = known
                # Of many that one worker runs at once a few are named at a time, the oldest first.
                if named < NAMED_AT_ONCE:
                    told = _overdue(sub, known, worker, now - known.since)
                    named += len(told)
                    commands += told
    for lease, known in watch.running.items():
        if (known.told_at or known.stuck) and lease not in seen:
            text = f"{_where(known.record)} ended after {in_words(now - known.since)}"
            commands.append(Notice(Level.INFO, text, about=_about(known.record)))
    watch.running = seen
    return commands


def _where(record: Record) -> str:
    return f"{name_of(record)} ({named_key(record.key())})"


def _about(record: Record) -> About:
    return About(partition_of(record), record.offset(), record.key())


def _overdue(sub: Subscription, known: RunningSince, worker: Worker, age: float) -> list[Command]:
    settings, record = sub.settings, known.record
    what, who = _where(record), worker.name
    if settings.ack_timeout is not None and age >= settings.ack_timeout and not known.stuck:
        known.stuck = True
        sub.counts.stuck += 1
        reason = (
            f"{what} has been running on {who} for {in_words(age)}, past the ack timeout of "
            f"{settings.ack_timeout:g} s; a thread cannot be ended from outside, so its key waits"
        )
        known.told_at = max(known.told_at, age)
        if settings.exit_when_stuck:
            return [Halt(reason)]
        return [Notice(Level.ERROR, reason, known.worker, _about(record))]
    if age < known.due(settings.warn_after):
        return []
    known.told_at = age
    if settings.individually:
        text = f"{who} has had {what} for {in_words(age)}, unsettled; its key waits"
    else:
        text = (
            f"{what} has been running on {who} for {in_words(age)}; its key and the others of that "
            "worker wait"
        )
    return [Notice(Level.WARNING, text, known.worker, _about(record))]


def poison(sub: Subscription, now: float) -> list[Command]:
    """Phase 2: decide again on any lane whose head has no attempt left and still waits."""
    commands: list[Command] = []
    for closed in failures.exhausted(sub):
        if closed.last is not None:
            sub.closed.cancel(closed)
            commands += failures.follow_up(sub, closed, closed.last, now)
    return commands


def retries(sub: Subscription, now: float) -> list[Command]:
    """Phase 3: ready the lanes whose delay is over, for whoever owns their slots now."""
    return failures.fire(sub, now)


def reminders(sub: Subscription, now: float) -> list[Notice]:
    """Return what it is time to say of what comes often, and of what does not go away."""
    return [*sub.bursts.due(now), *sub.reminder.remind(sub.closed.lanes.values(), now)]


def fetch(sub: Subscription) -> int:
    """Phase 5: return how many records may be fetched now."""
    return sub.window.room()


def starve(sub: Subscription, seconds: float) -> None:
    """Count the time for workers that have nothing."""
    for worker in sub.workers.values():
        if not worker.slices and worker.present:
            worker.starved_seconds += seconds
