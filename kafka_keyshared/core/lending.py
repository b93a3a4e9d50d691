"""Lending: a worker that one record holds up lends its other slots, so that nobody waits for it.

The workers are looked at from time to time, and only while one of them has something that it has
not begun. Where a worker stands at the same record for longer than ``lend_after``, what it has not
started is recalled, and its slots go to workers that do get on, through the same drain as whenever
slots move (:mod:`.draining`); so order is nobody's concern here. When it gets on again they come
back, through that drain.

The slot of the record itself stays: its key has to wait anyway, and so a key that is always slow
keeps one worker to itself, and does not wander.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_keyshared.core import draining, returns
from kafka_keyshared.core.commands import Command
from kafka_keyshared.core.loans import Lending, Loan, Running
from kafka_keyshared.core.opening import advance
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker, WorkerState

LOOK_EVERY = 0.025
"""Seconds between two looks while somebody idles or slots are lent."""

UNHURRIED = 10
"""Where nobody idles, looks and loans come after so many times as long."""

RETURNS_AFTER = 2.0
"""A worker gets its slots back when it has got on for so many times ``lend_after``."""

QUICK = 2
"""A worker whose slices have as many records takes less than half of their time for one."""

CHANGE_COSTS = 20 * 2e-6
"""Seconds until the next change for each record held: a change looks at all of them, for about
2 us each, and is to take a twentieth of the owner's time at most."""


def wanted(sub: Subscription, now: float) -> bool:
    """Say whether the workers should be looked at now."""
    lending = sub.lending
    if lending is None or now < lending.due:
        return False
    lending.due = now + LOOK_EVERY
    workers = sub.workers.values()
    if any(worker.loan is not None for worker in workers):
        return True
    if not any(map(_has_more, workers)):
        lending.seen.clear()
        return False
    if not any(map(_idles, workers)):
        lending.due = now + LOOK_EVERY * UNHURRIED
    return True


def _has_more(worker: Worker) -> bool:
    """Say whether a worker that runs something has more than that."""
    if not worker.present or worker.loan is not None or worker.idle:
        return False
    beside = worker.leased - len(worker.apart)
    return beside > 1 or worker.waits or not worker.row.empty() or bool(worker.row.retries)


def _has_unstarted(worker: Worker, progress: Progress) -> bool:
    """Say whether anything waits for what a worker runs."""
    if not worker.row.empty() or worker.row.retries:
        return True
    slices = [each for id_, each in worker.slices.items() if id_ not in worker.apart]
    left = sum(len([*each.outstanding(progress)]) for each in slices)
    return left > sum(len(each.running(progress)) for each in slices)


def _idles(worker: Worker) -> bool:
    return worker.idle and worker.loan is None and _takes(worker)


def _takes(worker: Worker) -> bool:
    """Say whether slots may be lent to a worker."""
    return worker.state is WorkerState.ACTIVE and not worker.recalls and not worker.waits


def look(sub: Subscription, progress: Progress | None, now: float) -> list[Command]:
    """Lend the slots of workers that are held up, and give back those of workers that are not.

    ``progress`` as for a commit; None where nobody has looked.
    """
    lending = sub.lending
    if lending is None or progress is None:
        return []
    held_up = _held_up(sub, lending, progress, now)
    for worker in sub.workers.values():
        if worker.loan is not None and held_up.get(worker.id, 0.0) >= lending.after / 2:
            worker.loan.held_at = now
    if now < lending.change_at:
        return []
    back = [
        worker
        for worker in sub.workers.values()
        if worker.loan is not None and now - worker.loan.held_at >= lending.after * RETURNS_AFTER
    ]
    lenders = _lenders(sub, lending, held_up, progress)
    if not back and not lenders:
        return []
    for worker in back:
        worker.loan = None
    lending.returned_total += len(back)
    _lend(sub, lending, lenders, now)
    return _change(sub, lending, lenders, progress, now)


def _held_up(
    sub: Subscription, lending: Lending, progress: Progress, now: float
) -> dict[int, float]:
    """Return how long each worker has been seen where it is, by its id; of those who run."""
    found: dict[int, float] = {}
    before, lending.seen = lending.seen, {}
    for id_, worker in sub.workers.items():
        running = _running(worker, progress)
        if not running and not worker.waits:
            continue
        was, since = before.get(id_, (running, now))
        since = since if was == running else now
        lending.seen[id_] = running, since
        found[id_] = now - since
    return found


