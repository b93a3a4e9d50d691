"""Block and dead-letter: archived once, and the lane stays closed. And what needs what."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.retry_policy import (
    WHERE_ORDER_IS_REQUIRED,
    PoisonPolicy,
    RetryPolicy,
    refuse_for_exclusive,
)
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.simulator.commit_text import read_notes
from tests.support.core_harness import Harness
from tests.support.records import ERROR, GIVE_UP, P0, record

ONE_TRY = RetryPolicy(attempts=1)
ARCHIVING = SubscriptionSettings(on_exhausted="block_and_dlq", dlq=True, retry=ONE_TRY)


def archiving() -> Harness:
    harness = Harness(ARCHIVING)
    harness.assign()
    return harness


def state_of(harness: Harness, key: str = "a") -> LaneState:
    return harness.sub().closed.lanes[lane_of(record(0, key))].state


def test_the_record_is_archived_once_and_its_lane_stays_closed_while_others_go_on() -> None:
    harness = archiving()
    harness.fetch(record(0, "a"), record(1, "b"), record(2, "a"), record(3, "b"))
    assert harness.work({0: [ERROR]}) == [0, 1, 3]
    assert state_of(harness) is LaneState.ARCHIVING
    assert harness.dead_letter().record.offset() == 0
    assert state_of(harness) is LaneState.BLOCKED
    for _ in range(5):
        harness.beat()
        assert harness.work() == []
    assert not harness.publishes
    assert harness.committed() == (0, [(1, 2), (3, 4)]), "an archived record is not settled"
    counts = harness.sub().counts
    assert (counts.dead_lettered, counts.dropped) == (0, 0)
    assert counts.dlq_writes.counts == {"orders": {"acknowledged": 1}}
    assert harness.said("key b'a' is blocked at orders-0@0")
    assert harness.said("Its copy is in the dead-letter topic")


def test_a_copy_that_was_not_written_is_tried_again_and_blocks_only_then() -> None:
    harness = archiving()
    harness.fetch(record(0, "a"), record(1, "a"))
    harness.work({0: [ERROR]})
    harness.dead_letter("no leader")
    assert state_of(harness) is LaneState.ARCHIVING
    assert harness.said("dead letter of orders-0@0 (key b'a') was not written (try 1): no leader")
    harness.later(1.0)
    assert len(harness.publishes) == 1
    harness.dead_letter()
    assert state_of(harness) is LaneState.BLOCKED
    assert harness.work() == []


def test_a_restart_does_not_archive_again_and_runs_the_record_once_more() -> None:
    harness = archiving()
    harness.fetch(record(0, "a"), record(1, "a"), record(2, "b"))
    harness.work({0: [ERROR]})
    harness.dead_letter()
    (commit,) = harness.commit()
    entry = commit.entries[P0]
    assert read_notes(entry.metadata, 0)["default"].tried == {0: (1, True)}
    for mended in (False, True):
        again = Harness(ARCHIVING)
        again.assign(position=entry.position, metadata=entry.metadata, log=(0, 3))
        again.fetch(record(0, "a"), record(1, "a"), record(2, "b"))
        assert again.work({} if mended else {0: [ERROR]}) == ([0, 1] if mended else [0])
        assert not again.publishes
        assert mended or state_of(again) is LaneState.BLOCKED
        assert again.committed() == ((3, []) if mended else (0, [(2, 3)]))


def test_a_crash_before_the_copy_is_acknowledged_archives_it_again() -> None:
    harness = archiving()
    harness.fetch(record(0, "a"))
    harness.work({0: [ERROR]})
    (commit,) = harness.commit()
    assert read_notes(commit.entries[P0].metadata, 0)["default"].tried == {0: (1, False)}


def test_a_copy_on_its_way_is_waited_for_at_a_revoke_and_settles_nothing_behind_it() -> None:
    harness = archiving()
    harness.fetch(record(0, "a"))
    harness.work({0: [ERROR]})
    assert harness.core.under_way([P0], {}) == ([], 1)
    harness.revoke(P0)
    assert not harness.sub().closed.lanes
    harness.assign()
    harness.dead_letter()
    assert not harness.sub().closed.lanes, "the answer is for a partition that has gone"
    harness.fetch(record(0, "a"))
    assert harness.work() == [0]


def test_a_record_without_a_key_is_archived_and_blocks_itself() -> None:
    harness = archiving()
    harness.fetch(record(0, None), record(1, None))
    harness.work({0: [ERROR]})
    harness.dead_letter()
    assert harness.committed() == (0, [(1, 2)])


def test_a_handler_that_asks_for_a_dead_letter_gets_one_under_every_policy_with_a_topic() -> None:
    for on_exhausted in ("drop", "dead_letter", "block", "block_and_dlq", "divert"):
        harness = Harness(SubscriptionSettings(on_exhausted=on_exhausted, dlq=True))
        harness.assign()
        harness.fetch(record(0, "a"), record(1, "a"))
        harness.work({0: [GIVE_UP]})
        harness.dead_letter()
        assert harness.work() == [1], on_exhausted
        assert harness.committed() == (2, [])


@pytest.mark.parametrize("on_exhausted", ["dead_letter", "block_and_dlq", "divert"])
def test_a_policy_that_writes_letters_is_refused_without_a_topic(on_exhausted: str) -> None:
    with pytest.raises(
        ConfigError, match=f"on_exhausted='{on_exhausted}' needs a dead-letter topic; give"
    ):
        SubscriptionSettings(on_exhausted=on_exhausted).check()  # type: ignore[arg-type]


@pytest.mark.parametrize("on_exhausted", ["drop", "dead_letter", "divert"])
def test_an_exclusive_routing_refuses_what_goes_on_behind_a_record(on_exhausted: str) -> None:
    said = f"subscription 's': on_exhausted='{on_exhausted}' goes on behind"
    wanted = f"{said} .* give 'block' or 'block_and_dl"
    with pytest.raises(ConfigError, match=wanted):
        refuse_for_exclusive(on_exhausted, "subscription 's'")  # type: ignore[arg-type]


@pytest.mark.parametrize("on_exhausted", ["block", "block_and_dlq"])
def test_an_exclusive_routing_takes_what_stops_it(on_exhausted: PoisonPolicy) -> None:
    assert on_exhausted in WHERE_ORDER_IS_REQUIRED
    refuse_for_exclusive(on_exhausted, "subscription 's'")


# --- what is said to do about it ---


@pytest.mark.parametrize("dlq", [False, True])
def test_who_has_a_dead_letter_topic_is_not_told_to_give_one(dlq: bool) -> None:
    harness = Harness(
        SubscriptionSettings(on_exhausted="block", dlq=dlq, retry=RetryPolicy(attempts=1))
    )
    harness.assign()
    harness.fetch(record(0, "a"))
    harness.work({0: [ERROR]})
    harness.beat(130)
    told = [each.text for each in harness.notices if "Mend the handler" in each.text]
    assert len(told) == 2, "at once, and after a minute"
    assert all(("give a dead-letter topic" in each) is not dlq for each in told)
    assert all(("app.dead_letter()" in each) is dlq for each in told)
