"""Recall of leases that have not started.

A revoke, a stop, and a worker that joins or leaves all use the same recall. The core names the
records. The pool answers when it can, with these records or more. Until then the worker gets no
leases, because new ones would overtake the records that come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from kafka_keyshared.core.contract.commands import Command, Recall
from kafka_keyshared.core.contract.events import Recalled
from kafka_keyshared.core.contract.slices import SliceState
from kafka_keyshared.core.lanes.closed import LaneEvent
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition

Selector: TypeAlias = Callable[[SliceState, int], bool]
"""Returns whether to recall a leased record, given its index in the slice."""


def of_partitions(partitions: Collection[TopicPartition]) -> Selector:
    """Return a selector for the records of these partitions."""
    return lambda leased, index: leased.slice.came.partition_of(index) in partitions


def recall(
    sub: Subscription, workers: Iterable[Worker], selector: Selector | None = None
) -> list[Command]:
    """Return the commands that recall unstarted leases: all, or the selected ones."""
    commands: list[Command] = []
    for worker in workers:
        only = None if selector is None else _selected(worker, selector)
        if worker.slices and only != {}:
            worker.recalls += 1
            commands.append(Recall(sub.name, worker.id, only))
    return commands


def _selected(worker: Worker, selector: Selector) -> dict[int, list[int]]:
    """Return the selected leases of the worker, and those that would overtake them if they stayed.

    At a serial worker these are all leases behind the first selected one. A recalled record is
    leased again behind the leases that stay.
    """
    only: dict[int, list[int]] = {}
    for id_, leased in worker.slices.items():
        if id_ in worker.apart:
            continue  # it has started, and no lease is behind it
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
    """Put unstarted leases back in order; return the worker that held them."""
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
                sub.routing.ready([closed])
            else:
                behind.setdefault(lane, []).append(record)
    sub.routing.put_back(back)
    # They left the backlog before all records that the lane's queue has taken from it since.
    for lane, records in behind.items():
        closed = sub.closed.lanes[lane]
        closed.queue.extendleft(reversed(records))
        sub.look_ahead.grown += len(records)
    return worker


def believed(sub: Subscription, event: Recalled) -> Worker:
    """Return the worker that answers, after the whole answer has been checked.

    Raises :class:`InvariantError` without an open recall, or if the answer names a lease twice or
    one that does not exist. The check comes before any change, because a half-applied answer
    would lose the rest.
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


def _present(sub: Subscription, leased: SliceState, unstarted: Sequence[int]) -> list[Record]:
    """Return the records of partitions that are still assigned; drop the others unsettled."""
    records = leased.slice.records
    if leased.slice.epoch == sub.epochs.now:
        return [records[index] for index in unstarted]
    over = [index for index in unstarted if sub.epochs.ended(leased, index)]
    sub.window.free(len(over))
    sub.unclaim(leased, over)
    return [records[index] for index in unstarted if index not in over]
