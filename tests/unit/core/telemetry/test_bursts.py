"""Many events of one kind come out as few lines; the first is never held back."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.facts import RecordsShed, Repeats
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.lanes.closed import ClosedLane
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.telemetry.bursts import INTERVAL, REMIND_EVERY, Burst
from kafka_keyshared.executors.notice_text import line_of
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, record

ONCE = RetryPolicy(attempts=1)
DLQ = SubscriptionSettings(on_exhausted="dead_letter", dlq=True, retry=ONCE)


def failing(settings: SubscriptionSettings, count: int) -> Harness:
    """``count`` records of as many keys, each of which fails once and for all."""
    harness = Harness(settings)
    harness.assign()
    harness.fetch(*(record(offset, f"key-{offset}") for offset in range(count)))
    harness.work({offset: [ERROR] for offset in range(count)})
    return harness


def lines(harness: Harness, part: str) -> list[str]:
    return [notice.text for notice in harness.notices if part in notice.text]


def test_the_first_dead_letter_is_told_at_once_with_its_reason() -> None:
    harness = failing(DLQ, 3)
    harness.dead_letter()
    (line,) = lines(harness, "went to the dead-letter topic")
    assert line.startswith("orders-0@")
    assert "(key b'key-" in line
    # By this name `keyshared dlq show` has it.
    assert (
        "went to the dead-letter topic as orders.dlq-1@7 (1 attempt, last: ValueError: no" in line
    )


def test_a_dead_letter_that_was_refused_is_told_with_its_key() -> None:
    harness = failing(DLQ, 1)
    harness.dead_letter("no room")
    (line,) = lines(harness, "was not written")
    assert line.startswith(
        "dead letter of orders-0@0 (key b'key-0') was not written (try 1): no room"
    )


def test_a_burst_of_dead_letters_is_one_line_with_count_time_and_the_first() -> None:
    harness = failing(DLQ, 30)
    for _ in range(30):
        harness.dead_letter()
    harness.beat(int(INTERVAL / 0.5) + 1)
    _first, burst = lines(harness, "went to the dead-letter topic")
    assert burst.startswith(
        "29 more records went to the dead-letter topic in 10 s, the last 10 s ago, the first: "
    )
    assert "orders-0@" in burst
    harness.beat(int(INTERVAL / 0.5) + 1)
    assert len(lines(harness, "went to the dead-letter topic")) == 2, "nothing more happened since"


def test_one_more_is_told_in_its_own_words_and_how_long_ago_it_was() -> None:
    harness = failing(DLQ, 2)
    harness.dead_letter()
    harness.dead_letter()
    harness.beat(int(INTERVAL / 0.5) + 1)
    first, second = lines(harness, "went to the dead-letter topic")
    assert first.startswith("orders-0@0 ")
    assert second.startswith("10 s ago: orders-0@1 ")


def test_what_goes_on_is_told_without_an_age() -> None:
    told: Burst[RecordsShed] = Burst()
    said = []
    for at in range(200):
        said += [*told.add(RecordsShed("w", at), at / 10), *told.due(at / 10)]
    assert [each.fact for each in said] == [RecordsShed("w", 0), RecordsShed("w", 1)]
    assert said[0].repeats is None
    assert line_of(said[1]).text.startswith(
        "100 more times a worker was full and records dropped in 10 s, the first: w is full: 1 "
    )


def test_what_is_only_counted_needs_no_details() -> None:
    described: list[int] = []
    told: Burst[RecordsShed] = Burst()
    for each in range(1_000):
        if not told.only_counted(each / 1_000):
            described.append(each)
            told.add(RecordsShed("w", each), each / 1_000)
    assert described == [0, 1]
    (notice,) = told.due(INTERVAL)
    assert notice.fact == RecordsShed("w", 1)
    assert notice.repeats == Repeats(999, INTERVAL, INTERVAL - 0.999)
    assert line_of(notice).text.startswith(
        "999 more times a worker was full and records dropped in 10 s, the last 9 s ago, the first"
    )


def test_a_dlq_that_refuses_many_is_told_in_few_lines() -> None:
    harness = failing(DLQ, 30)
    for _ in range(30):
        harness.dead_letter("UNKNOWN_TOPIC_OR_PART")
    (line,) = lines(harness, "was not written")
    assert "UNKNOWN_TOPIC_OR_PART" in line
    assert "next try in 1 s" in line
    harness.beat(int(INTERVAL / 0.5) + 1)
    (counted,) = lines(harness, "29 more dead letters were not written in 10 s")
    assert "next try" not in counted, "that was long ago"


def test_blocked_keys_are_told_in_few_lines_and_the_first_by_name() -> None:
    harness = failing(SubscriptionSettings(retry=ONCE), 30)
    (line,) = lines(harness, "is blocked at")
    assert line.startswith("key b'key-")
    harness.beat(int(INTERVAL / 0.5) + 1)
    assert len(lines(harness, "29 more keys are blocked in 10 s")) == 1


def test_blocked_keys_are_named_again_once_a_minute_the_oldest_first() -> None:
    harness = failing(SubscriptionSettings(retry=ONCE), 1)
    harness.beat(20)
    harness.fetch(*(record(offset, f"later-{offset}") for offset in range(1, 13)))
    harness.work({offset: [ERROR] for offset in range(1, 13)})
    harness.beat(99)
    assert not lines(harness, "keys are blocked, the oldest"), "it was named a minute ago"
    harness.beat(1)
    (line,) = lines(harness, "keys are blocked, the oldest")
    assert line.startswith(
        "13 keys are blocked, the oldest for 1 min: b'key-0' at orders-0@0 (ValueError), b'later-"
    )
    assert line.count("ValueError") == 10
    assert "and 3 more. Mend the handler" in line
    harness.beat(int(10 * REMIND_EVERY / 0.5))
    assert len(lines(harness, "keys are blocked, the oldest")) == 11


def test_lanes_are_walked_for_it_once_a_minute_and_not_while_none_is_blocked() -> None:
    walks: list[float] = []

    def lanes(at: float) -> Iterator[ClosedLane]:
        walks.append(at)
        yield from harness.sub().closed.lanes.values()

    harness = failing(SubscriptionSettings(), 5)
    reminder = harness.sub().reminder
    for at in range(1_000):
        assert reminder.remind(lanes(at), harness.now + at) == []
    assert walks == [], "what waits for a retry is no reason to look"
    harness = failing(SubscriptionSettings(retry=ONCE), 5)
    reminder = harness.sub().reminder
    told = [at for at in range(600) if reminder.remind(lanes(at), harness.now + at)]
    assert told == [60 * minute for minute in range(1, 10)]
    assert len(walks) <= len(told) + 1


def test_a_key_that_has_just_blocked_is_not_named_twice_and_one_that_is_gone_no_more() -> None:
    harness = failing(SubscriptionSettings(retry=ONCE), 1)
    harness.beat(int(REMIND_EVERY / 0.5) - 1)
    assert not lines(harness, "1 key is blocked")
    harness.revoke(P0)
    harness.beat(int(3 * REMIND_EVERY / 0.5))
    assert not lines(harness, "1 key is blocked")


def test_a_stop_holds_nothing_back() -> None:
    harness = failing(DLQ, 5)
    for _ in range(3):
        harness.dead_letter()
    harness.tell(ev.Stopping())
    assert len(lines(harness, "2 more records went to the dead-letter topic")) == 1
    harness.dead_letter()
    harness.dead_letter()
    assert len(lines(harness, "went to the dead-letter topic")) == 4
