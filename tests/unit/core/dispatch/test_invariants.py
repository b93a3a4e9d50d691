"""Each rule that the core checks on itself finds a planted fault, and none where there is none."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from kafka_keyshared.core.contract.events import Assigned, Fetched, LeaseDue, StartPoint, Tick
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.keys.extraction import DerivedKeys
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.model import Record, TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, record


@pytest.fixture
def harness() -> Harness:
    """One running record, one leased, one in a backlog, one lane waiting for a retry."""
    made = Harness(SubscriptionSettings(prefetch_records=2))
    made.assign(P0)
    made.fetch(record(0, "bad"))
    made.work({0: [ERROR]})
    made.fetch(record(1), record(2), record(3), record(4, "bad"))
    made.worker().start()
    made.core.check()
    return made


def test_a_record_that_is_held_twice_is_found(harness: Harness) -> None:
    sub = harness.sub()
    sub.workers[0].row.backlog.extend(sub.workers[0].row.backlog.records[:1])
    with pytest.raises(InvariantError, match=r"orders-0@\d is held twice"):
        harness.core.check()


def test_a_record_in_a_closed_lane_and_in_a_backlog_is_found(harness: Harness) -> None:
    closed = harness.sub().closed.get(lane_of(record(0, "bad")))
    assert closed is not None
    assert closed.head is not None
    harness.sub().workers[0].row.front.append(closed.head)
    with pytest.raises(InvariantError, match="orders-0@0 is held twice"):
        harness.core.check()


def test_a_lease_that_is_not_counted_is_found(harness: Harness) -> None:
    harness.sub().workers[0].leased -= 1
    with pytest.raises(InvariantError, match="worker-0 counts 1 leases and holds 2"):
        harness.core.check()


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_window_that_counts_wrong_is_found(harness: Harness, wrong: int) -> None:
    harness.sub().window.records += wrong
    with pytest.raises(InvariantError, match="the window counts"):
        harness.core.check()


def test_a_record_that_fell_out_of_every_queue_is_found(harness: Harness) -> None:
    harness.sub().workers[0].row.backlog.take(1)
    with pytest.raises(InvariantError, match=r"the window counts 5 records, 4 are held"):
        harness.core.check()


def test_a_record_without_an_assignment_is_found(harness: Harness) -> None:
    harness.sub().workers[0].row.backlog.records[-1] = record(3, at=P1)
    with pytest.raises(InvariantError, match="orders-1@3 is held without assignment"):
        harness.core.check()


def test_a_record_at_or_beyond_the_received_end_is_found(harness: Harness) -> None:
    harness.core.partitions[P0].received_end = 4
    with pytest.raises(InvariantError, match=r"orders-0@4 is held, but the received end is 4"):
        harness.core.check()


@pytest.mark.parametrize("ceiling", [3, 4])
def test_a_record_that_waits_beyond_its_ceiling_is_found(harness: Harness, ceiling: int) -> None:
    harness.sub().parking.ceilings[P0] = ceiling
    said = f"orders-0@{ceiling} is not parked, but its ceiling is {ceiling}"
    with pytest.raises(InvariantError, match=said):
        harness.core.check()


def test_a_record_of_which_nobody_knows_what_it_was_is_found(harness: Harness) -> None:
    backlog = harness.sub().workers[0].row.backlog
    backlog.records[-1] = record(backlog.records[-1].offset())
    with pytest.raises(InvariantError, match="the original of orders-0@"):
        harness.core.check()


def test_a_record_that_came_in_no_chunk_is_found(harness: Harness) -> None:
    harness.sub().workers[0].row.backlog.records.append(record(9))
    with pytest.raises(InvariantError, match="3 records wait, and 2 came in chunks"):
        harness.sub().workers[0].row.backlog.check()


def test_a_derived_key_that_was_forgotten_is_found() -> None:
    made = Harness(SubscriptionSettings(key_of=lambda item: item.key()))
    made.assign(P0)
    made.fetch(record(0), record(1))
    keys = made.sub().keys
    assert isinstance(keys, DerivedKeys)
    keys._kept._columns.clear()
    with pytest.raises(InvariantError, match=r"orders-0@\d is held and its key is not known"):
        made.core.check()


def test_a_closed_lane_of_which_something_is_leased_is_found(harness: Harness) -> None:
    closed = harness.sub().closed.get(lane_of(record(0, "bad")))
    assert closed is not None
    harness.sub().closed.open(closed)
    closed.lane = lane_of(record(1))
    closed.state = LaneState.WAITING
    harness.sub().closed.close(closed)
    with pytest.raises(InvariantError, match="is waiting and has 2 leases"):
        harness.core.check()


def test_a_lane_that_was_closed_by_nothing_is_not_blamed_while_its_fence_is_pending() -> None:
    harness = Harness()
    harness.assign(P0)
    harness.fetch(record(0), record(1))
    harness.worker().start()
    harness.worker().finish(ERROR)
    harness.deliver()  # two leases of a closed lane, and the fence behind them
    harness.core.check()
    assert len(harness.sub().closed) == 1


def test_a_received_end_for_a_partition_that_is_not_assigned_is_refused(harness: Harness) -> None:
    with pytest.raises(InvariantError, match="without being assigned"):
        harness.tell(Fetched([], {P1: 3}))


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_subscriptions_need_names_of_their_own(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="each with its own name"):
        Dispatcher([SubscriptionSettings(name) for name in names])


@pytest.mark.parametrize("checked", [False, True])
def test_a_heartbeat_ends_with_the_checks_where_they_were_asked_for(checked: bool) -> None:
    core = Dispatcher([SubscriptionSettings()], check_invariants=checked)
    core.handle(Assigned({P0: StartPoint(0)}), 0.0)
    core.handle(Fetched([record(0)], {P0: 1}), 0.0)
    core.handle(Tick({}), 0.5)
    core.subscriptions["default"].window.records += 1
    if not checked:
        core.handle(Tick({}), 1.0)
        return
    with pytest.raises(InvariantError, match="the window counts 2 records, 1 are held"):
        core.handle(Tick({}), 1.0)


def test_a_record_without_a_key_that_is_granted_a_lease_waits_at_any_worker() -> None:
    """It is in no slot: it is no fault that another worker would be given it now."""
    settings = SubscriptionSettings(
        workers=("worker-0", "worker-1"), prefetch_records=2, one_in_flight_per_key=True
    )
    made = Harness(settings)
    made.assign(P0)
    made.fetch(record(0, None), record(1, None))
    running = [worker.start() for worker in made.pool.workers.values()]
    assert [each and each.offset() for each in running] == [0, 1]
    made.revoke(P0)
    made.assign(P0)
    made.fetch(*(record(offset, None) for offset in range(9)))
    made.tell(LeaseDue())  # and both have all that they may
    made.worker(1).finish()
    made.worker(1).step()  # of before: the lane's lease goes to the record that is here now
    made.deliver()
    (granted,) = made.sub().workers[1].row.granted
    assert granted[1].offset() == 1
    assert made.sub().routing.owner(granted[1]) is made.sub().workers[0]
    made.worker(0).finish()
    assert sorted(made.work()) == list(range(9))
    assert made.committed() == (9, [])


class Counted:
    """A place of one record that counts how often it is asked for it."""

    def __init__(self, offset: int) -> None:
        self.item = record(offset)
        self.asked = 0

    def waiting(self) -> Iterator[Record]:
        self.asked += 1
        yield self.item

    def empty(self) -> bool:
        return False

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing of it is ever forgotten."""


def test_a_place_is_walked_once_for_all_rules(harness: Harness) -> None:
    """However much waits there: an instance that checks itself has other things to do."""
    place = Counted(5)
    harness.core.partitions[P0].received_end = 6
    harness.sub().routing.places.append(place)
    harness.sub().window.records += 1
    harness.core.check()
    assert place.asked == 1
    place.item = record(6)
    with pytest.raises(InvariantError, match="orders-0@6 is held, but the received end is 6"):
        harness.core.check()
