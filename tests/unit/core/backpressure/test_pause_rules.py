"""Single partitions are held back: commit metadata that fills up, lanes that stay blocked."""

from __future__ import annotations

from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit import CutSets
from kafka_keyshared.core.offsets.commit_metadata import Encoded
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.notice_text import line_of
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, FakeRecord, record

BUDGET = 60
"""Characters: a bitmap of some two hundred offsets."""


def crowded(*, window: int = 4_000) -> Harness:
    """P0 has a stuck record at 0 and far more behind it than its set can say."""
    harness = Harness(SubscriptionSettings(window_records=window), set_budget=BUDGET)
    harness.assign(P0, P1)
    harness.fetch(record(0, "stuck"))
    assert harness.worker().start() is not None
    harness.fetch(*[record(offset, str(offset)) for offset in range(1, 1_000)])
    return harness


# --- commit metadata ---


def test_a_partition_with_much_parked_is_not_fetched_from_until_little_is_left() -> None:
    harness = crowded()
    ceiling = harness.sub().parking.ceilings[P0]
    assert 200 < ceiling < 400
    assert harness.paused == {P0}
    assert harness.said("orders-0: its settled set has no room for more in the commit metadata")
    harness.fetch(record(0, "other", P1))
    harness.worker().finish()
    started = harness.work()
    for _ in range(20):
        harness.later(0.1)
        started += harness.work()
    assert sorted(started) == sorted([*range(1, 1_000), 0])
    assert harness.paused == set()


def test_a_little_that_is_parked_does_not_stop_the_fetching() -> None:
    harness = crowded(window=40_000)
    assert harness.sub().parking
    assert harness.paused == set()


def test_a_few_that_are_parked_and_large_stop_the_fetching_too() -> None:
    harness = Harness(SubscriptionSettings(window_bytes=400_000), set_budget=BUDGET)
    harness.assign(P0, P1)
    harness.fetch(record(0, "stuck"))
    assert harness.worker().start() is not None
    harness.fetch(*[record(offset, str(offset)) for offset in range(1, 400)])
    assert harness.sub().parking
    assert harness.paused == set()
    large = [FakeRecord(P0, offset, b"large", size=10_000) for offset in range(400, 420)]
    harness.fetch(*large[:4])
    assert harness.paused == set(), "less than an eighth of the bytes"
    harness.fetch(*large[4:6])
    assert harness.paused == {P0}
    assert harness.core.room() > 0, "others have room"
    harness.worker().finish()
    for _ in range(20):
        harness.work()
        harness.later(0.1)
    assert harness.paused == set()
    harness.revoke(P0, P1)


def test_a_partition_that_goes_leaves_nothing_parked_and_no_hold() -> None:
    harness = crowded()
    assert harness.paused == {P0}
    harness.revoke(P0)
    assert not harness.sub().parking
    assert harness.paused == set()
    assert harness.core.unsettled_count() == 1  # the one that runs, of an epoch that is over


def test_a_set_that_does_not_fit_is_said_once_until_it_fits_again() -> None:
    cut, whole = Encoded("text", truncated=("default",)), Encoded("text")
    watched = CutSets()
    (notice,) = watched.note({P0: cut, P1: whole})
    assert "orders-0: the settled set does not fit in the commit metadata" in line_of(notice).text
    assert watched.note({P0: cut}) == []
    assert watched.note({P0: whole}) == []
    assert len(watched.note({P0: cut})) == 1
    watched.forget([P0])
    assert len(watched.note({P0: cut})) == 1


# --- blocked lanes ---


def blocking(window: int = 40) -> Harness:
    settings = SubscriptionSettings(window_records=window, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(record(0, "bad"), record(0, "good", P1))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.work()
    return harness


def test_a_quarter_of_the_window_behind_blocked_lanes_stops_that_partition_only() -> None:
    harness = blocking()
    harness.fetch(*[record(offset, "bad") for offset in range(1, 9)])
    assert harness.paused == set()
    harness.later(0.1)
    harness.fetch(record(9, "bad"), record(1, "good", P1))
    assert harness.paused == {P0}
    assert harness.said(
        "orders-0 is stopped: records behind blocked, diverted or stuck keys fill their part"
    )
    assert harness.said("b'bad'")
    assert harness.work() == [1]


def test_what_was_leased_behind_the_blocked_record_counts_too() -> None:
    settings = SubscriptionSettings(window_records=40, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, "bad") for offset in range(12)])
    harness.work({0: [ERROR]})
    assert harness.paused == {P0}


def test_what_is_recalled_to_a_blocked_lane_counts_too() -> None:
    settings = SubscriptionSettings(window_records=40, retry=RetryPolicy(attempts=1))
    harness = Harness(settings)
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, "bad") for offset in range(12)])
    harness.worker().start()
    harness.worker().finish(ERROR)
    harness.deliver()
    harness.recall()
    harness.beat()
    assert harness.paused == {P0}


def test_one_poison_record_does_not_stop_a_partition_for_what_another_one_holds() -> None:
    harness = blocking()
    harness.fetch(*[record(offset, "bad") for offset in range(1, 20)])
    assert harness.paused == {P0}
    harness.fetch(record(1, "worse", P1))
    harness.work({1: [ERROR]})
    harness.fetch(*[record(offset, "good", P1) for offset in range(2, 5)])
    assert harness.paused == {P0}
    assert harness.work() == [2, 3, 4]


def test_a_second_partition_stops_when_it_holds_more_than_its_share_too() -> None:
    harness = blocking()
    harness.fetch(*[record(offset, "bad") for offset in range(1, 20)])
    harness.fetch(*[record(offset, "bad", P1) for offset in range(1, 5)])
    assert harness.paused == {P0}
    harness.later(0.1)
    harness.fetch(record(5, "bad", P1))
    assert harness.paused == {P0, P1}


def test_a_stopped_partition_is_fetched_again_once_blocked_lanes_hold_little() -> None:
    harness = blocking()
    harness.fetch(*[record(offset, "bad") for offset in range(1, 9)], record(1, "bad", P1))
    harness.fetch(*[record(offset, "bad", P1) for offset in range(2, 7)])
    assert harness.paused == {P0, P1}
    harness.revoke(P0)
    harness.beat()
    assert harness.paused == set()
    assert sorted(harness.work()) == [1, 2, 3, 4, 5, 6]
