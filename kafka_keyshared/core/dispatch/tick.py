"""The heartbeat: five phases every 500 ms, in this order.

The phases are those of Danube's Key-Shared dispatcher: acknowledgement timeouts, poison records,
due retries, eviction of workers that are gone, and room for more records. Most of these cases are
handled when they happen; the heartbeat is the backstop. Each phase is a function of its own;
eviction is in :mod:`kafka_keyshared.core.worker_changes.worker_lifecycle`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_keyshared.core.contract.commands import Command, Notice
from kafka_keyshared.core.contract.facts import LongRunEnded, RecordRunsLong
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.failures import failed_attempts, stuck
from kafka_keyshared.core.failures.follow_up import decide_head, follow_up
from kafka_keyshared.core.limits.slow_records import LongRunning, Slow, slow_at
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import About, Record, partition_of

BEAT_SECONDS = 0.5
NAMED_AT_ONCE = 3
"""Running records of one worker that one heartbeat reports."""

AGAIN_AFTER = (60.0, 120.0, 300.0)
AGAIN_EVERY = 600.0
"""Seconds of running at which a reported record is reported again.

After the last value in ``AGAIN_AFTER`` the report repeats every ``AGAIN_EVERY`` seconds.
"""


@dataclass(slots=True)
class RunningSince:
    """Since when a record has been seen running, in monotonic seconds.

    ``whose`` is its subscription, worker id, slice id, and index in the slice. ``key`` is the key
    that routes it. ``told_at`` is how long it had been running at its last report, 0 before the
    first.
    """

    record: Record
    whose: tuple[str, int, int, int]
    since: float
    key: bytes | None
    told_at: float = 0.0
    stuck: bool = False

    def due(self, warn_after: float) -> float:
        """Return the seconds of running at which the record is next reported."""
        if not self.told_at:
            return warn_after
        again = next((each for each in AGAIN_AFTER if each > self.told_at), None)
        return again or (self.told_at // AGAIN_EVERY + 1) * AGAIN_EVERY


@dataclass(slots=True)
class RunningWatch:
    """State that the heartbeat keeps between beats.

    ``running`` has the running records by slice and index. ``unstuck`` is the number of stuck
    records that had ended by the last beat.
    """

    running: dict[tuple[int, int], RunningSince] = field(default_factory=dict)
    unstuck: int = 0


def ack_timeouts(
    sub: Subscription, watch: RunningWatch, progress: Progress, now: float
) -> list[Command]:
    """Phase 1: report records that run long, and end those past the ack timeout.

    The running time is measured between two beats. It is exact to one beat and costs nothing per
    record. The pool decides how an attempt is ended and which attempts it cannot end: a thread
    cannot be killed (:mod:`kafka_keyshared.core.failures.stuck`).
    """
    commands: list[Command] = []
    seen: dict[tuple[int, int], RunningSince] = {}
    slow: list[Slow] = []
    # A stuck record that has ended may free a replacement thread for a worker that still waits.
    freed, watch.unstuck = sub.counts.unstuck > watch.unstuck, sub.counts.unstuck
    for worker in sub.workers.values():
        named = 0
        past: list[tuple[int, int]] = []
        there: list[tuple[int, int]] = []
        for id_, leased in worker.slices.items():
            for index in leased.running(progress):
                known = watch.running.get((id_, index))
                if known is None:
                    whose = (sub.name, worker.id, id_, index)
                    record = leased.slice.came[index]
                    known = RunningSince(record, whose, now, sub.keys.key(record))
                elif not worker.individually:
                    sub.failure_watch.done_before(leased, index)
                seen[id_, index] = known
                there.append((id_, index))
                known.stuck = id_ in worker.apart and id_ != worker.detached
                if _is_past(sub, worker, known, now, freed=freed):
                    past.append((id_, index))
                # A worker may run many records at once; a few are reported per beat, the oldest
                # first.
                elif named < NAMED_AT_ONCE:
                    told = _overdue(sub, known, worker, now - known.since)
                    named += len(told)
                    commands += told
        if past and not worker.recalls:
            commands.append(stuck.time_out(sub, worker, past))
        running = [
            LongRunning(*lease, known.record, known.since, known.key)
            for lease, known in ((each, seen[each]) for each in there)
        ]
        if (held_up := slow_at(worker, running, now)) is not None:
            slow.append(held_up)
    for lease, known in watch.running.items():
        if (known.told_at or known.stuck) and lease not in seen:
            commands.append(Notice(LongRunEnded(_about(known), now - known.since)))
    watch.running = seen
    sub.look_ahead.slow = slow
    return commands


def _is_past(
    sub: Subscription, worker: Worker, known: RunningSince, now: float, *, freed: bool
) -> bool:
    """Return whether a record must end, or whether a worker may go on without it now."""
    if known.stuck:
        return freed and worker.waits_for == known.whose[2]
    limit = sub.settings.ack_timeout
    return limit is not None and now - known.since >= limit


def _about(known: RunningSince) -> About:
    return About(partition_of(known.record), known.record.offset(), known.key)


def _overdue(sub: Subscription, known: RunningSince, worker: Worker, age: float) -> list[Command]:
    settings = sub.settings
    if age < known.due(settings.warn_after):
        return []
    known.told_at = age
    alone = known.stuck and worker.waits_for != known.whose[2]
    return [
        Notice(
            RecordRunsLong(
                _about(known),
                known.whose,
                worker.name,
                age,
                member=settings.individually,
                others_wait=None if alone else not worker.shares,
            )
        )
    ]


def poison(sub: Subscription, now: float) -> list[Command]:
    """Phase 2: decide again on lanes whose head has no attempt left and still waits."""
    commands: list[Command] = []
    for closed in failed_attempts.exhausted(sub):
        if closed.last is not None:
            sub.closed.cancel(closed)
            decision = decide_head(sub, closed, closed.last, sub.retry_after(closed.last))
            commands += follow_up(sub, closed, closed.last, decision, now)
    return commands


def retries(sub: Subscription, now: float) -> list[Command]:
    """Phase 3: ready the lanes whose retry delay is over, at the current owners of their slots."""
    return failed_attempts.fire(sub, now)


def reminders(sub: Subscription, now: float) -> list[Notice]:
    """Return the due log lines on frequent events and on conditions that persist."""
    return [*sub.bursts.due(now), *sub.reminder.remind(sub.closed.lanes.values(), now)]


def fetch(sub: Subscription) -> int:
    """Phase 5: return how many records may be fetched now."""
    return sub.window.room()


def count(sub: Subscription, late: int, seconds: float) -> None:
    """Count the late acknowledgements of members and the seconds that workers had no records."""
    sub.counts.late_acks += late
    for worker in sub.workers.values():
        if worker.idle and worker.present:
            worker.starved_seconds += seconds
