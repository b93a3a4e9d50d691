"""The rules that must hold between any two events, checked from scratch.

With ``check_invariants`` they run at every heartbeat; tests run them after every event. They cost a
walk over everything held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kafka_keyshared.core.lanes import LaneState, is_keyless
from kafka_keyshared.core.offsets import PartitionState
from kafka_keyshared.core.originals import place_of
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition, name_of, partition_of


def check_subscription(
    sub: Subscription, partitions: Mapping[TopicPartition, PartitionState]
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


def _each_once(sub: Subscription, waiting: list[Record]) -> None:
    seen: set[tuple[TopicPartition, int]] = set()
    for record in waiting:
        place = place_of(record)
        if place in seen:
            raise InvariantError(f"{sub.name}: {place[0]}@{place[1]} is held twice")
        seen.add(place)


def _counted(sub: Subscription, waiting: int) -> None:
    for worker in sub.workers:
        leased = sum(len(share.records) for share in worker.slices)
        if worker.leased != leased:
            raise InvariantError(
                f"{sub.name}: {worker.name} counts {worker.leased} leases and holds {leased}"
            )
    back = sum(len(share.unsettled) for worker in sub.workers for share in worker.slices)
    held = waiting + sub.leased() - back
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
    places = [
        *(place_of(record) for record in sub.waiting() if id(record) not in parked),
        *(
            place
            for worker in sub.workers
            for share in worker.slices
            for index in range(len(share.records))
            if (place := share.came.place_of(index)) not in share.stale
        ),
    ]
    for partition, offset in places:
        ceiling = sub.parking.ceilings.get(partition)
        if ceiling is not None and offset >= ceiling:
            raise InvariantError(
                f"{sub.name}: {partition}@{offset} is not parked, but its ceiling is {ceiling}"
            )


def _remembered(sub: Subscription) -> None:
    """Of each record that waits or is leased it is known what it was when it came."""
    for backlog in (sub.keyless, *(worker.backlog for worker in sub.workers)):
        backlog.check()
    for worker in sub.workers:
        for share in worker.slices:
            for record in share.records:
                share.came.find(record)


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
        sub.keys.lane(share.came[index])
        for worker in sub.workers
        for share in worker.slices
        for index in range(len(share.records))
    )
    for lane, closed in closed_now.items():
        most = 1 if closed.state is LaneState.RUNNING else 0
        if leased[lane] > most:
            raise InvariantError(
                f"{sub.name}: lane {lane} is {closed.state.value} and has {leased[lane]} leases"
            )
