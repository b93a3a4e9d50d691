"""Fairness and work conservation, over histories told by hand: what is found, and what is not."""

from __future__ import annotations

import itertools
from typing import Any

from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.member_events import WorkerLeft, WorkersResized
from tests.simulation.told import SUB, Told
from tests.simulation.watched import assert_found, assert_right

IDLE = "WorkConservation", "worker 1 of 'default' has had nothing since"


def settings(workers: int = 2, **chosen: Any) -> SubscriptionSettings:
    return SubscriptionSettings(workers=worker_names(workers), pooled=True, **chosen)


def received(told: Told, *keys: str | None) -> Told:
    """A record of each key, which member 1 has received."""
    told.write(*keys)
    told.join(1)
    told.assign(1)
    told.deliver(1, *range(len(keys)))
    return told


def busy_and_idle(told: Told) -> Told:
    """The first worker runs a record, the second one has nothing, and a record waits."""
    received(told, "a", "b")
    told.hand(1, 0)
    told.begin(1, 0)
    return told


def late(told: Told, seconds: float = 0.06) -> None:
    """Hand over the record that waits, so much later."""
    told.later(seconds)
    told.hand(1, 1, worker=1)


# --- work conservation ---


def test_a_worker_that_has_nothing_while_a_record_waits_is_found() -> None:
    assert_found(*IDLE, lambda told: late(busy_and_idle(told)), settings())


def test_a_record_that_is_handed_over_soon_is_right() -> None:
    assert_right(lambda told: late(busy_and_idle(told), 0.04), settings())


def test_where_workers_have_keys_of_their_own_one_may_be_idle() -> None:
    assert_right(
        lambda told: late(busy_and_idle(told)), SubscriptionSettings(workers=worker_names(2))
    )


def test_no_worker_is_idle_that_died_left_or_is_to_go() -> None:
    for away in (
        happened.WorkerDied(1, SUB, 1),
        WorkerLeft(1, SUB, 1),
        WorkersResized(1, SUB, ("worker-0",)),
        happened.Recalling(1, SUB, 1),
    ):

        def story(told: Told, away: object = away) -> None:
            busy_and_idle(told).tell(away)
            late(told)

        assert_right(story, settings())


def test_a_worker_that_was_asked_is_idle_from_its_answer_on() -> None:
    def story(told: Told, after: float = 0.04) -> None:
        busy_and_idle(told).tell(happened.Recalling(1, SUB, 1))
        told.later(0.1)
        told.tell(happened.RecallAnswered(1, SUB, 1))
        late(told, after)

    assert_right(story, settings())
    assert_found(*IDLE, lambda told: story(told, 0.06), settings())


def in_the_shard_of(key: str) -> str:
    """Another key of the same shard."""
    slot, shards = settings().keys().slot, settings().shard_count
    number = slot(key.encode()) * shards // SLOTS
    names = (f"key-{at}" for at in itertools.count())
    return next(name for name in names if slot(name.encode()) * shards // SLOTS == number)


def behind_a_batch(told: Told, *batch: int, after: float) -> None:
    """A record waits for its shard, of which the first worker has a batch and runs a record."""
    received(told, "a", in_the_shard_of("a"), "a")
    told.hand(1, *batch)
    told.begin(1, 0)
    told.later(after)
    told.hand(1, 1, worker=1)


def test_a_record_whose_shard_another_worker_has_does_not_count() -> None:
    assert_right(lambda told: behind_a_batch(told, 0, 2, after=0.6), settings())


def test_what_follows_a_record_that_runs_for_long_goes_to_others() -> None:
    assert_right(lambda told: behind_a_batch(told, 0, after=0.39), settings())
    assert_found(*IDLE, lambda told: behind_a_batch(told, 0, after=0.41), settings())


def test_a_lane_in_which_a_record_has_failed_does_not_count() -> None:
    def story(told: Told) -> None:
        received(told, "a", "a")
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0, "failed")
        told.later(1.0)
        told.hand(1, 0)
        told.begin(1, 0)
        told.end(1, 0)
        told.later(0.06)
        told.hand(1, 1)

    assert_right(story, settings())


# --- fairness ---


def passed(told: Told, batches: int) -> None:
    """A record of one key waits while a worker is handed so many batches of another one."""
    received(told, "b", *["a"] * batches)
    told.later(0.001)
    told.run(1, *range(1, batches + 1))
    told.hand(1, 0, worker=0)


def test_a_shard_that_is_passed_by_more_batches_than_there_are_shards_is_found() -> None:
    # One other shard, and two batches at each of two workers.
    assert_right(lambda told: passed(told, 5), settings())
    assert_found("Fairness", "passed by 6 batches", lambda told: passed(told, 6), settings())


def test_more_workers_hold_more_batches_of_which_the_owner_has_not_heard() -> None:
    assert_right(lambda told: passed(told, 7), settings(3))
    assert_found("Fairness", "passed by 8 batches", lambda told: passed(told, 8), settings(3))


def test_subscriptions_in_which_records_may_pass_others_are_left_out() -> None:
    for chosen in (
        {"individually": True},
        {"one_in_flight_per_key": True},
        {"prefetch_bytes": 100},
    ):
        assert_right(lambda told: passed(told, 20), settings(**chosen))