def _running(worker: Worker, progress: Progress) -> Running:
    return tuple(
        (id_, index)
        for id_, leased in worker.slices.items()
        if id_ not in worker.apart
        for index in leased.running(progress)
    )


def _lenders(
    sub: Subscription, lending: Lending, held_up: dict[int, float], progress: Progress
) -> dict[Worker, tuple[int, ...]]:
    """Return who is to lend its slots now, and to whom."""
    workers = sub.workers.values()
    getting_on = [
        worker
        for worker in workers
        if _takes(worker) and worker.loan is None and held_up.get(worker.id, 0.0) < lending.after
    ]
    after, takers = lending.after, [w for w in getting_on if w.idle or w.slice_size >= QUICK]
    if not any(worker.idle for worker in getting_on):
        after, takers = after * UNHURRIED, getting_on
    if not takers:
        return {}
    those = tuple(worker.id for worker in takers)
    return {
        worker: those
        for worker in workers
        if worker.state is WorkerState.ACTIVE
        and held_up.get(worker.id, 0.0) >= after
        and not worker.recalls
        and worker.loan is None
        and _has_unstarted(worker, progress)
    }


def _lend(
    sub: Subscription, lending: Lending, lenders: dict[Worker, tuple[int, ...]], now: float
) -> None:
    for worker, takers in lenders.items():
        running, since = lending.seen[worker.id]
        kept = frozenset(_slots(sub, worker, running))
        worker.loan = Loan(takers, kept, running, since, now)
    lending.lent_total += len(lenders)
    ids = {worker.id for worker in lenders}
    for worker in sub.workers.values():
        if worker.loan is not None and worker not in lenders:
            # They were lent to somebody who is held up now too.
            worker.loan.without(ids, next(iter(lenders.values()), ()))


def _slots(sub: Subscription, worker: Worker, running: Running) -> list[int]:
    those = [(worker.slices[id_], [index]) for id_, index in running]
    return [slot for _, _, slot in draining.slots_of(sub, those)]


def _change(
    sub: Subscription,
    lending: Lending,
    lenders: Collection[Worker],
    progress: Progress,
    now: float,
) -> list[Command]:
    """Bring the table to the loans of now, and take back from lenders what they have not begun."""
    commands = draining.change(sub)
    # Also what has no slot, and what is of the slots that stay.
    commands += returns.recall(sub, [worker for worker in lenders if not worker.recalls])
    for leased in [each for worker in lenders for each in worker.slices.values()]:
        draining.let_go(sub, leased, progress)
        if leased.claimed:
            over = leased.let_go.difference(leased.unsettled, leased.unclaimed)
            leased.unclaimed |= over
            sub.unclaim(leased, sorted(over))
    draining.looked_at(sub, progress)
    lending.change_at = now + LOOK_EVERY + CHANGE_COSTS * sub.window.records
    return commands


def recalled(sub: Subscription, worker: Worker) -> None:
    """Let lanes go on whose fences stand behind the record on which their worker is held up.

    A fence says that all has come back that the worker had of a lane. Here that is known without
    it: the worker has given back everything but what it was seen to run, and what it had before
    that is reported. One that settles its records one by one passes fences at once.
    """
    loan = worker.loan
    if loan is None or worker.individually or worker.recalls:
        return
    at = dict(loan.running)
    for id_, leased in worker.slices.items():
        if id_ not in worker.apart and max(leased.indices(), default=-1) > at.get(id_, -1):
            return
    # Their own it passes as soon as it is out of them.
    own = {
        sub.keys.lane(worker.slices[id_].slice.came[i])
        for id_, i in at.items()
        if id_ in worker.slices
    }
    for closed in list(sub.closed.lanes.values()):
        if closed.fence_at == worker.id and closed.lane not in own:
            for leased in worker.slices.values():
                # The lane was free when it was closed: what it claims from now on is another's.
                leased.unclaimed |= {
                    at for at, lane in enumerate(leased.claimed) if lane == closed.lane
                }
            closed.fence_at = None
            advance(sub, closed)


def takers(sub: Subscription, worker: Worker) -> tuple[str, ...]:
    """Return the names of those who have a worker's slots; nothing where it has them itself."""
    if worker.loan is None:
        return ()
    return tuple(sorted({sub.workers[id_].name for id_ in worker.loan.takers}))
