"""Attempts go on counting behind a restart, and what is only put off counts none."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.failures.decision import Decision, decide
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.commit_text import read_notes
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import Drop
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, failure, record

SOON = RetryPolicy(attempts=3, backoff=0.0)
PUT_OFF = failure(Disposition.PUT_OFF, after=60.0)


def harness_with(**settings: object) -> Harness:
    return Harness(SubscriptionSettings(**{"retry": SOON, **settings}))  # type: ignore[arg-type]


def stored(harness: Harness) -> tuple[int, str]:
    """What the broker has after one more commit of P0."""
    for commit in harness.commit():
        harness.answer(commit)
    if not harness.commits:
        return 0, ""
    entry = harness.commits[-1].entries[P0]
    return entry.position, entry.metadata


def fail(harness: Harness, offset: int, times: int = 1) -> None:
    """Let a record fail so often, one attempt after the other."""
    for _ in range(times):
        assert offset in harness.work({offset: [ERROR]})
        harness.later(0.0)


def restarted(harness: Harness, *, end: int = 100, **settings: object) -> Harness:
    """Another process, begun with what the first has committed."""
    position, text = stored(harness)
    again = harness_with(**settings)
    again.assign(position=position, metadata=text, log=(0, end))
    return again


def tried(harness: Harness) -> dict[int, tuple[int, bool]]:
    position, text = stored(harness)
    found = read_notes(text, position).get("default")
    return found.tried if found is not None else {}


# --- what travels ---


def test_a_commit_says_of_what_failed_how_often_it_was_tried() -> None:
    harness = harness_with(retry=RetryPolicy(attempts=5, backoff=10.0))
    harness.assign()
    harness.fetch(record(0, "a"), record(1, "b"), record(2, "c"), record(3, None))
    harness.work({1: [ERROR], 3: [ERROR]})
    assert tried(harness) == {1: (1, False), 3: (1, False)}
    harness.later(10.0)
    harness.work({1: [ERROR]})
    assert tried(harness) == {1: (2, False)}, "the other one is done"
    harness.later(30.0)
    harness.work()
    assert stored(harness) == (4, "")


def test_a_restart_goes_on_counting() -> None:
    harness = harness_with(on_exhausted="drop")
    harness.assign()
    harness.fetch(record(0, "a"), record(1, "b"))
    fail(harness, 1, times=2)
    again = restarted(harness, on_exhausted="drop")
    again.fetch(record(1, "b"), record(2, "b"))
    assert again.work({1: [ERROR]}) == [1, 2]
    assert again.sub().counts.dropped == 1, "that was the third attempt of three"


def test_a_restart_of_a_restart_hands_on_what_has_not_run_again() -> None:
    first = harness_with(retry=RetryPolicy(attempts=5, backoff=100.0))
    first.assign()
    first.fetch(record(0, "a"), record(1, "b"))
    first.work({0: [ERROR], 1: [ERROR]})
    second = restarted(first, retry=RetryPolicy(attempts=5, backoff=100.0))
    second.fetch(record(0, "a"))
    assert second.commit() == [], "it would say what the broker has"
    second.work({0: [ERROR]})
    assert tried(second) == {0: (2, False), 1: (1, False)}
    second.fetch(record(1, "b"))
    second.work()
    assert tried(second) == {0: (2, False)}, "the other one is done"


def test_a_dead_letter_says_how_often_the_record_was_tried_over_both_processes() -> None:
    harness = harness_with(dlq=True, on_exhausted="dead_letter")
    harness.assign()
    harness.fetch(record(0, "a"))
    fail(harness, 0, times=2)
    again = restarted(harness, dlq=True, on_exhausted="dead_letter")
    again.fetch(record(0, "a"))
    fail(again, 0)
    assert [each.attempts for each in again.publishes] == [3]


def test_a_blocked_record_has_one_attempt_after_a_restart_and_may_be_done_by_it() -> None:
    harness = harness_with(on_exhausted="block", retry=RetryPolicy(attempts=2, backoff=0.0))
    harness.assign()
    harness.fetch(record(0, "a"), record(1, "a"))
    harness.work({0: [ERROR]})
    harness.later(0.0)
    harness.work({0: [ERROR]})
    again = restarted(harness, on_exhausted="block", retry=RetryPolicy(attempts=2, backoff=0.0))
    again.fetch(record(0, "a"), record(1, "a"))
    assert again.work({0: [ERROR]}) == [0]
    assert again.sub().closed.lanes[lane_of(record(0, "a"))].state is LaneState.BLOCKED
    mended = restarted(harness, on_exhausted="block", retry=RetryPolicy(attempts=2, backoff=0.0))
    mended.fetch(record(0, "a"), record(1, "a"))
    assert mended.work() == [0, 1]


def test_what_the_log_cannot_hold_and_what_goes_with_its_partition_is_not_counted() -> None:
    text = encode(here(0), {}, notes={"default": LaneNotes(tried={5: Tried(2), 50: Tried(2)})}).text
    harness = harness_with(on_exhausted="drop")
    harness.assign(P0, position=0, metadata=text, log=(0, 50))
    assert harness.sub().carried == {P0: {5: Tried(2)}}
    harness.tell(ev.Revoking([P0]))
    harness.tell(ev.Forget([P0]))
    assert not harness.sub().carried
    harness.assign(P1, position=0)
    harness.fetch(record(5, "a", P1))
    fail(harness, 5)
    assert harness.sub().counts.dropped == 0


def test_a_partition_that_was_lost_and_comes_straight_back_goes_on_counting() -> None:
    harness = harness_with(on_exhausted="drop")
    harness.assign()
    harness.fetch(record(0, "a"), record(1, "b"))
    harness.work()
    position, text = stored(harness)
    harness.fetch(record(2, "c"))
    fail(harness, 2, times=2)
    harness.revoke(P0, commit=False)
    harness.assign(position=position, metadata=text, log=(0, 3))
    assert harness.sub().carried == {P0: {2: Tried(2)}}
    harness.fetch(record(2, "c"))
    fail(harness, 2)
    assert harness.sub().counts.dropped == 1


# --- put off ---


def test_what_is_put_off_runs_again_after_its_time_however_often_and_is_no_attempt() -> None:
    assert decide(PUT_OFF, 0, SOON, "drop", dlq=False) == Decision(Disposition.RETRY, 60.0)
    harness = harness_with(on_exhausted="drop")
    harness.assign()
    harness.fetch(record(0, "a"), record(1, "a"))
    for _ in range(20):
        assert harness.work({0: [PUT_OFF]}) == [0], "what is behind it waits"
        harness.later(59.0)
        assert harness.work() == []
        harness.later(1.0)
    assert harness.sub().counts.failed == 0
    assert harness.work({0: [ERROR]}) == [0]
    harness.later(0.0)
    assert harness.work({0: [ERROR]}) == [0]
    harness.later(0.0)
    assert harness.work({0: [ERROR]}) == [0, 1]
    assert harness.sub().counts.dropped == 1


def test_what_is_put_off_is_neither_counted_nor_told_as_a_failure() -> None:
    harness = harness_with()
    harness.assign()
    harness.fetch(record(0, "a"))
    harness.work({0: [PUT_OFF]})
    assert not harness.notices
    assert tried(harness) == {}
    status = harness.sub().closed.lanes[lane_of(record(0, "a"))]
    assert (status.state, status.failures) == (LaneState.WAITING, 0)


@pytest.mark.parametrize("ending", [None, Drop(), failure(Disposition.DEAD_LETTER)])
def test_what_was_put_off_may_end_as_anything(ending: Ending) -> None:
    harness = harness_with(dlq=True)
    harness.assign()
    harness.fetch(record(0, "a"))
    harness.work({0: [PUT_OFF]})
    harness.later(60.0)
    harness.work({0: [ending]})
    if harness.publishes:
        assert harness.publishes[0].attempts == 1
        harness.dead_letter()
    assert harness.committed() == (1, [])
