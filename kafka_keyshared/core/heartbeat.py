"""The heartbeat, every 500 ms: five phases, in this order, each its own function.

The phases are those of Danube's Key-Shared dispatcher: acknowledgement time-outs, poison, retries
that are due, eviction of workers that are gone, and room for more records. Most of what they look
for has been dealt with when it happened; the heartbeat is the backstop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_keyshared.core import failures
from kafka_keyshared.core.events import (
    AbandonWorker,
    Command,
    Halt,
    Level,
    Notice,
    Recall,
    ReplaceWorker,
    Slice,
)
from kafka_keyshared.core.leases import WorkerLeases
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.model import (
    About,
    Record,
    counted,
    in_words,
    name_of,
    named_key,
    partition_of,
)

BEAT_SECONDS = 0.5
AGAIN_AFTER = (60.0, 120.0, 300.0)
AGAIN_EVERY = 600.0
"""Seconds of running at which a record that was named is named again, and then each so many."""

EVICT_AFTER = 6
"""Beats without a live thread or process after which a worker's keys go to the others."""


@dataclass(slots=True)
class RunningSince:
    """Since when the same record of a slice has been seen running, in monotonic seconds.

    ``told_at`` is how long that was when it was named last, 0 before it is.
    """

    started: int
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
    """What the heartbeat remembers from beat to beat."""

    running: dict[Slice, RunningSince] = field(default_factory=dict)


def ack_timeouts(
    sub: Subscription, watch: Watch, progress: Mapping[Slice, int], now: float
) -> list[Command]:
    """Phase 1: name records that run for long, and count as stuck those past the time-out.

    How long a record has been running comes from the same position of its slice at two beats, so it
    is exact to one beat and costs nothing per record. A thread cannot be killed: its record is
    stuck, not a failed attempt; its lane stays closed and a late result is accepted once.
    """
    commands: list[Command] = []
    seen: dict[Slice, RunningSince] = {}
    for worker in sub.workers:
        if not worker.slices:
            continue
        share = worker.slices[0]
        unstarted = progress.get(share, len(share.records))
        if unstarted >= len(share.records):
            continue
        known = watch.running.get(share)
        started = len(share.records) - unstarted
        # Counted from the front: a recall takes from the back and does not end the running one.
        if known is None or known.started != started:
            known = RunningSince(started, now)
        seen[share] = known
        record = share.came[started - 1]
        commands += _judge_age(sub, known, record, worker, now - known.since)
    for share, known in watch.running.items():
        if (known.told_at or known.stuck) and seen.get(share) is not known:
            record = share.came[known.started - 1]
            text = f"{_where(record)} ended after {in_words(now - known.since)}"
            commands.append(Notice(Level.INFO, text, about=_about(record)))
    watch.running = seen
    return commands


def _where(record: Record) -> str:
    return f"{name_of(record)} ({named_key(record.key())})"


def _about(record: Record) -> About:
    return About(partition_of(record), record.offset(), record.key())


def _judge_age(
    sub: Subscription, known: RunningSince, record: Record, worker: WorkerLeases, age: float
) -> list[Command]:
    settings, place = sub.settings, (sub.name, worker.index)
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
        return [Notice(Level.ERROR, reason, place, _about(record))]
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
    return [Notice(Level.WARNING, text, place, _about(record))]


def poison(sub: Subscription, now: float) -> list[Command]:
    """Phase 2: judge again any lane whose head has no attempt left and was not judged."""
    commands: list[Command] = []
    for closed in failures.exhausted(sub):
        if closed.last is not None:
            sub.closed.cancel(closed)
            commands += failures.judge(sub, closed, closed.last, now)
    return commands


def retries(sub: Subscription, now: float) -> list[Command]:
    """Phase 3: ready the lanes whose delay is over, for whoever owns their slots now."""
    return failures.fire(sub, now)


def tell(sub: Subscription, now: float) -> list[Notice]:
    """Return what it is time to say of what comes often, and of what does not go away."""
    return [*sub.bursts.due(now), *sub.blocked.remind(sub.closed.lanes.values(), now)]


def eviction(sub: Subscription, dead: Sequence[int]) -> list[Command]:
    """Phase 4: replace workers that are gone under the same name; evict after six beats.

    Eviction redelivers: what the worker held runs again elsewhere. (Danube's dispatcher settles it
    instead, which loses it.)
    """
    commands: list[Command] = []
    for worker in sub.workers:
        if worker.index not in dead:
            worker.idle_beats = 0
            continue
        worker.idle_beats += 1
        if worker.idle_beats < EVICT_AFTER:
            worker.restarts += 1
            commands.append(ReplaceWorker(sub.name, worker.index))
        elif not worker.gone:
            commands += evict(sub, worker.index)
    return commands


def departures(sub: Subscription, left: Sequence[int]) -> list[Command]:
    """Phase 4, too: give the keys of members that have left to the others."""
    commands: list[Command] = []
    for index in left:
        worker = sub.workers[index]
        if not worker.gone and any(
            not each.gone and each.index not in left for each in sub.workers
        ):
            commands += give_up(
                sub,
                worker,
                Notice(
                    Level.INFO,
                    f"{worker.name} has left; its keys go to the others, what it had not settled "
                    "runs again",
                ),
            )
    return commands


def evict(sub: Subscription, index: int) -> list[Command]:
    """Give up a worker that could not be restarted."""
    worker = sub.workers[index]
    others = [other for other in sub.workers if not other.gone and other is not worker]
    if not others:
        return [Halt(f"{worker.name} could not be restarted and there is no other worker")]
    return give_up(
        sub,
        worker,
        Notice(
            Level.ERROR,
            f"{worker.name} could not be restarted in {EVICT_AFTER} heartbeats; its keys go to the "
            f"{counted(len(others), 'worker')} left, what it held runs again",
        ),
    )


def give_up(sub: Subscription, worker: WorkerLeases, notice: Notice) -> list[Command]:
    """Give up a worker. Its slots move when its last lease has ended, and only its slots."""
    index = worker.index
    worker.gone = True
    recall = [Recall(sub.name, index)] if worker.slices else []
    if not worker.slices:
        failures.leave(sub, worker)
    return [
        *recall,
        AbandonWorker(sub.name, index),
        notice,
    ]


def fetch(sub: Subscription) -> int:
    """Phase 5: return how many records may be fetched now."""
    return sub.window.room()


def starve(sub: Subscription, seconds: float) -> None:
    """Count the time for workers that have nothing."""
    for worker in sub.workers:
        if not worker.slices and not worker.gone:
            worker.starved_seconds += seconds
