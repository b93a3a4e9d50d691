"""The rules that must hold between any two events, checked from scratch.

With ``check_invariants`` they run at every heartbeat; tests run them after every event. They cost a
walk over everything held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from kafka_keyshared.core.failures import is_over
from kafka_keyshared.core.holds import Holds, Reason
from kafka_keyshared.core.lanes import LaneState, is_keyless
from kafka_keyshared.core.offsets import PartitionState
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import WorkerState
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import (
    Coordinates,
    Record,
    TopicPartition,
    coordinates_of,
    name_of,
    partition_of,
)


def check_subscription(
    sub: Subscription, partitions: Mapping[TopicPartition, PartitionState], holds: Holds
) -> None:
    """Raise :class:`InvariantError` for the first rule that does not hold."""
    waiting = list(sub.waiting())
    _each_once(sub, waiting)
    _counted(sub, len(waiting))
    _assigned(sub, waiting, partitions)
    _keys_known(sub)
    _below_ceilings(sub)
    _closed_lanes_lease_only_their_head(sub)
    _remembered(sub)
    _keys_at_one_worker(sub)
    _held_back_for_a_cause(sub, partitions, holds)


def _each_once(sub: Subscription, waiting: list[Record]) -> None:
    seen: set[Coordinates] = set()
    for record in waiting:
        at = coordinates_of(record)
        if at in seen:
            raise InvariantError(f"{sub.name}: {at[0]}@{at[1]} is held twice")
        seen.add(at)


def _counted(sub: Subscription, waiting: int) -> None:
    for worker in sub.workers.values():
        leased = sum(map(len, worker.slices.values()))
        if worker.leased != leased:
            raise InvariantError(
                f"{sub.name}: {worker.name} counts {worker.leased} leases and holds {leased}"
            )
    out = sum(worker.leased for worker in sub.workers.values())
    if sub.leased != out:
        raise InvariantError(f"{sub.name}: {sub.leased} leases are counted, {out} are out")
    back = sum(len(leased.unsettled) for leased in sub.leases())
    held = waiting + sub.leased - back
    # Records that failed and were settled at once have left the window before their slice ended.
    if sub.window.records != held:
        raise InvariantError(
            f"{sub.name}: the window counts {sub.window.records} records, {held} are held"
        )


def _assigned(
    sub: Subscription, waiting: list[Record], partitions: Mapping[TopicPartition, PartitionState]
) -> None:
    for record in waiting:
        state = partitions.get(partition_of(record))
        if state is None:
            raise InvariantError(f"{sub.name}: {name_of(record)} is held without assignment")
        if state.received_end is not None and record.offset() >= state.received_end:
            raise InvariantError(
                f"{sub.name}: {name_of(record)} is held, but the received "
                f"end is {state.received_end}"
            )


def _keys_known(sub: Subscription) -> None:
    unrouted = {id(record) for place in (sub.keys, sub.parking) for record in place.waiting()}
    for record in sub.held():
        if id(record) not in unrouted and not sub.keys.knows(record):
            raise InvariantError(
                f"{sub.name}: {name_of(record)} is held and its key is not known any more"
            )


def _below_ceilings(sub: Subscription) -> None:
    """What may settle is below its ceiling, so that the settled set fits in the metadata."""
    parked = {id(record) for record in sub.parking.waiting()}
    every = [
        *(coordinates_of(record) for record in sub.waiting() if id(record) not in parked),
        *(
            leased.slice.came.coordinates_of(index)
            for leased in sub.leases()
            for index in leased.indices()
            if not is_over(sub, leased, index)
        ),
    ]
    for partition, offset in every:
        ceiling = sub.parking.ceilings.get(partition)
        if ceiling is not None and offset >= ceiling:
            raise InvariantError(
                f"{sub.name}: {partition}@{offset} is not parked, but its ceiling is {ceiling}"
            )


def _remembered(sub: Subscription) -> None:
    """Of each record that waits or is leased it is known what it was when it came."""
    for backlog in (sub.keyless, *(worker.row.backlog for worker in sub.workers.values())):
        backlog.check()
    for leased in sub.leases():
        for record in leased.records():
            leased.slice.came.find(record)


def _held_back_for_a_cause(
    sub: Subscription, partitions: Mapping[TopicPartition, PartitionState], holds: Holds
) -> None:
    """Nothing is held back for a cause that is over, or it would never be fetched from again."""
    causes: dict[Reason, Collection[TopicPartition]] = {
        Reason.SET_FULL: sub.parking.parked,
        Reason.UNREAD: sub.keys.unread,
        Reason.BLOCKED: partitions,  # let go of at the next heartbeat only
    }
    for reason, cause in causes.items():
        for partition in holds.held_back_by(reason, sub.name):
            if partition not in cause or partition not in partitions:
                raise InvariantError(f"{sub.name}: {partition} is held back ({reason}): it is not")
    if free := sub.keys.unread.keys() - holds.held_back(Reason.UNREAD):
        raise InvariantError(f"{sub.name}: {min(free)} is fetched from: {Reason.UNREAD}")
    if gone := sub.closing - partitions.keys():
        raise InvariantError(f"{sub.name}: {min(gone)} has gone and is still being given up")


def _closed_lanes_lease_only_their_head(sub: Subscription) -> None:
    """Once its fence has passed, nothing of a closed lane is leased but a head that runs again."""
    closed_now = {
        lane: closed
        for lane, closed in sub.closed.lanes.items()
        if closed.fence_at is None and not is_keyless(lane)
    }
    if not closed_now:
        return
    leased = Counter(
        sub.keys.lane(leased.slice.came[index])
        for leased in sub.leases()
        for index in leased.indices()
    )
    for lane, closed in closed_now.items():
        most = 1 if closed.state is LaneState.RUNNING else 0
        if leased[lane] > most:
            raise InvariantError(
                f"{sub.name}: lane {lane} is {closed.state.value} and has {leased[lane]} leases"
            )


def _keys_at_one_worker(sub: Subscription) -> None:
    """No key is leased to two workers, and what waits in a row is of its slots."""
    at: dict[bytes, str] = {}
    for worker in sub.workers.values():
        keys = {
            key
            for leased in worker.slices.values()
            for index in leased.indices()
            if not is_over(sub, leased, index)
            and (key := sub.keys.key(leased.slice.came[index])) is not None
        }
        for key in keys:
            if (other := at.setdefault(key, worker.name)) != worker.name:
                raise InvariantError(f"{sub.name}: {key!r} is leased to {other} and {worker.name}")
        for record in worker.waiting():
            if sub.keys.key(record) is not None and sub.owner(record) is not worker:
                raise InvariantError(
                    f"{sub.name}: {name_of(record)} waits at {worker.name}, which does not have "
                    "its slot"
                )
        if worker.leased and worker.state is WorkerState.JOINING:
            raise InvariantError(f"{sub.name}: {worker.name} joins and has leases already")
