"""What is settled without its handler is told, and told before what comes next may run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract.events import AssignRange, LaneAction, LaneOrder
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record, Undecodable
from tests.support.core_harness import Harness
from tests.support.records import ERROR, record


def fetched(count: int = 3, **settings: object) -> Harness:
    """A member with one try for each record of one key."""
    wanted = {"retry": RetryPolicy(attempts=1), **settings}
    harness = Harness(SubscriptionSettings(**wanted))  # type: ignore[arg-type]
    harness.assign()
    harness.fetch(*(record(offset, "a") for offset in range(count)))
    return harness


def by_policy() -> Harness:
    harness = fetched(on_exhausted="drop")
    harness.work({0: [ERROR]})
    return harness


def by_order() -> Harness:
    harness = fetched(on_exhausted="block")
    harness.work({0: [ERROR]})
    harness.tell(LaneOrder("default", LaneAction.DROP, b"a"))
    return harness


def by_order_with_a_copy_that_is_there_already() -> Harness:
    harness = fetched(on_exhausted="block_and_dlq", dlq=True)
    harness.work({0: [ERROR]})
    harness.dead_letter()
    assert told(harness) == []
    harness.tell(LaneOrder("default", LaneAction.DEAD_LETTER, b"a"))
    return harness


def because_its_key_cannot_be_read() -> Harness:
    def key_of(each: Record) -> bytes | None:
        if each.offset() == 0:
            raise Undecodable("broken on purpose")
        return b"a"

    return fetched(key_of=key_of, undecodable="drop")


def because_nobody_takes_it() -> Harness:
    routing = RoutingSettings("sticky", {"A": [(0, SLOTS - 1)]}, {}, {}, "skip")
    harness = fetched(1, workers=("A",), routing=routing)
    harness.recall()
    harness.tell(AssignRange("default", 0, SLOTS - 1, None, True))
    harness.work()
    return harness


def with_its_worker() -> Harness:
    harness = fetched(2, workers=("A", "B"), on_evict="ack")
    owner = harness.owner_of(record(0, "a"))
    assert owner.start() is not None
    owner.finish()
    owner.start()
    harness.fetch(record(2, "a"))
    owner.die()
    harness.pool.replaceable = False
    harness.beat(EVICT_AFTER)
    harness.deliver()
    return harness


def because_its_worker_is_full() -> Harness:
    harness = fetched(0, delivery="at-most-once", prefetch_records=2, workers=("A",))
    harness.fetch(*(record(offset, "a") for offset in range(3)))
    return harness


def told(harness: Harness) -> list[int]:
    """The offsets that the core has told of, by now."""
    commands = [each for each in harness.seen if isinstance(each, cmd.RecordsDropped)]
    return [each.offset() for command in commands for each in command.records]


@pytest.mark.parametrize(
    ("made", "offsets"),
    [
        (by_policy, [0]),
        (by_order, [0]),
        (by_order_with_a_copy_that_is_there_already, [0]),
        (because_its_key_cannot_be_read, [0]),
        (because_nobody_takes_it, [0]),
        (with_its_worker, [2]),
        (because_its_worker_is_full, [2]),
    ],
)
def test_each_is_told_once(made: Callable[[], Harness], offsets: list[int]) -> None:
    harness = made()
    assert told(harness) == offsets
    harness.beat(3)
    harness.work()
    assert told(harness) == offsets


def test_it_is_told_before_the_next_of_its_key_is_given_to_a_worker() -> None:
    harness = fetched(on_exhausted="block")
    harness.work({0: [ERROR]})
    before = len(harness.seen)
    harness.tell(LaneOrder("default", LaneAction.DROP, b"a"))
    wanted = (cmd.RecordsDropped, cmd.LeaseSlice)
    assert [type(each) for each in harness.seen[before:] if isinstance(each, wanted)] == [*wanted]


def test_what_has_run_or_has_a_letter_is_not_told() -> None:
    harness = fetched(on_exhausted="dead_letter", dlq=True)
    harness.work({0: [ERROR]})
    harness.dead_letter()
    assert harness.work() == [1, 2]
    assert told(harness) == []
