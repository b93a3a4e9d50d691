"""Divert: this and every later record of the lane go to the dead-letter topic, in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.failures.lane_actions import shown
from kafka_keyshared.core.lanes.closed import LaneState
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import LANES_MOST, LaneNotes, hash_of
from kafka_keyshared.core.records.lane_identity import NULL_KEY, Lane, OrderScope, lane_by, lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import LANE_KEY_BYTES
from kafka_keyshared.lab.simulator.commit_text import read_notes
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import PoolKind
from kafka_keyshared.model import TopicPartition
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, P1, TOPIC, FakeRecord, record

ONE_TRY = RetryPolicy(attempts=1)


def settings(**more: object) -> SubscriptionSettings:
    wanted = {"on_exhausted": "divert", "dlq": True, "retry": ONE_TRY, **more}
    return SubscriptionSettings(**wanted)  # type: ignore[arg-type]


def diverting(**more: object) -> Harness:
    harness = Harness(settings(**more))
    harness.assign()
    return harness


def state_of(harness: Harness, key: str = "a") -> LaneState:
    return harness.sub().closed.lanes[lane_of(record(0, key))].state


def letters(harness: Harness) -> list[int]:
    """Have every dead letter acknowledged that there is, and that follows; return their offsets."""
    written = []
    while harness.publishes:
        written.append(harness.dead_letter().record.offset())
    return written


def refused(harness: Harness) -> list[tuple[int, str]]:
    """Return how often the letter of each closed lane was refused, and why at last."""
    sub = harness.sub()
    said = [shown(sub, each, harness.now, 0.0) for each in sub.closed.lanes.values()]
    return [(each.refused, each.refusal) for each in said]


def lanes_in(text: str, position: int, sub: str = "default") -> set[bytes]:
    found = read_notes(text, position).get(sub)
    return found.lanes if found is not None else set()


def stored(harness: Harness) -> tuple[int, str]:
    (commit,) = harness.commit()
    harness.answer(commit)
    entry = commit.entries[P0]
    return entry.position, entry.metadata


def restarted(harness: Harness, **more: object) -> Harness:
    position, text = stored(harness)
    again = Harness(settings(**more))
    again.assign(position=position, metadata=text, log=(0, 1_000))
    return again


def of(key: str, *offsets: int) -> Sequence[FakeRecord]:
    return [record(offset, key) for offset in offsets]


# --- the rule ---


def test_this_and_every_later_record_of_the_lane_go_there_in_order_and_none_runs() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0), *of("b", 1), *of("a", 2, 3), *of("b", 4))
    assert harness.work({0: [ERROR]}) == [0, 1, 4]
    harness.fetch(*of("a", 5), *of("b", 6))
    assert harness.work() == [6]
    assert letters(harness) == [0, 2, 3, 5]
    assert state_of(harness) is LaneState.DIVERTED
    harness.fetch(*of("a", 7))
    assert letters(harness) == [7]
    assert harness.work() == []
    assert harness.committed() == (8, [])


def test_one_letter_of_a_lane_is_on_its_way_at_a_time() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1, 2))
    harness.work({0: [ERROR]})
    assert len(harness.publishes) == 1
    harness.beat(3)
    assert len(harness.publishes) == 1
    harness.dead_letter()
    assert [each.record.offset() for each in harness.publishes] == [1]


def test_a_letter_that_was_not_written_settles_nothing_and_is_tried_again_before_the_next() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1, 2))
    harness.work({0: [ERROR]})
    harness.dead_letter()
    harness.dead_letter("no leader")
    assert refused(harness) == [(1, "no leader")]
    assert harness.committed() == (1, [])
    assert not harness.publishes
    harness.later(1.0)
    harness.dead_letter()
    assert refused(harness) == [(0, "")]
    assert letters(harness) == [2]
    assert harness.committed() == (3, [])


def test_letters_of_what_was_not_run_say_so_and_of_what_key() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    first, second = harness.dead_letter(), harness.dead_letter()
    assert (first.attempts, first.last.error_type) == (1, "ValueError")
    assert (second.attempts, second.last.error_type) == (0, "Diverted")
    assert "key b'a' is diverted; it failed with ValueError: no such flight" in second.last.message
    processed = harness.sub().counts.processed.counts["orders"]
    assert (processed["dead_lettered"], processed["diverted"]) == (1, 1)
    assert harness.said("key b'a' is diverted from orders-0@0 on")
    assert harness.said("orders-0@1 (key b'a') went to the dead-letter topic unrun")


def test_thousands_of_letters_make_a_few_lines() -> None:
    harness = diverting()
    harness.checks = False
    harness.fetch(*of("a", *range(2_000)))
    harness.work({0: [ERROR]})
    assert letters(harness) == list(range(2_000))
    harness.beat(30)
    told = [each.text for each in harness.notices if "went to the dead-letter topic" in each.text]
    assert len(told) <= 4
    assert any("1,998 more records of diverted keys" in each for each in told)


def test_a_record_without_a_key_has_no_lane_to_divert_and_is_dead_lettered() -> None:
    harness = diverting()
    harness.fetch(record(0, None), record(1, None))
    assert harness.work({0: [ERROR]}) == [0, 1]
    harness.dead_letter()
    assert harness.committed() == (2, [])
    assert not harness.sub().diverted
    assert not harness.sub().closed.lanes


def test_what_was_leased_with_it_comes_back_and_goes_the_same_way() -> None:
    harness = diverting(workers=("worker-0",))
    harness.fetch(*of("a", 0, 1, 2), *of("b", 3), *of("a", 4))
    worker = harness.worker()
    worker.start()
    worker.finish(ERROR)
    harness.deliver()
    harness.dead_letter()  # before the worker has handed back what it holds of the lane
    assert not harness.publishes, "the fence has not passed"
    harness.work()
    assert letters(harness) == [1, 2, 4]
    assert harness.committed() == (5, [])


def test_with_one_lease_per_key_it_is_the_same() -> None:
    harness = diverting(one_in_flight_per_key=True)
    harness.fetch(*of("a", 0, 1), *of("b", 2), *of("a", 3))
    harness.work({0: [ERROR]})
    assert letters(harness) == [0, 1, 3]
    again = restarted(harness, one_in_flight_per_key=True)
    again.fetch(*of("a", 4, 5), *of("b", 6))
    assert again.work() == [6]
    assert letters(again) == [4, 5]
    assert again.committed() == (7, [])


# --- what travels ---


def test_a_restart_goes_on_diverting() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    letters(harness)
    again = restarted(harness)
    again.fetch(*of("b", 2), *of("a", 3, 4), *of("b", 5))
    assert again.work() == [2, 5]
    assert letters(again) == [3, 4]
    third = restarted(again)
    third.fetch(*of("a", 6))
    assert third.work() == []
    assert letters(third) == [6]
    assert third.committed() == (7, [])


def test_the_lane_travels_from_the_moment_it_is_diverted() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    position, text = stored(harness)
    assert (position, lanes_in(text, 0)) == (0, {hash_of(lane_of(record(0, "a")))})
    again = Harness(settings())
    again.assign(position=0, metadata=text, log=(0, 2))
    again.fetch(*of("a", 0, 1))
    assert again.work() == [], "a crash lost the letter, and not the decision"
    assert letters(again) == [0, 1]


def test_a_lane_that_came_diverted_and_has_no_record_yet_is_handed_on() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0))
    harness.work({0: [ERROR]})
    letters(harness)
    again = restarted(harness)
    again.fetch(*of("b", 1))
    again.work()
    position, text = stored(again)
    assert (position, lanes_in(text, 2)) == (2, {hash_of(lane_of(record(0, "a")))})


def test_so_it_is_when_the_partition_goes_and_comes_back() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    (commit,) = harness.revoke(P0)
    assert not harness.sub().diverted
    assert not harness.sub().closed.lanes
    entry = commit.entries[P0]
    harness.publishes.clear()
    harness.assign(position=entry.position, metadata=entry.metadata, log=(0, 2))
    harness.fetch(*of("a", 0, 1))
    assert harness.work() == []
    assert letters(harness) == [0, 1]


def test_a_partition_that_is_lost_and_comes_straight_back_goes_on_diverting() -> None:
    harness = diverting()
    harness.fetch(*of("b", 0))
    harness.work()
    position, text = stored(harness)
    harness.fetch(*of("a", 1, 2))
    harness.work({1: [ERROR]})
    harness.dead_letter()
    harness.revoke(P0, commit=False)
    harness.publishes.clear()
    harness.assign(position=position, metadata=text, log=(0, 4))
    harness.fetch(*of("a", 2, 3))
    assert harness.work() == []
    assert letters(harness) == [2, 3]


def test_at_most_32_lanes_of_a_partition_are_diverted_then_the_next_one_is_blocked() -> None:
    harness = diverting()
    most = LANES_MOST + 2
    harness.fetch(*[record(offset, f"key-{offset}") for offset in range(most)])
    harness.fetch(*[record(most + offset, f"key-{offset}") for offset in range(most)])
    harness.work({offset: [ERROR] for offset in range(most)})
    letters(harness)
    states = [state_of(harness, f"key-{offset}") for offset in range(most)]
    assert states.count(LaneState.DIVERTED) == LANES_MOST
    assert states.count(LaneState.BLOCKED) == 2
    assert harness.said("It is not diverted, because 32 keys of its partition are")
    _, text = stored(harness)
    assert len(lanes_in(text, stored_position(harness))) == LANES_MOST


def stored_position(harness: Harness) -> int:
    return harness.commits[-1].entries[P0].position


def test_a_lane_that_is_diverted_elsewhere_is_blocked_where_32_are() -> None:
    harness = diverting()
    harness.assign(P1)
    harness.fetch(record(0, "a"))
    harness.work({0: [ERROR]})
    assert letters(harness) == [0]
    harness.fetch(*[record(at, f"key-{at}", P1) for at in range(LANES_MOST)])
    harness.work({at: [ERROR] for at in range(LANES_MOST)})
    harness.fetch(*of("a", 1), record(40, "a", P1), *of("a", 2), record(41, "key-0", P1))
    assert sorted(letters(harness)) == sorted([*range(LANES_MOST), 1, 41])
    assert harness.work() == []
    assert state_of(harness) is LaneState.BLOCKED
    assert harness.said("key b'a' is blocked at orders-1@40: it is diverted in another partition (")
    assert harness.said(f"It is not diverted, because {LANES_MOST} keys of its partition are")
    assert len(harness.sub().diverted.hashes(P1)) == LANES_MOST
    harness.tell(ev.LaneOrder("default", ev.LaneAction.DROP, b"a"))
    assert letters(harness) == [2], "it is diverted elsewhere still"
    assert harness.core.unsettled_count() == 0


def test_several_subscriptions_share_the_room_and_divert_each_for_itself() -> None:
    first = settings(name="default")
    second = settings(name="audit", on_exhausted="block", dlq=False)
    harness = Harness(first, second)
    harness.assign()
    assert harness.sub().diverted.most == harness.sub("audit").diverted.most == LANES_MOST // 2
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    letters(harness)
    _, text = stored(harness)
    found = read_notes(text, stored_position(harness))
    assert [name for name, notes in found.items() if notes.lanes] == ["default"]


def test_other_scopes_of_order_have_other_lanes_to_divert() -> None:
    scopes: tuple[OrderScope, ...] = ("topic", "partition", "subscription")
    for scope in scopes:
        harness = diverting(order_scope=scope)
        harness.assign(P1)
        harness.fetch(*of("a", 0))
        harness.work({0: [ERROR]})
        harness.fetch(record(0, "a", P1), record(1, "a", P0))
        ran = harness.work()
        assert ran == ([0] if scope == "partition" else []), scope
        assert letters(harness) == ([0, 1] if scope == "partition" else [0, 0, 1])


# --- two partitions with one lane ---


def came_diverted(harness: Harness, partition: object = P1) -> None:
    del partition
    notes = {"default": LaneNotes(frozenset({hash_of(lane_of(record(0, "a")))}))}
    harness.assign(P1, position=0, metadata=encode(here(0, P1), {}, notes=notes).text, log=(0, 100))


def test_what_runs_of_another_partition_when_the_lane_comes_diverted_ends_first() -> None:
    harness = diverting(workers=("worker-0",))
    harness.fetch(*of("a", 0, 1))
    worker = harness.worker()
    worker.start()
    came_diverted(harness)
    harness.fetch(record(0, "a", P1))
    assert not harness.publishes, "what came before it runs"
    worker.finish()
    assert harness.work() == [1]
    assert [each.record.partition() for each in harness.publishes] == [1]
    letters(harness)
    assert harness.committed() == (2, [])


def test_what_fails_of_it_then_goes_there_first() -> None:
    harness = diverting(workers=("worker-0",))
    harness.fetch(*of("a", 0, 1))
    harness.worker().start()
    came_diverted(harness)
    harness.fetch(record(5, "a", P1))
    harness.worker().finish(ERROR)
    assert harness.work() == []
    assert letters(harness) == [0, 1, 5]
    assert harness.committed() == (2, [])


def test_its_attempt_counts_when_the_lane_is_diverted_no_more_before_it_is_sent() -> None:
    harness = diverting(workers=("worker-0",), retry=RetryPolicy(attempts=2, backoff=0.0))
    harness.fetch(*of("a", 0, 1))
    harness.worker().start()
    came_diverted(harness)
    harness.fetch(record(5, "a", P1))
    harness.worker().finish(ERROR)
    harness.deliver()
    assert not harness.publishes, "what came before has not all come back"
    harness.revoke(P1)
    assert harness.work({0: [ERROR]}) == [0]
    assert harness.publishes[0].attempts == 2
    assert letters(harness) == [0, 1]


@pytest.mark.parametrize("ending", [None, ERROR])
@pytest.mark.parametrize("kind", ["thread", "instance"])
def test_what_is_stuck_of_another_partition_goes_first_however_late(
    kind: PoolKind, ending: Ending
) -> None:
    harness = diverting(workers=("worker-0",), ack_timeout=1.0)
    harness.pool.kind = kind
    harness.fetch(*of("a", 0, 1))
    worker = harness.worker()
    hanging = worker.start()
    assert hanging is not None
    came_diverted(harness)
    harness.fetch(record(5, "a", P1))
    harness.beat(6)
    harness.deliver()
    assert state_of(harness) is LaneState.STUCK
    harness.fetch(record(6, "a", P1))
    harness.beat()
    harness.deliver()
    assert not harness.publishes, "what came before it runs"
    if worker.running is None:
        worker.finish_apart(hanging, ending)
    else:
        worker.finish(ending)
    assert harness.work() == []
    assert letters(harness) == [*([0] if ending else []), 1, 5, 6]
    assert state_of(harness) is LaneState.DIVERTED
    assert harness.committed() == (2, [])


@pytest.mark.parametrize("ending", [None, ERROR])
def test_what_is_stuck_of_a_partition_that_has_gone_is_waited_for_too(ending: Ending) -> None:
    """Its handler still runs: were the lane released, the next one would run beside it."""
    harness = diverting(workers=("worker-0",), ack_timeout=1.0)
    harness.pool.kind = "thread"
    harness.fetch(*of("a", 0, 1))
    worker = harness.worker()
    hanging = worker.start()
    assert hanging is not None
    came_diverted(harness)
    harness.fetch(record(5, "a", P1))
    harness.revoke(P0)
    harness.beat(6)
    harness.deliver()
    assert state_of(harness) is LaneState.STUCK
    assert not harness.publishes, "what came before it runs"
    harness.tell(ev.LaneOrder("default", ev.LaneAction.UNBLOCK, b"a"))
    harness.fetch(record(6, "a", P1))
    assert harness.work() == []
    worker.finish_apart(hanging, ending)
    assert harness.work() == []
    assert letters(harness) == [5, 6]
    assert state_of(harness) is LaneState.DIVERTED


def test_a_lane_that_is_closed_when_it_comes_diverted_is_so_when_it_opens() -> None:
    harness = diverting(workers=("worker-0",), retry=RetryPolicy(attempts=3, backoff=1.0))
    harness.fetch(*of("a", 0))
    harness.work({0: [ERROR]})
    came_diverted(harness)
    harness.fetch(record(5, "a", P1))
    assert not harness.publishes
    harness.later(1.0)
    assert harness.work() == [0], "it came before, and is tried again"
    assert letters(harness) == [5]
    assert state_of(harness) is LaneState.DIVERTED


def test_what_another_partition_has_not_sent_yet_runs_when_the_diverted_one_goes() -> None:
    harness = diverting()
    harness.assign(P1)
    harness.fetch(*of("a", 0), record(7, "a", P1))
    harness.work({0: [ERROR]})
    harness.revoke(P0)
    harness.publishes.clear()
    assert harness.work() == [7]


def test_a_lane_stays_diverted_as_long_as_a_partition_has_it() -> None:
    harness = diverting()
    harness.assign(P1)
    harness.fetch(*of("a", 0), record(7, "a", P1))
    harness.work({0: [ERROR]})
    assert letters(harness) == [0, 7]
    harness.revoke(P0)
    harness.fetch(record(8, "a", P1))
    assert harness.work() == []
    assert letters(harness) == [8]


def came_with(*lanes: Lane, partition: TopicPartition = P0) -> str:
    notes = {"default": LaneNotes(frozenset(map(hash_of, lanes)))}
    return encode(here(0, partition), {}, notes=notes).text


def test_the_lane_of_missing_keys_is_not_taken_for_that_of_the_empty_key() -> None:
    harness = Harness(settings(null_keys="one-lane"))
    text = came_with(lane_by(record(1, None), NULL_KEY, "topic"))
    harness.assign(position=0, metadata=text, log=(0, 100))
    harness.fetch(record(0, ""), record(1, None), record(2, ""), record(3, None))
    assert harness.work() == [0, 2]
    assert letters(harness) == [1, 3]


# --- bounds ---


def test_what_is_remembered_of_keys_that_did_not_come_diverted_is_bounded() -> None:
    harness = diverting()
    text = came_with(lane_of(record(0, "a")), partition=P1)
    harness.assign(P1, position=0, metadata=text, log=(0, 100))
    longest, longer = "k" * LANE_KEY_BYTES, "k" * (LANE_KEY_BYTES + 1)
    places = [(TOPIC, 1, key.encode(), False) for key in ("b", longest, longer)]
    harness.fetch(*[record(at, each[2], P1) for at, each in enumerate(places)])
    assert list(map(harness.sub().diverted.seen, places)) == [True, True, False]
    harness.fetch(record(3, "a", P1))
    assert not any(map(harness.sub().diverted.seen, places)), "all that came diverted are known"


def test_what_a_diverted_lane_holds_counts_like_what_a_blocked_one_holds() -> None:
    harness = diverting(window_records=40)
    harness.fetch(*of("a", *range(15)))
    harness.work({0: [ERROR]})
    assert harness.paused == {P0}, "its topic may be down for as long as it likes"
    assert harness.said("orders-0 is stopped: records behind blocked, diverted or stuck keys")
    assert letters(harness) == list(range(15))
    harness.beat()
    assert harness.paused == set()


def test_nothing_new_is_sent_once_the_instance_stops() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    harness.tell(ev.Stopping())
    harness.dead_letter()
    assert not harness.publishes
    assert harness.committed() == (1, [])


def test_nothing_of_a_partition_is_sent_while_it_goes() -> None:
    harness = diverting()
    harness.fetch(*of("a", 0, 1))
    harness.work({0: [ERROR]})
    harness.tell(ev.Revoking([P0]))
    assert harness.core.under_way([P0], {}) == ([], 1)
    harness.dead_letter()
    assert not harness.publishes
    assert harness.committed() == (1, [])
