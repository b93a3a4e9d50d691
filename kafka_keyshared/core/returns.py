"""What comes back from workers without having started: leases that were recalled.

Recall is one operation whoever asks: a revoke, a stop, a worker that leaves or one that joins. The
core names the records; a pool answers when it can, with these or more, and the worker is given
nothing until then, because what it got would overtake what comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.commands import Command, Recall
from kafka_keyshared.core.events import Recalled
from kafka_keyshared.core.lane_identity import Lane
from kafka_keyshared.core.lanes import LaneEvent
from kafka_keyshared.core.slices import Leased
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition

Selector: TypeAlias = Callable[[Leased, int], bool]
"""Says of a record that is leased, by its index, whether it is to come back."""


def of_partitions(partitions: Collection[TopicPartition]) -> Selector:
    """Select what is of these partitions."""
    return lambda leased, index: leased.slice.came.partition_of(index) in partitions


def recall(
    sub: Subscription, workers: Iterable[Worker], selector: Selector | None = None
) -> list[Command]:
    """Return the commands that take unstarted leases back: all, or those selected."""
    commands: list[Command] = []
    for worker in workers:
        only = None if selector is None else _selected(worker, selector)
        if worker.slices and only != {}:
            worker.recalls += 1
            commands.append(Recall(sub.name, worker.id, only))
    return commands


def _selected(worker: Worker, selector: Selector) -> dict[int, list[int]]:
    """Return what is selected of the worker's leases, and what would overtake it if it stayed.

    At a serial worker that is all behind the first one: what comes back is leased again behind it.
    """
    only: dict[int, list[int]] = {}
    for id_, leased in worker.slices.items():
        if id_ in worker.apart:
            continue  # it has started, and nothing comes behind it
        if only and not worker.individually:
            only[id_] = list(leased.indices())
            continue
        found = [index for index in leased.indices() if selector(leased, index)]
        if found and not worker.individually:
            found = [index for index in leased.indices() if index >= found[0]]
        if found:
            only[id_] = found
    return only


def recalled(sub: Subscription, event: Recalled) -> Worker:
    """Put unstarted leases back, in order, to where they came from; return whose they were."""
    worker = believed(sub, event)
    worker.recalls -= 1
    behind: dict[Lane, list[Record]] = {}
    back: list[Record] = []
    for id_, unstarted in event.slices:
        leased = worker.slices.get(id_)
        if leased is None or not unstarted:
            continue
        worker.take_back(leased, unstarted)
        sub.leased -= len(unstarted)
        for record in _present(sub, leased, unstarted):
            lane = sub.keys.lane(record)
            closed = sub.closed.get(lane)
            if closed is None:
                back.append(record)
                if sub.one_lease is not None:
                    back.extend(sub.one_lease.release(lane))
            elif closed.head is record:
                closed.on(LaneEvent.RECALLED)
                closed.attempt = None
                sub.ready([closed])
            else:
                behind.setdefault(lane, []).append(record)
    sub.put_back(back)
    # They left the backlog before anything that the lane's queue took from it since.
    for lane, records in behind.items():
        closed = sub.closed.lanes[lane]
        closed.queue.extendleft(reversed(records))
        sub.look_ahead.grown += len(records)
    return worker


def believed(sub: Subscription, event: Recalled) -> Worker:
    """Return whose answer it is, if there is nothing in it that cannot be.

    Raises :class:`InvariantError` where nobody has asked, or the answer names a lease that there is
    not, or twice: before any of it is believed, or the half of it would be lost.
    """
    worker = sub.workers.get(event.worker)
    if worker is None or not worker.recalls:
        name = f"worker {event.worker}" if worker is None else worker.name
        raise InvariantError(f"{name} answers a recall that it was not asked for, or twice")
    seen: set[tuple[int, int]] = set()
    for id_, unstarted in event.slices:
        leased = worker.slices.get(id_)
        if leased is None and unstarted:
            raise InvariantError(f"{worker.name} gives back of slice {id_}, which has ended")
        for index in unstarted:
            if (id_, index) in seen or leased is None or not leased.has(index):
                raise InvariantError(
                    f"{worker.name} gave back twice, or after their end, leases of slice {id_}"
                )
            seen.add((id_, index))
    return worker


def _present(sub: Subscription, leased: Leased, unstarted: Sequence[int]) -> list[Record]:
    """Return the records whose partitions are still there; the others settle nothing and go."""
    records = leased.slice.records
    if leased.slice.epoch == sub.epochs.now:
        return [records[index] for index in unstarted]
    over = [index for index in unstarted if sub.epochs.ended(leased, index)]
    sub.window.free(len(over))
    sub.unclaim(leased, over)
    return [records[index] for index in unstarted if index not in over]
