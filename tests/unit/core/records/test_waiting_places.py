"""A place where records wait is found by everything that has to see all that is held."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from kafka_keyshared.core.records.backlog import WaitingPlace, without
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition
from tests.support.core_harness import Harness
from tests.support.records import P0, P1, record


class Shelf:
    """A place that no rule of the package has: records lie on it until somebody takes them."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def waiting(self) -> Iterator[Record]:
        yield from self.records

    def empty(self) -> bool:
        return not self.records

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        self.records = without(self.records, partitions)


def shelved(*records: Record, prefetch_records: int = 1) -> tuple[Harness, Shelf]:
    """The first record is leased, all others lie on the shelf."""
    harness = Harness(
        SubscriptionSettings(workers=("worker-0",), prefetch_records=prefetch_records)
    )
    harness.assign(P0, P1)
    shelf = Shelf()
    sub = harness.sub()
    sub.routing.places.append(shelf)
    harness.fetch(*records)
    backlog = sub.workers[0].row.backlog
    shelf.records, _ = backlog.take(len(backlog))
    assert shelf.records
    return harness, shelf


def on_two_partitions() -> list[Record]:
    return [record(0, "a"), record(1, "b"), record(0, "c", P1)]


def test_what_lies_there_is_held_and_waits() -> None:
    harness, shelf = shelved(*on_two_partitions())
    sub = harness.sub()
    for each in shelf.records:
        assert any(each is one for one in sub.unsettled.waiting())
        assert any(each is one for one in sub.unsettled.held())
    harness.core.check()


def test_the_position_does_not_pass_it() -> None:
    harness, _ = shelved(*on_two_partitions())
    harness.work({})
    (commit,) = harness.commit()
    assert {each: entry.position for each, entry in commit.entries.items()} == {P0: 1}


def test_it_goes_with_its_partition_and_with_no_other() -> None:
    harness, shelf = shelved(*on_two_partitions())
    harness.revoke(P1)
    assert [each.offset() for each in shelf.records] == [1]
    harness.core.check()
    harness.revoke(P0)
    assert shelf.empty()
    harness.core.check()
    assert harness.core.unsettled_count() == 0


def test_the_oldest_record_is_no_longer_a_matter_of_the_backlogs() -> None:
    harness, shelf = shelved(*on_two_partitions())
    assert not harness.sub().unsettled.in_arrival_order()
    shelf.records.clear()
    assert harness.sub().unsettled.in_arrival_order()


def test_the_checks_see_what_lies_there_twice_or_is_not_counted() -> None:
    harness, shelf = shelved(*on_two_partitions())
    shelf.records.append(shelf.records[0])
    with pytest.raises(InvariantError, match="orders-0@1 is held twice"):
        harness.core.check()
    shelf.records[:] = shelf.records[:1]
    with pytest.raises(InvariantError, match="the window counts 3 records, 2 are held"):
        harness.core.check()


@pytest.mark.parametrize("one_lease", [False, True])
def test_whatever_a_subscription_has_that_holds_records_is_registered(one_lease: bool) -> None:
    sub = Harness(SubscriptionSettings(one_in_flight_per_key=one_lease)).sub()
    workers = sub.workers.values()
    parts = [*vars(sub).values(), *(part for each in workers for part in vars(each).values())]
    parts += sub.unowned.rows
    names = [name for name in vars(WaitingPlace) if not name.startswith("_")]
    assert set(names) == {"waiting", "empty", "forget"}
    places = [each for each in parts if all(hasattr(each, name) for name in names)]
    assert len(places) == (11 if one_lease else 10)
    assert {id(each) for each in places} == {id(each) for each in sub.routing.places}


def test_what_waits_for_the_end_of_a_lease_is_held_and_goes_with_its_partition() -> None:
    harness = Harness(SubscriptionSettings(one_in_flight_per_key=True))
    harness.assign(P0, P1)
    harness.fetch(record(0, "a"), record(1, "a"), record(0, "a", P1))
    harness.worker().start()
    assert [each.offset() for each in harness.sub().unsettled.waiting()] == [1, 0]
    assert harness.committed()[0] == 0
    harness.revoke(P1)
    assert [each.offset() for each in harness.sub().unsettled.waiting()] == [1]
