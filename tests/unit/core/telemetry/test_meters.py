"""What is counted and timed, told by the core's own events."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.telemetry.meters import (
    ERROR_NAMES_MAX,
    MARKS_MAX,
    Arrivals,
    ErrorCounts,
    Histogram,
    Meters,
    OutcomeCounts,
)
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Drop, TopicPartition
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, TOPIC, FakeRecord, record

OTHER = TopicPartition("payments", 0)
DLQ = SubscriptionSettings(on_exhausted="dead_letter", dlq=True, retry=RetryPolicy(attempts=2))


def test_a_value_counts_up_to_the_first_bound_that_is_not_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 3.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 8.0


def test_a_value_below_zero_counts_as_zero() -> None:
    histogram = Histogram((1.0,))
    histogram.observe(-5.0, times=2)
    assert (histogram.counts, histogram.total) == ([2, 0], 0.0)


def test_records_arrived_with_the_fetch_that_moved_the_end_past_them() -> None:
    arrivals = Arrivals()
    arrivals.note({P0: 3}, 10.0)
    arrivals.note({P0: 3}, 11.0)
    arrivals.note({P0: 5}, 12.0)
    assert [arrivals.at(P0, offset) for offset in (0, 2, 3, 4, 5)] == [10, 10, 12, 12, None]


def test_marks_below_the_safe_position_are_forgotten() -> None:
    arrivals = Arrivals()
    arrivals.note({P0: 3}, 10.0)
    arrivals.note({P0: 5}, 12.0)
    arrivals.settled(P0, 3)
    assert arrivals.at(P0, 3) == 12.0
    arrivals.settled(P0, 5)
    assert arrivals.at(P0, 4) is None


def test_marks_of_a_position_that_never_moves_stay_few_and_never_claim_too_long_a_wait() -> None:
    arrivals = Arrivals()
    fetches = MARKS_MAX * 5
    for number in range(fetches):
        arrivals.note({P0: number + 1}, float(number))
    found = [arrivals.at(P0, offset) for offset in range(fetches)]
    assert len(set(found)) <= MARKS_MAX
    assert all(at is not None and at >= offset for offset, at in enumerate(found))
    assert found[-1] == fetches - 1


def test_names_of_errors_do_not_grow_without_bound() -> None:
    counts = ErrorCounts()
    for number in range(ERROR_NAMES_MAX * 2):
        counts.add("orders", f"Error{number}")
    labels = counts.counts["orders"]
    assert len(labels) == ERROR_NAMES_MAX + 1
    assert labels["other"] == ERROR_NAMES_MAX


def test_one_topic_and_several_are_counted_alike() -> None:
    alone, several = Harness(), Harness()
    alone.assign(P0)
    several.assign(P0, OTHER)
    verdicts: dict[int, list[Ending]] = {1: [Drop()], 2: [ERROR]}
    for harness in (alone, several):
        harness.fetch(*(record(offset, f"key-{offset}") for offset in range(5)))
        harness.work(verdicts)
        harness.later(10)
        harness.work()
    for counts in (alone.sub().counts, several.sub().counts):
        assert counts.processed.counts["orders"] == {"ok": 4, "dropped": 1}
        assert counts.attempts.counts["orders"] == {"ok": 4, "dropped": 1, "failed": 1}
    assert alone.core.meters.fetched == several.core.meters.fetched == {"orders": 5}
    assert alone.sub().counts.retried.counts == {"orders": {"ValueError": 1}}


def test_a_record_that_takes_three_attempts_is_processed_once() -> None:
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=5)))
    harness.assign()
    harness.fetch(record(0))
    for _ in range(2):
        harness.work({0: [ERROR]})
        harness.later(60.0)
    harness.work()
    counts = harness.sub().counts
    assert counts.processed.counts == {"orders": {"ok": 1}}
    assert counts.attempts.counts == {"orders": {"failed": 2, "ok": 1}}


def test_an_attempt_that_the_ack_timeout_ended_has_a_result_of_its_own() -> None:
    counts = OutcomeCounts()
    counts.failed_attempt(TOPIC, timed_out=True)
    counts.failed_attempt(TOPIC, timed_out=False)
    assert counts.attempts.counts == {TOPIC: {"timed_out": 1, "failed": 1}}
    assert counts.processed.counts == {}


def test_records_that_no_handler_has_run_count_as_no_attempt() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0))
    leased = next(
        each for worker in harness.sub().workers.values() for each in worker.slices.values()
    )
    counts = harness.sub().counts
    counts.settled(leased, [0], [], [0], unrun=True)
    assert counts.processed.counts == {"orders": {"dropped": 1}}
    assert counts.attempts.counts == {}


def test_records_of_a_slice_with_several_topics_count_for_their_own() -> None:
    harness = Harness()
    harness.assign(P0, OTHER)
    mine = [FakeRecord(P0, offset, b"a") for offset in range(3)]
    others = [FakeRecord(OTHER, offset, b"b") for offset in range(4)]
    harness.fetch(*mine, *others)
    harness.work()
    processed = harness.sub().counts.processed.counts
    assert processed == {"orders": {"ok": 3}, "payments": {"ok": 4}}
    assert harness.core.meters.fetched == {"orders": 3, "payments": 4}


def test_a_dead_letter_is_counted_by_its_answer_and_settles_once() -> None:
    harness = Harness(DLQ)
    harness.assign()
    harness.fetch(record(0))
    harness.work({0: [ERROR, ERROR]})
    harness.later(10)
    harness.work({0: [ERROR]})
    harness.dead_letter("no room")
    harness.later(10)
    harness.dead_letter()
    counts = harness.sub().counts
    assert counts.dlq_writes.counts == {"orders": {"failed": 1, "acknowledged": 1}}
    assert counts.processed.counts["orders"]["dead_lettered"] == 1


def test_what_was_settled_before_the_assignment_counts_as_skipped() -> None:
    harness = Harness()
    harness.assign(metadata=encode(here(0), {"default": ((1, 3),)}, {}).text, log=(0, 10))
    harness.fetch(*(record(offset) for offset in range(5)))
    harness.work()
    assert harness.sub().counts.processed.counts == {"orders": {"ok": 3, "skipped": 2}}


def test_the_wait_is_from_the_fetch_to_the_start_and_the_age_from_the_timestamp() -> None:
    harness = Harness()
    harness.assign()
    harness.tell(ev.Tick({}, (), wall=1_000.0))
    harness.fetch(record(0))
    harness.now += 3.0
    harness.work()
    counts = harness.sub().counts
    assert counts.wait_seconds.total == pytest.approx(3.0, abs=0.01)
    # The record's timestamp is 0 ms since 1970, and the clock showed 1,000 s three seconds ago.
    assert counts.age_seconds.total == pytest.approx(1_003.0, abs=0.01)
    assert sum(counts.process_seconds.counts) == 1


def test_records_that_were_set_aside_did_not_run_and_have_no_time() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*(record(offset) for offset in range(4)))
    harness.work({0: [ERROR]})
    assert sum(harness.sub().counts.process_seconds.counts) == 1


def test_commits_count_by_answer_with_their_time_and_size() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0))
    harness.work()
    (commit,) = harness.commit()
    harness.now += 0.25
    harness.answer(commit, ev.CommitResult.RETRY)
    (again,) = harness.commit()
    harness.answer(again)
    meters = harness.core.meters
    assert meters.commits == {"retry": 1, "accepted": 1}
    assert meters.commit_seconds.total == pytest.approx(0.25)
    assert sum(meters.metadata_bytes.counts) == 2


def test_rebalances_count_by_event_and_take_their_time() -> None:
    harness = Harness()
    harness.assign()
    harness.tell(ev.Revoking([P0]))
    harness.now += 1.5
    harness.tell(ev.Forget([P0]))
    harness.assign()
    harness.tell(ev.Revoking([P0]))
    harness.tell(ev.Forget([P0], lost=True))
    meters = harness.core.meters
    assert meters.rebalances == {"assigned": 2, "revoked": 1, "lost": 1}
    assert meters.revoke_seconds.total == pytest.approx(1.5)


def test_a_record_that_ends_after_its_partition_has_gone_is_stale_and_not_ok() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(record(0))
    worker = harness.owner_of(record(0))
    worker.start()
    harness.revoke(P0, commit=False)
    worker.finish()
    harness.work()
    counts = harness.sub().counts
    assert (counts.stale_results, counts.ok) == (1, 0)


def test_what_ended_before_a_revoke_is_ok_although_its_slice_still_runs() -> None:
    """It went with the last commit, so that its end is no late one; a slice is reported as one."""
    harness = Harness(SubscriptionSettings(workers=("worker-0",)))
    harness.assign(P0, P1)
    key = b"key-0"
    harness.fetch(record(0, key), record(1, key), record(0, key, P1), record(2, key))
    worker = harness.owner_of(record(0, key))
    for verdict in (None, Drop()):
        worker.start()
        worker.finish(verdict)
    assert worker.start() is not None
    (commit,) = harness.revoke(P0)
    assert commit.entries[P0].position == 2
    worker.finish()
    harness.work()
    counts = harness.sub().counts
    assert (counts.ok, counts.dropped, counts.stale_results) == (2, 1, 0)


def test_what_ends_between_the_last_commit_and_the_end_of_a_revoke_is_stale() -> None:
    harness = Harness(SubscriptionSettings(workers=("worker-0",)))
    harness.assign()
    harness.fetch(record(0), record(1))
    worker = harness.owner_of(record(0))
    worker.start()
    worker.finish()
    worker.start()
    harness.tell(ev.Revoking([P0]))
    (commit,) = harness.commit([P0], final=True)
    assert commit.entries[P0].position == 1
    worker.finish()
    harness.tell(ev.Forget([P0], progress=harness.progress))
    harness.work()
    counts = harness.sub().counts
    assert (counts.ok, counts.stale_results) == (1, 1)


def test_a_worker_without_work_starves_and_a_busy_one_does_not() -> None:
    harness = Harness(SubscriptionSettings(workers=("worker-0", "worker-1")))
    harness.assign()
    harness.beat()
    harness.fetch(record(0))
    worker = harness.owner_of(record(0))
    worker.start()
    harness.beat(4)
    starved = {each.name: each.starved_seconds for each in harness.sub().workers.values()}
    busy = harness.sub().routing.owner(record(0)).name
    assert starved.pop(busy) == 0
    assert list(starved.values()) == [2.0]


def test_a_commit_is_timed_also_before_and_across_a_fetch() -> None:
    meters = Meters()
    commit = cmd.Commit({P0: cmd.CommitEntry(7, "")})
    meters.sent([commit], 10.0)
    meters.took_in([record(7)], 0, "orders")
    meters.answered(commit, ev.CommitResult.ACCEPTED, 10.5)
    assert meters.commit_seconds.total == 0.5


def test_each_retry_is_counted_also_of_one_record() -> None:
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=5)))
    harness.assign()
    harness.fetch(record(0), record(1, "other"))
    harness.work({0: [ERROR], 1: [ERROR]})
    for attempt in range(2):
        harness.later(60.0)
        harness.work({0: [ERROR]} if attempt == 0 else None)
    counts = harness.sub().counts
    assert counts.retries == 3
    assert counts.retried.counts == {"orders": {"ValueError": 3}}
    assert (counts.ok, counts.failed) == (2, 3)


def test_of_a_slice_that_outlasts_a_loss_what_still_ran_is_stale_and_nothing_else() -> None:
    harness = Harness()
    harness.assign()
    harness.fetch(*(record(offset, f"key-{offset}") for offset in range(3)))
    worker = harness.worker()
    for verdict in (None, Drop()):
        worker.start()
        worker.finish(verdict)
    worker.start()
    harness.revoke(P0, commit=False)
    worker.finish()
    harness.work()
    counts = harness.sub().counts
    assert (counts.stale_results, counts.ok, counts.dropped) == (1, 1, 1)
    assert counts.processed.counts == {TOPIC: {"ok": 1, "dropped": 1}}
