"""Orders for closed lanes: released, dropped, dead-lettered; or refused, by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract.events import LaneAction, LaneOrder
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.failures.lane_actions import EVENTS, listing
from kafka_keyshared.core.lanes.closed import LANE_TABLE, LaneState
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, hash_of
from kafka_keyshared.core.records.lane_identity import NULL_KEY, lane_by, lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.notice_words import order_text
from kafka_keyshared.model import Record, TopicPartition, Undecodable
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, NOT_NOW, P0, P1, record

UNBLOCK, DROP, DEAD_LETTER = LaneAction.UNBLOCK, LaneAction.DROP, LaneAction.DEAD_LETTER
A = lane_of(record(0, "a"))


def harness_with(**settings: object) -> Harness:
    wanted = {"retry": RetryPolicy(attempts=1), "dlq": True, **settings}
    harness = Harness(SubscriptionSettings(**wanted))  # type: ignore[arg-type]
    harness.assign()
    harness.fetch(record(0, "a"), record(1, "a"), record(2, "b"))
    return harness


def blocked(**settings: object) -> Harness:
    harness = harness_with(on_exhausted="block", **settings)
    harness.work({0: [ERROR]})
    return harness


def order(
    harness: Harness,
    action: LaneAction,
    key: bytes | None = b"a",
    *,
    at: tuple[TopicPartition, int] | None = None,
) -> cmd.LaneAnswer:
    """Give an order, and return the answer."""
    partition, offset = at or (None, -1)
    harness.tell(LaneOrder("default", action, None if at else key, partition, offset))
    return harness.actor.lane_answers.pop()


def done_text(answer: cmd.LaneAnswer) -> str:
    """Return the answer to an executed order; "" where it was refused."""
    return "" if answer.done is None else order_text(answer.done)


def state_of(harness: Harness) -> LaneState | None:
    closed = harness.sub().closed.get(A)
    return None if closed is None else closed.state


def unreadable(each: Record) -> bytes | None:
    """Read the key of every record but one without a key."""
    if each.key() is None:
        raise Undecodable("broken on purpose")
    key: bytes = each.key()
    return key


# --- a lane in each of its states, and what each order does to it ---


def waiting() -> Harness:
    harness = harness_with(on_exhausted="block", retry=RetryPolicy(attempts=5, backoff=30.0))
    harness.work({0: [ERROR]})
    return harness


def running() -> Harness:
    harness = harness_with(on_exhausted="block", retry=RetryPolicy(attempts=5, backoff=0.0))
    harness.work({0: [ERROR]})
    harness.later(0.0)
    harness.owner_of(record(0, "a")).start()
    return harness


def stuck() -> Harness:
    harness = harness_with(on_exhausted="block", ack_timeout=1.0)
    harness.pool.kind = "thread"
    harness.owner_of(record(0, "a")).start()
    harness.beat(4)
    harness.deliver()
    return harness


def dead_lettering() -> Harness:
    harness = harness_with(on_exhausted="dead_letter")
    harness.work({0: [ERROR]})
    return harness


def archiving() -> Harness:
    harness = harness_with(on_exhausted="block_and_dlq")
    harness.work({0: [ERROR]})
    return harness


def diverting() -> Harness:
    harness = harness_with(on_exhausted="divert")
    harness.work({0: [ERROR]})
    return harness


def diverted() -> Harness:
    harness = diverting()
    harness.dead_letter()
    harness.dead_letter()
    return harness


def opening() -> Harness:
    harness = harness_with(on_exhausted="drop", workers=("worker-0",))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    return harness


MADE: dict[LaneState, Callable[[], Harness]] = {
    LaneState.WAITING: waiting,
    LaneState.RUNNING: running,
    LaneState.STUCK: stuck,
    LaneState.DEAD_LETTERING: dead_lettering,
    LaneState.ARCHIVING: archiving,
    LaneState.BLOCKED: blocked,
    LaneState.DIVERTING: diverting,
    LaneState.DIVERTED: diverted,
    LaneState.OPENING: opening,
}


@pytest.mark.parametrize("action", LaneAction)
@pytest.mark.parametrize("state", LaneState)
def test_in_each_state_an_order_is_done_or_refused_by_name_as_the_table_has_it(
    state: LaneState, action: LaneAction
) -> None:
    harness = MADE[state]()
    closed = harness.sub().closed.lanes[A]
    assert closed.state is state
    before, held = repr(closed), harness.core.unsettled_count()
    answer = order(harness, action)
    harness.core.check()
    if EVENTS[action] in LANE_TABLE[state]:
        assert answer.done
        assert not answer.refused
        assert "(key b'a')" in done_text(answer)
    else:
        assert not answer.done
        assert "orders-0" in answer.refused
        assert f"(key b'a'), {state.value}: " in answer.refused
        assert repr(closed) == before
        assert harness.core.unsettled_count() == held


@pytest.mark.parametrize("action", LaneAction)
@pytest.mark.parametrize("state", LaneState)
def test_whatever_is_ordered_in_whatever_state_all_settles_in_order_in_the_end(
    state: LaneState, action: LaneAction
) -> None:
    harness = MADE[state]()
    order(harness, action)
    for _ in range(40):
        for worker in harness.pool.workers.values():
            for apart in worker.apart[:]:
                worker.finish_apart(apart.record)
            if worker.running is not None:
                worker.finish()
        harness.work()
        if harness.publishes:
            harness.dead_letter()
        harness.beat()
        harness.later(1.0)
    if harness.sub().closed.get(A) and state_of(harness) in (LaneState.BLOCKED,):
        assert state is LaneState.ARCHIVING, "refused, and archived since"
        assert action is not DROP
        order(harness, UNBLOCK)
        harness.work()
    assert harness.committed() == (3, [])


# --- release ---


def test_a_blocked_lane_that_is_released_goes_on_with_its_head_and_all_its_attempts() -> None:
    harness = blocked(retry=RetryPolicy(attempts=2, backoff=0.0))
    harness.later(0.0)
    harness.work({0: [ERROR]})
    assert state_of(harness) is LaneState.BLOCKED
    answer = order(harness, UNBLOCK)
    assert done_text(answer) == "orders-0@0 (key b'a'), blocked is unblocked; 1 record behind it"
    assert harness.said(f"by order: {done_text(answer)}")
    assert harness.work({0: [ERROR]}) == [0]
    assert state_of(harness) is LaneState.WAITING, "that was the first of two"
    harness.later(0.0)
    assert harness.work() == [0, 1]
    assert harness.committed() == (3, [])


def test_a_released_lane_that_fails_again_is_blocked_again_and_archived_no_second_time() -> None:
    harness = archiving()
    harness.dead_letter()
    order(harness, UNBLOCK)
    assert harness.work({0: [ERROR]}) == [0]
    assert state_of(harness) is LaneState.BLOCKED
    assert not harness.publishes


def test_one_that_waits_for_a_far_off_retry_has_it_now() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=5))
    harness.work({0: [NOT_NOW]})
    assert harness.work() == []
    order(harness, UNBLOCK)
    assert harness.work() == [0, 1]


def test_what_a_diverted_lane_still_has_runs_when_it_is_released() -> None:
    harness = diverting()
    harness.fetch(record(3, "a"))
    order(harness, UNBLOCK)
    assert state_of(harness) is LaneState.DEAD_LETTERING, "one letter is on its way"
    harness.dead_letter()
    assert harness.work() == [1, 3]
    assert not harness.sub().diverted
    (commit,) = harness.commit()
    assert commit.entries[P0].metadata == ""


def test_a_key_that_came_diverted_and_of_which_nothing_has_come_is_released_by_its_key() -> None:
    notes = {"default": LaneNotes(frozenset({hash_of(A)}))}
    harness = Harness(SubscriptionSettings(on_exhausted="divert", dlq=True))
    harness.assign(position=0, metadata=encode(here(0), {}, notes=notes).text, log=(0, 9))
    assert "no lane of key b'b' is closed" in order(harness, UNBLOCK, b"b").refused
    assert "is diverted no more" in done_text(order(harness, UNBLOCK, b"a"))
    harness.fetch(record(0, "a"))
    assert harness.work() == [0]
    (commit,) = harness.commit()
    assert commit.entries[P0].metadata == ""


@pytest.mark.parametrize("nulls", ["any", "one-lane"])
def test_the_lane_of_null_keys_that_came_diverted_is_released_as_the_empty_key(nulls: str) -> None:
    lane = lane_by(record(0, None), NULL_KEY, "topic")
    notes = {"default": LaneNotes(frozenset({hash_of(lane)}))}
    harness = Harness(SubscriptionSettings(on_exhausted="divert", dlq=True, null_keys=nulls))  # type: ignore[arg-type]
    harness.assign(position=0, metadata=encode(here(0), {}, notes=notes).text, log=(0, 9))
    answer = order(harness, UNBLOCK, b"")
    assert ("is diverted no more" in done_text(answer)) is (nulls == "one-lane")
    harness.fetch(record(0, None))
    assert harness.work() == [0]


def test_a_release_lets_a_partition_go_on_that_was_stopped_for_what_the_lane_held() -> None:
    harness = Harness(SubscriptionSettings(window_records=40, retry=RetryPolicy(attempts=1)))
    harness.assign()
    harness.fetch(*[record(offset, "a") for offset in range(15)])
    harness.work({0: [ERROR]})
    assert harness.paused == {P0}
    order(harness, UNBLOCK)
    assert harness.work() == list(range(15))
    harness.beat()
    assert harness.paused == set()


# --- drop and dead-letter ---


def test_a_blocked_head_that_is_dropped_is_settled_and_counted_and_its_lane_goes_on() -> None:
    harness = blocked()
    answer = order(harness, DROP, at=(P0, 0))
    assert done_text(answer) == "orders-0@0 (key b'a'), blocked is dropped; 1 record behind it"
    assert harness.sub().counts.dropped == 1
    assert harness.work() == [1]
    assert harness.committed() == (3, [])


def test_a_blocked_head_is_dead_lettered_by_order_and_settled_when_that_is_acknowledged() -> None:
    harness = blocked()
    order(harness, DEAD_LETTER)
    assert harness.work() == []
    harness.dead_letter("no leader")
    assert harness.committed() == (0, [(2, 3)])
    harness.later(1.0)
    assert harness.dead_letter().attempts == 1
    assert harness.work() == [1]


def test_one_that_is_archived_has_its_letter_and_settles_at_once() -> None:
    harness = archiving()
    harness.dead_letter()
    order(harness, DEAD_LETTER)
    assert not harness.publishes
    assert harness.work() == [1]
    assert harness.sub().counts.dead_lettered == 1


def test_without_a_dead_letter_topic_there_is_nothing_to_send_it_to() -> None:
    harness = blocked(dlq=False)
    assert "there is no dead-letter topic; give one" in order(harness, DEAD_LETTER).refused
    assert state_of(harness) is LaneState.BLOCKED


def test_an_answer_that_comes_after_a_drop_settles_nothing_more() -> None:
    harness = dead_lettering()
    order(harness, DROP)
    harness.dead_letter()
    assert harness.work() == [1]
    assert harness.committed() == (3, [])
    assert harness.sub().counts.dead_lettered == 0


@pytest.mark.parametrize("why", [{"null_keys": "reject"}, {"key_of": unreadable}])
def test_a_record_whose_key_cannot_be_read_is_given_to_no_handler_by_order_either(
    why: dict[str, object],
) -> None:
    for dlq, ways in ((True, "drop it, dead-letter it, or"), (False, "drop it or")):
        settings = {"undecodable": "block", "dlq": dlq, **why}
        harness = Harness(SubscriptionSettings(**settings))  # type: ignore[arg-type]
        harness.assign()
        harness.fetch(record(0, None), record(1, "a"))
        assert harness.work() == [1]
        refused = order(harness, UNBLOCK, at=(P0, 0)).refused
        assert f"its key cannot be read, so no handler may have it; {ways} mend" in refused
        assert harness.work() == []
        assert "unblock" not in order(harness, DEAD_LETTER, at=(P0, 0)).refused
        if dlq:
            harness.dead_letter()
        else:
            assert order(harness, DROP, at=(P0, 0)).done
        assert harness.committed() == (2, [])


# --- which lane ---


def test_a_lane_that_is_not_closed_is_refused_with_what_was_asked_for() -> None:
    harness = blocked()
    for action in LaneAction:
        assert "no lane of key b'b' is closed" in order(harness, action, b"b").refused
        answer = order(harness, action, at=(P0, 1))
        assert "no lane with its head at orders-0@1 is closed" in answer.refused


def test_a_key_that_has_closed_two_lanes_is_refused_with_both_named() -> None:
    harness = Harness(SubscriptionSettings(order_scope="partition", retry=RetryPolicy(attempts=1)))
    harness.assign(P0, P1)
    harness.fetch(record(0, "a", P0), record(5, "a", P1), record(6, "a", P1))
    harness.work({0: [ERROR], 5: [ERROR]})
    refused = order(harness, UNBLOCK).refused
    assert "key b'a' has closed 2 lanes: " in refused
    assert "orders-0@0" in refused
    assert "orders-1@5" in refused
    assert order(harness, UNBLOCK, at=(P1, 5)).done
    assert harness.work() == [5, 6]


def test_a_record_without_a_key_is_named_by_its_place() -> None:
    harness = Harness(SubscriptionSettings(retry=RetryPolicy(attempts=1)))
    harness.assign()
    harness.fetch(record(0, None), record(1, None))
    harness.work({0: [ERROR]})
    assert "orders-0@0 (no key)" in done_text(order(harness, DROP, at=(P0, 0)))
    assert harness.committed() == (2, [])


# --- the list ---


def test_the_list_names_all_closed_lanes_first_those_that_wait_for_somebody() -> None:
    harness = harness_with(on_exhausted="block", retry=RetryPolicy(attempts=2, backoff=0.0))
    harness.fetch(record(3, "0-first"), record(4, "0-first"))
    harness.work({3: [NOT_NOW], 0: [ERROR]})
    harness.later(0.0)
    harness.work({0: [ERROR]})
    first, second = listing(harness.sub(), harness.now, 0.0)
    assert (first.key, first.state, first.offset, first.waiting) == ("a", "blocked", 0, 1)
    assert (first.attempts, first.error) == (2, "ValueError: no such flight")
    assert (second.key, second.state, second.due_seconds) == ("0-first", "waiting", 3.0)
    assert first.due_seconds is None


@pytest.mark.parametrize("state", LaneState)
def test_a_lane_is_listed_whatever_state_it_is_in(state: LaneState) -> None:
    harness = MADE[state]()
    assert [(lane.key, lane.state) for lane in listing(harness.sub(), harness.now, 0.0)] == [
        ("a", state.value)
    ]
