"""A lane is one key in one topic: its identity, its order, and what a failure in it closes."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.lanes.closed import (
    LANE_TABLE,
    ClosedLane,
    ClosedLanes,
    LaneEvent,
    LaneState,
)
from kafka_keyshared.core.records.lane_identity import is_keyless, lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.workers.worker import merged
from kafka_keyshared.hashing import lane_hash
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import TopicPartition
from tests.setup import states_page
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, colliding_keys, record

FOUR = tuple(f"worker-{index}" for index in range(4))


# --- identity ---


def test_by_default_a_lane_is_one_key_in_one_topic() -> None:
    elsewhere = TopicPartition("payments", 0)
    assert lane_of(record(1, "a", P0)) == lane_of(record(2, "a", P1))
    assert lane_of(record(1, "a", P0)) != lane_of(record(1, "b", P0))
    assert lane_of(record(1, "a", P0)) != lane_of(record(1, "a", elsewhere))


def test_scope_partition_and_scope_subscription_widen_or_narrow_a_lane() -> None:
    elsewhere = TopicPartition("payments", 0)
    assert lane_of(record(1, "a", P0), "partition") != lane_of(record(1, "a", P1), "partition")
    same = lane_of(record(1, "a", P0), "subscription")
    assert same == lane_of(record(1, "a", elsewhere), "subscription")


def test_a_key_of_64_bytes_is_its_own_identity_and_a_longer_one_is_hashed() -> None:
    assert lane_of(record(1, b"k" * 64))[2] == b"k" * 64
    hashed = lane_of(record(1, b"k" * 65))[2]
    assert hashed.endswith(lane_hash(b"k" * 65))
    assert hashed != lane_of(record(1, b"k" * 66))[2]


def test_no_short_key_can_pass_for_a_hashed_long_one() -> None:
    hashed = lane_of(record(1, b"long" * 40))[2]
    assert len(hashed) > 64
    assert lane_of(record(1, b"\x00hash:" + lane_hash(b"long" * 40)))[2] != hashed


def test_each_null_key_is_a_lane_of_its_own_and_the_empty_key_an_ordinary_one() -> None:
    assert lane_of(record(1, None)) != lane_of(record(2, None))
    assert lane_of(record(1, None)) != lane_of(record(1, None, P1))
    assert is_keyless(lane_of(record(1, None)))
    assert not is_keyless(lane_of(record(1, b"")))
    assert lane_of(record(1, b"")) == lane_of(record(2, b""))


# --- the closed lanes ---


def closed_lane(key: str) -> ClosedLane:
    head = record(1, key)
    return ClosedLane(lane_of(head), head.key(), LaneState.WAITING, head, P0)


def test_closed_lanes_wake_in_the_order_of_their_times_and_once() -> None:
    lanes = ClosedLanes()
    late, early, never = closed_lane("late"), closed_lane("early"), closed_lane("never")
    for each in (late, early, never):
        lanes.close(each)
    lanes.wake_at(late, 9.0)
    lanes.wake_at(early, 1.0)
    lanes.wake_at(early, 3.0)  # replaces the first appointment
    assert lanes.next_due() == 3.0
    assert lanes.pop_due(2.9, most=9) == []
    assert lanes.pop_due(9.0, most=9) == [early, late]
    assert lanes.next_due() is None
    assert (early.due, late.due) == (None, None)


def test_opening_a_lane_forgets_its_key_and_its_appointment() -> None:
    lanes = ClosedLanes()
    first, second = closed_lane("k"), closed_lane("k")
    second.lane = ("other", -1, b"k", -1)
    lanes.close(first)
    lanes.close(second)
    lanes.wake_at(first, 1.0)
    lanes.open(first)
    assert lanes.keys == {b"k": 1}
    assert lanes.next_due() is None
    lanes.open(second)
    assert (lanes.keys, len(lanes)) == ({}, 0)


# --- order through a failure ---


def test_nothing_of_a_lane_starts_before_its_failed_record_is_settled() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[record(offset) for offset in range(5)])
    assert harness.work({1: [ERROR]}) == [0, 1]
    harness.fetch(record(5))
    assert harness.work() == []
    harness.later(0.2)
    assert harness.work() == [1, 2, 3, 4, 5]
    assert harness.committed() == (6, [])


def test_other_lanes_go_on_while_one_is_closed() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(6)])
    assert harness.work({0: [ERROR]}) == [0, 1, 3, 5]
    assert harness.committed() == (0, [(1, 2), (3, 4), (5, 6)])


def test_what_was_set_aside_goes_before_what_was_recalled_and_that_before_what_was_queued() -> None:
    harness = Harness(SubscriptionSettings(prefetch_records=8))
    harness.assign(P0, P1)
    worker = harness.worker()
    harness.fetch(*[record(offset) for offset in range(10)])  # two slices of four, two wait
    assert worker.start() is not None
    worker.finish(ERROR)
    worker.step()  # 1 is set aside
    harness.recall()  # 2 to 7 come back before the failure is known
    harness.fetch(record(10))
    harness.deliver()
    harness.later(0.2)
    assert harness.work() == list(range(11))


def test_what_two_slices_give_back_to_a_closed_lane_stays_in_order() -> None:
    harness = Harness(SubscriptionSettings(prefetch_records=8))
    harness.assign()
    worker = harness.worker()
    harness.fetch(*[record(offset) for offset in range(8)])
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    harness.recall()
    harness.work()
    harness.later(0.2)
    assert harness.work() == list(range(8))


def test_of_two_keys_in_one_slot_a_failure_closes_only_its_own_lane() -> None:
    bad, good = colliding_keys()
    harness = Harness(SubscriptionSettings(workers=FOUR))
    harness.assign()
    assert harness.owner_of(record(0, bad)) is harness.owner_of(record(0, good))
    harness.fetch(record(0, bad), record(1, good), record(2, bad), record(3, good))
    assert harness.work({0: [ERROR]}) == [0, 1, 3]
    harness.later(0.2)
    assert harness.work() == [0, 2]


def test_a_retry_runs_before_newer_records_of_its_key_and_a_worker_is_free_meanwhile() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0, "bad"))
    harness.work({0: [ERROR]})
    harness.fetch(record(1, "good"), record(2, "bad"), record(3, "good"))
    assert harness.work() == [1, 3]
    harness.later(0.2)
    assert harness.work() == [0, 2]


def test_one_key_in_two_topics_is_two_lanes_and_a_failure_closes_one() -> None:
    payments = TopicPartition("payments", 0)
    harness = Harness()
    harness.assign(P0, payments)
    harness.fetch(record(0, "k"), record(10, "k", payments), record(1, "k"))
    assert harness.work({0: [ERROR]}) == [0, 10]


# --- null keys ---


def test_null_keys_spread_over_the_least_loaded_workers() -> None:
    harness = Harness(SubscriptionSettings(workers=FOUR))
    harness.assign()
    loaded = harness.owner_of(record(0, "k"))
    harness.fetch(*[record(offset, "k") for offset in range(3)])
    harness.fetch(*[record(offset, None) for offset in range(3, 12)])
    counts = {place[1]: worker for place, worker in harness.pool.workers.items()}
    shares = {
        index: sum(r.key() is None for slice_ in worker.slices() for r in slice_.records)
        for index, worker in counts.items()
    }
    assert sum(shares.values()) == 9
    assert all(shares[index] >= shares[loaded.index] for index in shares)
    assert max(shares.values()) <= 3


def test_a_record_without_a_key_stands_before_what_is_later_in_its_partition() -> None:
    keyed = [record(0), record(5), record(1, at=P1)]
    keyless = [record(2, None), record(9, None), record(0, None, at=P1)]
    found = [(each.partition(), each.offset()) for each in merged(keyed, keyless)]
    assert found == [(0, 0), (0, 2), (0, 5), (1, 0), (1, 1), (0, 9)]


def test_a_null_key_that_fails_holds_up_no_other_null_key() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*[record(offset, None) for offset in range(4)])
    assert harness.work({1: [ERROR]}) == [0, 1, 2, 3]
    assert harness.committed() == (1, [(2, 4)])
    harness.later(0.2)
    assert harness.work() == [1]
    assert harness.committed() == (4, [])


def test_a_null_key_keeps_its_attempts_when_its_retry_outruns_the_slice_it_failed_in() -> None:
    retry = RetryPolicy(attempts=3, backoff=0.0)
    harness = Harness(SubscriptionSettings(on_exhausted="drop", retry=retry))
    harness.assign()
    worker = harness.worker()
    harness.fetch(record(0, None), record(1, None))
    harness.work({0: [ERROR], 1: [ERROR]})
    harness.later(0.0)  # both retries go out in one slice
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    harness.later(0.0)  # the next retry goes out before that slice has ended
    assert harness.work({0: [ERROR]}) == [1, 0]
    harness.later(0.0)
    assert harness.work() == []
    assert harness.sub().counts.dropped == 1


# --- one lease per key ---


@pytest.mark.parametrize("verdicts", [{}, {1: [ERROR]}])
def test_with_one_lease_per_key_a_worker_never_holds_two_records_of_a_lane(
    verdicts: dict[int, list[Ending]],
) -> None:
    harness = Harness(SubscriptionSettings(one_in_flight_per_key=True))
    harness.assign()
    harness.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(8)])
    held = [each.key() for slice_ in harness.worker().slices() for each in slice_.records]
    assert sorted(held) == [b"a", b"b"]
    started = harness.work(verdicts)
    harness.later(0.2)
    started += harness.work()
    assert [offset for offset in started if offset % 2 == 0] == [0, 2, 4, 6]
    assert sorted(set(started)) == list(range(8))
    assert harness.committed() == (8, [])


def test_with_one_lease_per_key_a_recall_gives_the_lane_back_in_order() -> None:
    harness = Harness(SubscriptionSettings(one_in_flight_per_key=True))
    harness.assign()
    harness.fetch(*[record(offset, "ab"[offset % 2]) for offset in range(6)])
    harness.recall()
    started = harness.work()
    assert [offset for offset in started if offset % 2] == [1, 3, 5]
    assert [offset for offset in started if not offset % 2] == [0, 2, 4]


def test_a_lease_given_up_at_a_revoke_lets_nothing_from_the_backlog_past_its_lane() -> None:
    """Found by the adversary: what waited behind the record went behind the backlog instead."""
    harness = Harness(SubscriptionSettings(one_in_flight_per_key=True, prefetch_records=2))
    harness.assign(P0, P1)
    harness.fetch(record(6, "a", P1))
    harness.fetch(record(10, "a", P0), record(13, "a", P1))  # both wait for the lane's lease
    harness.fetch(record(1, "b", P0))
    harness.fetch(record(17, "a", P1))  # and this in the backlog, for there is no room
    worker = harness.worker()
    for offset in (6, 1):
        running = worker.start()
        assert running is not None
        assert running.offset() == offset
        if offset == 6:
            worker.finish()
    harness.tell(ev.Revoking([P0]))
    harness.deliver()
    worker.finish()
    harness.tell(ev.Forget([P0]))
    assert harness.work() == [13, 17]


# --- the table of states ---


def test_from_every_state_a_lane_opens_when_its_head_goes_but_a_diverted_one_stays_so() -> None:
    follows = {state: row.get(LaneEvent.FORGOTTEN) for state, row in LANE_TABLE.items()}
    assert follows.pop(LaneState.OPENING) is None  # it has no head
    assert follows.pop(LaneState.DIVERTING) is LaneState.DIVERTED
    assert set(follows.values()) == {LaneState.OPENING}
    assert LANE_TABLE[LaneState.OPENING] == {}


def test_the_table_of_the_page_is_the_one_that_the_core_goes_by() -> None:
    text = states_page.PAGE.read_text(encoding="utf-8")
    assert states_page.updated(text) == text, "run: make docs"
    assert states_page.updated(text.replace("| BLOCKED |", "| BLACK |", 1)) == text
