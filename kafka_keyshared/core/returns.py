"""What comes back from workers: leases that were not started, and all that one held who is gone."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_keyshared.core.events import Command, Recall, Slice
from kafka_keyshared.core.lanes import Lane, LaneEvent
from kafka_keyshared.core.leases import WorkerLeases
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.model import Record


def recall_all(sub: Subscription) -> list[Command]:
    """Return the commands that take back every unstarted lease."""
    return [Recall(sub.name, worker.index) for worker in sub.workers if worker.slices]


def by_subscription(
    slices: Iterable[tuple[Slice, list[Record]]],
) -> dict[str, list[tuple[Slice, list[Record]]]]:
    """Return what came back by the name of the subscription that it is of."""
    found: dict[str, list[tuple[Slice, list[Record]]]] = {}
    for share, unstarted in slices:
        found.setdefault(share.subscription, []).append((share, unstarted))
    return found


def recalled(sub: Subscription, slices: Iterable[tuple[Slice, list[Record]]]) -> None:
    """Put unstarted leases back, in order, to where they came from."""
    behind: dict[Lane, list[Record]] = {}
    back: list[Record] = []
    for share, unstarted in slices:
        sub.workers[share.worker].take_back(share, unstarted)
        for record in unstarted:
            lane = sub.keys.lane(record)
            closed = sub.closed.get(lane)
            if closed is None:
                back.append(record)
                if sub.one_lease is not None:
                    back.extend(sub.one_lease.release(lane))
            elif closed.head is record:
                closed.on(LaneEvent.RECALLED)
                closed.attempt = None
                sub.owner(record).ready(closed)
            else:
                behind.setdefault(lane, []).append(record)
    sub.put_back(back)
    # They left the backlog before anything that the lane's queue took from it since.
    for lane, records in behind.items():
        closed = sub.closed.lanes[lane]
        closed.queue.extendleft(reversed(records))
        sub.count_blocked(closed, records)


def remove(sub: Subscription, worker: WorkerLeases) -> None:
    """Take a worker that is gone and holds nothing off the ring; move what waits at it."""
    sub.mixed = True
    worker.removed = True
    sub.project()
    worker.merge_front()
    granted, heads = worker.granted[:], list(worker.retries)
    waiting, _ = worker.backlog.take(len(worker.backlog))
    worker.granted.clear()
    worker.retries.clear()
    for record in granted:
        sub.put_back([record])
        sub.give_back(record)
    sub.put_back(waiting)
    for closed in heads:
        if closed.head is not None:
            sub.owner(closed.head).ready(closed)
