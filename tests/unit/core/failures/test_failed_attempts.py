"""From the first failure in a lane until it opens: retries, poison policies, dead letters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.failures import failed_attempts, follow_up
from kafka_keyshared.core.failures.decision import Decision, decide
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.model import Attempt, Drop
from tests.support.core_harness import Harness
from tests.support.records import ERROR, GIVE_UP, NOT_NOW, P0, failure, record

ONE_TRY = RetryPolicy(attempts=1)
FOREVER = RetryPolicy(backoff=0.5, backoff_max=0.5, jitter=0.0, forever=True)


def harness_with(**settings: object) -> Harness:
    harness = Harness(SubscriptionSettings(**settings))  # type: ignore[arg-type]
    harness.assign()
    return harness


# --- the decision ---


def test_the_default_is_five_attempts_and_a_back_off_from_100_ms_up_to_30_s() -> None:
    policy = RetryPolicy()
    assert policy.attempts == 5
    assert [policy.delay(failures, 0.0) for failures in (1, 2, 3, 4)] == [0.1, 0.2, 0.4, 0.8]
    assert policy.delay(40, 0.0) == 30.0
    assert policy.delay(4_000, 0.0) == 30.0


@pytest.mark.parametrize("failures", [1, 3, 12])
def test_jitter_moves_the_back_off_by_a_fifth_at_most(failures: int) -> None:
    policy = RetryPolicy()
    middle = policy.delay(failures, 0.0)
    assert policy.delay(failures, -1.0) == pytest.approx(0.8 * middle)
    assert policy.delay(failures, 1.0) == pytest.approx(1.2 * middle)


def test_no_back_off_stays_none_however_often_a_record_fails() -> None:
    policy = RetryPolicy(attempts=10**6, backoff=0.0, factor=1e9)
    assert policy.delay(10**5, 1.0) == 0.0


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(attempts=0),
        RetryPolicy(backoff=-1),
        RetryPolicy(factor=0.5),
        RetryPolicy(backoff_max=float("nan")),
        RetryPolicy(jitter=1.0),
        RetryPolicy(jitter=-0.1),
    ],
)
def test_a_retry_policy_that_cannot_work_is_refused_by_name(policy: RetryPolicy) -> None:
    with pytest.raises(ConfigError, match=r"retry\.\w+=.*give"):
        SubscriptionSettings(retry=policy).check()


def test_a_retry_with_a_delay_sets_the_delay_and_not_the_number_of_attempts() -> None:
    policy = RetryPolicy(attempts=2)
    assert decide(NOT_NOW, 1, policy, "drop", dlq=False) == Decision(Disposition.RETRY, 3.0)
    assert decide(NOT_NOW, 2, policy, "drop", dlq=False).disposition is Disposition.DROP


def test_a_dead_letter_verdict_skips_the_attempts_and_without_a_dlq_blocks() -> None:
    policy = RetryPolicy()
    assert decide(GIVE_UP, 1, policy, "drop", dlq=True).disposition is Disposition.DEAD_LETTER
    assert decide(GIVE_UP, 1, policy, "drop", dlq=False).disposition is Disposition.BLOCK


@pytest.mark.parametrize(
    ("on_exhausted", "expected"),
    [
        ("drop", Disposition.DROP),
        ("dead_letter", Disposition.DEAD_LETTER),
        ("block", Disposition.BLOCK),
    ],
)
def test_exhausted_attempts_follow_the_poison_policy(
    on_exhausted: str, expected: Disposition
) -> None:
    found = decide(ERROR, 5, RetryPolicy(), on_exhausted, dlq=True)  # type: ignore[arg-type]
    assert found.disposition is expected


# --- retries ---


def test_a_record_fails_and_runs_again_after_its_back_off_until_it_is_done() -> None:
    harness = harness_with()
    harness.fetch(record(0))
    assert harness.work({0: [ERROR]}) == [0]
    harness.later(0.09)
    assert harness.work() == []
    harness.later(0.02)
    assert harness.work({0: [ERROR]}) == [0]
    harness.later(0.15)
    assert harness.work() == []
    harness.later(0.06)
    assert harness.work() == [0]
    assert harness.committed() == (1, [])
    assert (harness.sub().counts.failed, harness.sub().counts.retries) == (2, 2)


def test_retry_with_a_delay_waits_that_long() -> None:
    harness = harness_with()
    harness.fetch(record(0))
    harness.work({0: [NOT_NOW]})
    assert harness.core.next_due() == harness.now + 3.0
    harness.later(2.9)
    assert harness.work() == []
    harness.later(0.2)
    assert harness.work() == [0]


def test_exhausted_attempts_are_decided_on_at_the_failure_and_not_at_the_heartbeat() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=2, backoff=0.0), on_exhausted="drop")
    harness.fetch(record(0))
    for _ in range(2):
        harness.worker().start()
        harness.worker().finish(ERROR)
        harness.work()
        harness.later(0.0)
    assert harness.sub().counts.dropped == 1
    assert harness.committed() == (1, [])


AWAY = replace(ERROR, error_type="ConnectionError", message="away", retry=FOREVER)


def test_an_error_that_is_retried_forever_uses_up_no_attempt_of_its_record() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=2, backoff=0.0), on_exhausted="drop")
    harness.fetch(record(0))
    for outcome in (AWAY, AWAY, ERROR, AWAY, AWAY):
        assert harness.work({0: [outcome]}) == [0]
        harness.later(1.0)
        harness.tell(ev.Tick(harness.actor.progress()))  # settles what has no attempt left
    closed = harness.sub().closed.get(lane_of(record(0)))
    assert closed is not None
    assert (closed.failures, closed.unlimited, closed.attempts, closed.in_row) == (1, 4, 5, 2)
    assert harness.work({0: [ERROR]}) == [0]
    assert harness.sub().counts.dropped == 1
    assert harness.sub().counts.failed == 6


def test_a_retried_record_is_handed_over_with_its_attempt() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=3, backoff=0.0))
    harness.fetch(record(0), record(1, "other"))
    attempts = []
    for outcome in (ERROR, AWAY, ERROR):
        attempts.append(dict(harness.worker().slices()[0].attempts))
        harness.work({0: [outcome]})
        harness.later(1.0)
    at = (P0, 0)
    assert attempts == [
        {},
        {at: Attempt(2, 3, 0.0, "ValueError: no such flight")},
        {at: Attempt(3, None, 0.0, "ConnectionError: away")},
    ]


def test_a_recalled_retry_keeps_its_attempts() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=3, backoff=0.0), on_exhausted="drop")
    harness.fetch(record(0), record(1))
    harness.work({0: [ERROR]})
    harness.later(0.0)
    harness.recall()  # taken back unrun, and leased again at once
    assert harness.work({0: [ERROR]}) == [0]
    harness.later(0.0)
    assert harness.work({0: [ERROR]}) == [0, 1]
    assert harness.sub().counts.dropped == 1


def test_a_recalled_retry_holds_the_position_of_a_stop() -> None:
    harness = harness_with(retry=RetryPolicy(backoff=0.0))
    harness.fetch(record(0), record(1, "other"))
    harness.work({0: [ERROR]})
    harness.later(0.0)  # the retry is leased, and not started
    harness.tell(ev.Stopping())
    (commit,) = harness.commit(final=True)
    assert [entry.position for entry in commit.entries.values()] == [0]


def test_a_record_that_is_given_back_has_used_up_no_attempt() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=2, backoff=0.0), on_exhausted="drop")
    harness.fetch(record(0))
    given_back = failure(Disposition.GIVEN_BACK)
    started = harness.work({0: [given_back, given_back, ERROR]})
    for _ in range(3):
        harness.later(0.0)
        started += harness.work({0: [given_back, ERROR][len(started) - 1 :]})
    assert started == [0, 0, 0, 0]
    counts = harness.sub().counts
    assert (counts.failed, counts.dropped, counts.ok) == (1, 0, 1)


# --- drop ---


def test_a_handlers_own_drop_settles_at_once_and_is_counted_apart() -> None:
    harness = harness_with()
    harness.fetch(record(0), record(1))
    assert harness.work({0: [Drop()]}) == [0, 1]
    assert (harness.sub().counts.ok, harness.sub().counts.dropped) == (1, 1)
    assert harness.committed() == (2, [])


def test_a_dropped_record_settles_at_once_and_its_lane_opens_when_the_fence_is_passed() -> None:
    harness = harness_with(retry=ONE_TRY, on_exhausted="drop")
    harness.fetch(record(0), record(1))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    closed = harness.sub().closed.get(lane_of(record(0)))
    assert closed is not None
    assert closed.state is LaneState.OPENING
    assert harness.core.unsettled_count() == 1
    worker.step()  # 1 is set aside
    worker.step()  # the slice ends
    worker.step()  # the fence
    harness.deliver(2)
    assert len(harness.sub().closed) == 1
    assert harness.pool.progress() == {}
    harness.deliver()  # the call that brings the fence also leases what waited
    assert len(harness.sub().closed) == 0
    assert [r.offset() for slice_ in worker.slices() for r in slice_.records] == [1]


# --- dead letters ---


def test_a_dead_letter_settles_when_the_broker_has_it_and_its_lane_opens_in_that_call() -> None:
    harness = harness_with(
        retry=RetryPolicy(attempts=2, backoff=0.0), on_exhausted="dead_letter", dlq=True
    )
    harness.fetch(record(0), record(1))
    harness.work({0: [ERROR]})
    harness.later(0.0)
    assert harness.work({0: [failure(Disposition.RETRY)]}) == [0]
    (publish,) = harness.publishes
    assert (publish.attempts, publish.first.disposition) == (2, Disposition.ERROR)
    assert publish.last.disposition is Disposition.RETRY
    assert harness.committed() == (0, [])
    commands = harness.tell(ev.DeadLetterAnswer(publish))
    assert [type(each) for each in commands if type(each) is not cmd.Notice] == [cmd.LeaseSlice]
    assert harness.work() == [1]
    assert harness.committed() == (2, [])
    assert harness.sub().counts.dead_lettered == 1


def test_a_dead_letter_that_is_acknowledged_before_the_fence_opens_nothing_yet() -> None:
    harness = harness_with(dlq=True)
    harness.fetch(record(0), record(1))
    worker = harness.worker()
    worker.start()
    worker.finish(GIVE_UP)
    harness.deliver()
    harness.dead_letter()
    assert harness.core.unsettled_count() == 1
    assert worker.start() is None  # sets 1 aside, ends the slice, passes the fence
    assert harness.work() == [1]


def test_a_dead_letter_that_cannot_be_written_is_tried_again_and_never_settles() -> None:
    harness = harness_with(dlq=True)
    harness.fetch(record(0), record(1))
    harness.work({0: [GIVE_UP]})
    for delay in (1.0, 2.0, 4.0):
        harness.dead_letter("leader not available")
        assert harness.said("leader not available")
        harness.later(delay - 0.1)
        assert harness.publishes == []
        assert harness.committed()[0] == 0
        harness.later(0.1)
        assert len(harness.publishes) == 1
    harness.dead_letter()
    assert harness.work() == [1]
    assert harness.committed() == (2, [])


def test_the_wait_between_two_tries_of_a_dead_letter_is_30_s_at_most() -> None:
    harness = harness_with(dlq=True)
    harness.fetch(record(0))
    harness.work({0: [GIVE_UP]})
    for _ in range(12):
        harness.dead_letter("no")
        due = harness.core.next_due()
        assert due is not None
        assert due - harness.now <= 30.0
        harness.later(30.0)


def test_a_late_answer_for_a_forgotten_dead_letter_settles_nothing() -> None:
    harness = harness_with(dlq=True)
    harness.fetch(record(0))
    harness.work({0: [GIVE_UP]})
    harness.revoke(*harness.core.partitions)
    harness.assign()
    harness.fetch(record(0))
    harness.work({0: [GIVE_UP]})
    old, new = harness.publishes
    harness.tell(ev.DeadLetterAnswer(old))
    assert harness.committed() == (0, [])
    harness.tell(ev.DeadLetterAnswer(new))
    assert harness.committed() == (1, [])


# --- block ---


def test_block_keeps_the_lane_closed_and_the_position_at_the_blocked_record() -> None:
    harness = harness_with(retry=ONE_TRY)
    harness.fetch(record(0, "good"), record(1, "bad"), record(2, "bad"), record(3, "good"))
    assert harness.work({1: [ERROR]}) == [0, 1, 3]
    harness.later(60.0)
    harness.beat(4)
    assert harness.work() == []
    assert harness.committed() == (1, [(3, 4)])
    assert harness.said("key b'bad' is blocked at orders-0@1: it failed (1 attempt,")


def test_a_dead_letter_verdict_without_a_dlq_blocks_and_loses_nothing() -> None:
    harness = harness_with(on_exhausted="drop")
    harness.fetch(record(0))
    harness.work({0: [GIVE_UP]})
    assert harness.committed() == (0, [])
    assert harness.said("its handler asked for a dead letter")


def test_dead_letter_as_policy_needs_a_dead_letter_topic() -> None:
    with pytest.raises(ConfigError, match=r"dead_letter.*dlq=True"):
        SubscriptionSettings(on_exhausted="dead_letter").check()


# --- many at once ---


def test_more_retries_than_can_be_readied_in_one_step_stay_due_and_all_run_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failed_attempts, "FIRED_AT_ONCE", 40)
    harness = harness_with(retry=RetryPolicy(attempts=2, backoff=1.0, jitter=0.0))
    harness.fetch(*[record(offset, f"key-{offset}") for offset in range(100)])
    harness.work({offset: [ERROR] for offset in range(100)})
    harness.now += 2.0
    left = []
    for _ in range(3):
        assert harness.core.next_due() is not None, "the loop comes back for what is still due"
        harness.tell(ev.LeaseDue())
        left.append(sum(closed.due is not None for closed in harness.sub().closed.lanes.values()))
    assert left == [60, 20, 0]
    assert harness.core.next_due() is None
    assert harness.work() == list(range(100))
    assert harness.committed() == (100, [])


def test_retries_are_leased_in_slices_like_all_others() -> None:
    harness = harness_with(prefetch_records=10)
    harness.fetch(*[record(offset, f"key-{offset}") for offset in range(40)])
    harness.work({offset: [ERROR] for offset in range(40)})
    harness.later(1.0)
    sizes = [len(slice_.records) for slice_ in harness.worker().slices()]
    assert sizes == [5, 5], "two slices of half its leases: one runs, one waits"
    assert sorted(harness.work()) == list(range(40))


def test_a_lane_is_readied_once_however_often_that_is_said() -> None:
    harness = harness_with(prefetch_records=1)
    harness.fetch(record(0, "a"), record(1, "b"))
    harness.work({0: [ERROR], 1: [ERROR]})
    harness.later(1.0)
    worker = harness.sub().workers[0]
    (waiting,) = worker.row.retries
    worker.row.ready(waiting)
    # One without a key may be at any worker, and at whichever has least to do when it is said.
    RunQueue(1).ready(waiting)
    elsewhere = RunQueue(2)
    elsewhere.ready(waiting)
    assert not elsewhere.retries
    assert worker.row.take_ready(5) == [waiting]
    assert worker.row.take_ready(5) == []
    elsewhere.ready(waiting)
    elsewhere.withdraw(waiting)
    worker.row.ready(waiting)
    assert worker.row.take_ready(5) == [waiting]


# --- what must never happen is refused, not papered over ---


def test_a_second_head_for_a_closed_lane_is_refused_because_it_would_lose_the_first() -> None:
    harness = harness_with()
    harness.fetch(record(0), record(1))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    (slice_,) = worker.slices()
    with pytest.raises(InvariantError, match="orders-0@1 failed while its lane"):
        harness.tell(ev.Reported([ev.Failed(slice_.id, 1, ERROR)]))


def test_a_record_set_aside_from_an_open_lane_is_refused() -> None:
    harness = harness_with()
    harness.fetch(record(0), record(1))
    (slice_,) = harness.worker().slices()
    with pytest.raises(InvariantError, match="orders-0@1 was set aside although its lane is open"):
        harness.tell(ev.Reported([ev.SetAside(slice_.id, 1)]))


def test_only_the_fence_of_the_worker_that_failed_lets_the_lane_go_on() -> None:
    """A fence that another worker passes late says nothing about what this one still holds."""
    two = SubscriptionSettings(workers=("worker-0", "worker-1"), retry=RetryPolicy(backoff=0.0))
    harness = Harness(two)
    harness.assign()
    harness.fetch(record(0), record(1))
    worker = harness.owner_of(record(0))
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    lane = lane_of(record(0))
    late = ev.FencePassed("default", 1 - worker.index, (lane,))
    before = len(harness.seen)
    harness.tell(ev.Reported([late]))
    harness.later(1.0)
    assert not [each for each in harness.seen[before:] if isinstance(each, cmd.LeaseSlice)]
    assert harness.work() == [0, 1]


def test_two_of_a_lane_that_a_member_refuses_late_close_it_until_the_fence() -> None:
    """It held both, and their partition went meanwhile: neither is the head of anything."""
    harness = harness_with(individually=True)
    harness.fetch(record(0), record(1))
    first, second = harness.worker().slices()
    for handover in harness.worker().given.values():
        next(handover.todo)  # the member has both
    harness.tell(ev.Revoking([P0]))
    harness.tell(ev.Forget([P0]))
    harness.assign()
    lane = lane_of(record(0))
    for each in (first, second):
        harness.tell(ev.Reported([ev.Failed(each.id, 0, ERROR), ev.SliceEnded(each.id, 0.1)]))
        assert harness.sub().closed.lanes[lane].state is LaneState.OPENING
    harness.fetch(record(0), record(1))
    assert [each.offset() for each in harness.sub().closed.lanes[lane].waiting()] == [0, 1]
    harness.tell(ev.Reported([ev.FencePassed("default", harness.worker().index, (lane,))]))
    assert not harness.sub().closed


def test_a_verdict_that_nobody_acts_on_is_refused_and_settles_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It once fell through to a drop."""
    monkeypatch.setattr(follow_up, "decide", lambda *_, **__: Decision(Disposition.ERROR))
    harness = Harness()
    harness.assign()
    harness.fetch(record(0))
    harness.worker().start()
    harness.worker().finish(ERROR)
    with pytest.raises(InvariantError, match="unknown disposition of a failed record"):
        harness.deliver()
    assert harness.sub().counts.dropped == 0
