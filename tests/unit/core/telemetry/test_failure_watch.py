"""When most attempts fail, it is found within seconds; a poison record is no outage."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.core.contract.events import DeadLetterAnswer, LeaseDue
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import TopicPartition
from tests.support.core_harness import Harness
from tests.support.failing_dependency import (
    REFUSED,
    Handler,
    Traffic,
    every,
    fails,
    fails_for,
    of_partition,
    of_topic,
    puts_off,
    succeeds,
)
from tests.support.records import P0, P1, record

IN_TIME = 9.0
"""Seconds after which a total outage is found: the console shows it a second later."""

LETTERS: dict[str, Any] = {"on_exhausted": "dead_letter", "dlq": True}
LONG = RetryPolicy(attempts=100, backoff=60.0, backoff_max=600.0)
AUDIT = TopicPartition("audit", 0)

POLICIES: dict[str, dict[str, Any]] = {
    "dead letters": LETTERS,
    "block": {"on_exhausted": "block"},
    "drop": {"on_exhausted": "drop"},
    "divert": {"on_exhausted": "divert", "dlq": True},
    "block and archive": {"on_exhausted": "block_and_dlq", "dlq": True},
    "long back-off": {"on_exhausted": "block", "retry": LONG},
    "one lease per key": {**LETTERS, "one_in_flight_per_key": True},
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_total_outage_is_found_in_time_under_each_policy(policy: str) -> None:
    traffic = Traffic(**POLICIES[policy])
    assert traffic.go_on(10, 40) == []
    assert traffic.until(20, 40, fails) <= IN_TIME
    (rate,) = [each for each in traffic.rates if each.what == "attempts"]
    assert rate.level == "fail"
    assert (rate.error, rate.where, rate.message) == ("ConnectionError", "app.py:9", "refused")
    assert rate.error_share == 1.0
    assert 0 < rate.seconds <= IN_TIME


@pytest.mark.parametrize("rate", [0.5, 1, 5, 100])
def test_an_outage_right_after_the_start_is_found(rate: float) -> None:
    assert Traffic(**LETTERS).until(30, rate, fails) <= max(IN_TIME, 3 / rate + 6)


@pytest.mark.parametrize("rate", [1, 40])
def test_no_rate_is_said_to_be_of_a_time_before_the_start(rate: float) -> None:
    """The longest window is five minutes, and an instance that has just started has had none."""
    traffic = Traffic(**LETTERS)
    passed = traffic.until(30, rate, fails)
    assert {each.what for each in traffic.rates} == {"attempts", "given_up"}
    assert all(0 < each.window_seconds <= passed + 0.5 for each in traffic.rates)
    assert all(each.window_seconds < 300 for each in traffic.go_on(200, rate, fails))


@pytest.mark.parametrize("after", [2.0, 30.0])
def test_attempts_that_are_all_put_off_are_found(after: float) -> None:
    traffic = Traffic(keys=5_000, **LETTERS)
    traffic.go_on(10, 40)
    assert traffic.until(20, 40, puts_off(after)) <= IN_TIME
    (rate,) = traffic.go_on(60, 40, puts_off(after))
    assert rate.put_off
    assert rate.level == "fail", "records are put off again and again"


def test_records_that_are_put_off_once_are_a_delay_and_no_outage() -> None:
    """So a topic works whose records are not to be done before their time has come."""
    seen: set[tuple[str, int, int]] = set()

    def later(each: Any) -> Any:
        at = each.topic(), each.partition(), each.offset()
        if at in seen:
            return None
        seen.add(at)
        return puts_off(5.0)(each)

    traffic = Traffic(keys=5_000, **LETTERS)
    traffic.go_on(20, 50, later)
    for _ in traffic.run(60, 50, later):
        assert not traffic.high()


def test_slow_traffic_that_fails_is_found() -> None:
    traffic = Traffic(**LETTERS)
    assert traffic.go_on(300, 0.05) == []
    assert traffic.until(300, 0.05, fails) <= 120
    assert traffic.until_over(60, 0.05) <= 25, "the first success and some seconds"


def test_an_outage_is_found_in_time_while_workers_are_evicted_and_their_records_lost() -> None:
    """With on_evict="ack" these records count as done, and no handler has seen them."""
    traffic = Traffic(workers=tuple("abcdefgh"), on_evict="ack", **LETTERS)
    pool = traffic.harness.pool
    pool.replaceable = False
    traffic.go_on(20, 2)
    found_at = float("inf")
    for second in range(0, 12, 2):
        next(each for each in pool.workers.values() if each.alive).die()
        found_at = min(found_at, second + traffic.until(2, 2, fails))
    assert traffic.harness.sub().counts.written_off > 0
    assert found_at <= IN_TIME


@pytest.mark.parametrize(
    ("workers", "beats", "done"), [("a", 1, 22), ("a", 3, 20), ("a", 3, 28), ("abcdef", 12, 20)]
)
def test_successes_from_before_an_outage_do_not_hide_it(
    workers: str, beats: int, done: int
) -> None:
    """Each call lasts so many heartbeats then, so a slice that began well ends long after."""
    settings = SubscriptionSettings(
        workers=tuple(workers), on_exhausted="block", retry=RetryPolicy(attempts=1)
    )
    harness = Harness(settings)
    harness.assign()
    harness.fetch(*[record(offset, f"key-{offset}") for offset in range(100 * len(workers))])
    those = list(harness.pool.workers.values())
    for worker in those:
        for _ in range(done):
            assert worker.start() is not None
            worker.finish()
        assert worker.start() is not None
    for beat in range(1, 60):
        harness.beat()
        assert harness.sub().failure_watch.rates or beat / 2 < IN_TIME
        for number, worker in enumerate(those):
            if beat % beats == number * 2 % beats:
                worker.finish(REFUSED)
                harness.deliver()
                assert worker.start() is not None


def test_a_few_keys_in_a_long_back_off_are_found_while_their_records_wait() -> None:
    traffic = Traffic(keys=8, on_exhausted="block", retry=LONG)
    traffic.go_on(10, 40)
    assert traffic.until(20, 40, fails) <= IN_TIME
    for _ in traffic.run(50, 0, fails):
        assert traffic.high(), "nothing was tried, and nothing has succeeded"


QUIET: dict[str, tuple[dict[str, Any], float, Handler]] = {
    "one poison key among ten, slowly": ({"keys": 10}, 0.2, fails_for(b"key-3")),
    "one poison key among ten": ({"keys": 10}, 10, fails_for(b"key-3")),
    "two poison keys among ten": ({"keys": 10}, 2, fails_for(b"key-3", b"key-7")),
    "one record in ten": ({}, 50, every(10)),
}


def test_where_many_keys_fail_attempts_are_compared_and_not_records() -> None:
    traffic = Traffic(keys=5_000, **LETTERS)
    traffic.go_on(60, 20, every(4))
    (rate,) = [each for each in traffic.rates if each.what == "attempts"]
    assert rate.share == pytest.approx(5 / 8, abs=0.1), "five attempts of one, one each of three"


@pytest.mark.parametrize("what", QUIET)
def test_poison_among_others_is_no_outage(what: str) -> None:
    settings, rate, handler = QUIET[what]
    traffic = Traffic(**settings, **LETTERS)
    for _ in traffic.run(120, rate, handler):
        assert not traffic.high()


def test_one_failing_record_is_no_outage_however_often_it_is_tried() -> None:
    traffic = Traffic(keys=1, on_exhausted="block", retry=RetryPolicy(attempts=1_000, factor=1.0))
    traffic.go_on(2, 2)
    for _ in traffic.run(120, 0.5, fails):
        assert not traffic.high()


def test_a_burst_that_leaves_poison_behind_is_no_outage() -> None:
    traffic = Traffic(**LETTERS, retry=RetryPolicy(attempts=20))
    for _ in range(5):
        for _ in traffic.run(1, 200, every(10)):
            assert not traffic.high()
        for _ in traffic.run(4, 0, every(10)):
            assert not traffic.high()


def test_a_dependency_that_blinks_is_no_outage() -> None:
    traffic = Traffic(**LETTERS)
    traffic.go_on(10, 50)
    for _ in range(3):
        for _ in traffic.run(1, 50, fails):
            assert not traffic.high()
        for _ in traffic.run(10, 50):
            assert not traffic.high()


def test_half_of_the_records_is_most() -> None:
    traffic = Traffic(keys=5_000, **LETTERS)
    traffic.go_on(10, 50)
    assert traffic.until(40, 50, every(2)) <= 40
    assert all(0.45 < each.share < 0.9 for each in traffic.rates if each.what == "attempts")
    for _ in traffic.run(30, 50, every(2)):
        assert traffic.high(), "it does not come and go"


def test_one_topic_that_fails_is_named_and_the_others_are_not() -> None:
    traffic = Traffic(partitions=(P0, P1, P0, P1, P0, P1, AUDIT), **LETTERS)
    traffic.go_on(10, 100)
    assert traffic.until(30, 100, of_topic("audit")) <= IN_TIME
    assert {(each.topic, each.partition) for each in traffic.rates} == {("audit", None)}


def test_one_partition_that_fails_is_named_and_the_others_are_not() -> None:
    traffic = Traffic(partitions=(*(P0,) * 9, P1), **LETTERS)
    traffic.go_on(10, 100)
    assert traffic.until(30, 100, of_partition(P1)) <= IN_TIME
    assert {(each.topic, each.partition) for each in traffic.rates} == {("orders", 1)}


def test_only_the_widest_place_is_named_also_when_it_begins_and_ends() -> None:
    traffic = Traffic(partitions=(P0, P1, AUDIT), **LETTERS)
    traffic.go_on(20, 60)
    places: set[tuple[str, int | None]] = set()
    for seconds, handler in ((20, fails), (40, succeeds)):
        for _ in traffic.run(seconds, 60, handler):
            places.update((each.topic, each.partition) for each in traffic.rates)
    assert places == {("", None)}


def test_a_share_is_that_of_its_window_also_while_an_outage_ends() -> None:
    traffic = Traffic(**LETTERS)
    traffic.go_on(10, 40)
    traffic.go_on(20, 40, fails)
    for _ in traffic.run(30, 40):
        assert all(each.count and each.share > 0.02 for each in traffic.rates)


def test_a_partition_that_goes_takes_its_rate_along() -> None:
    traffic = Traffic(partitions=(*(P0,) * 9, P1), **LETTERS)
    traffic.go_on(10, 100)
    traffic.go_on(15, 100, of_partition(P1))
    traffic.harness.revoke(P1)
    traffic.harness.beat()
    assert not traffic.high()


@pytest.mark.parametrize("policy", POLICIES)
def test_an_outage_is_over_seconds_after_attempts_succeed_again(policy: str) -> None:
    traffic = Traffic(keys=100_000, **POLICIES[policy])
    traffic.go_on(10, 30)
    traffic.go_on(20, 30, fails)
    assert traffic.high()
    assert traffic.until_over(30, 30) <= 8.0
    for _ in traffic.run(20, 30):
        assert not traffic.high(), "and does not come back"


def test_nothing_to_do_after_an_outage_is_no_outage_for_ever() -> None:
    traffic = Traffic(**LETTERS)
    traffic.go_on(10, 30)
    traffic.go_on(20, 30, fails)
    assert traffic.high()
    assert traffic.until_over(60, 0) <= 45
    assert traffic.go_on(60, 0) == []
    assert traffic.codes() == []


def test_blocked_keys_are_told_on_when_nothing_is_left_to_try() -> None:
    traffic = Traffic(keys=20, on_exhausted="block")
    traffic.go_on(10, 30)
    traffic.go_on(20, 30, fails)
    assert traffic.until_over(60, 0) <= 60
    assert traffic.codes() == ["key-blocked"]


# --- records that are given up ---


@pytest.mark.parametrize("policy", ["dead letters", "drop", "divert", "one lease per key"])
def test_records_given_up_in_an_outage_are_found(policy: str) -> None:
    traffic = Traffic(keys=30, **POLICIES[policy])
    traffic.go_on(10, 40)
    assert traffic.until(30, 40, fails, "given_up") <= 12
    traffic.go_on(10, 40, fails)
    (rate,) = [each for each in traffic.rates if each.what == "given_up"]
    assert (rate.level, rate.error) == ("fail", "ConnectionError")


def test_one_record_in_six_that_is_given_up_is_a_warning() -> None:
    traffic = Traffic(keys=5_000, **LETTERS)
    traffic.go_on(30, 60, every(6))
    (rate,) = traffic.rates
    assert (rate.what, rate.level) == ("given_up", "warn")
    assert 0.1 < rate.share < 0.25
    assert traffic.codes()[0] == "dead-lettering-much"


@pytest.mark.parametrize("policy", ["dead_letter", "drop"])
def test_records_without_a_readable_key_that_are_given_up_are_found(policy: str) -> None:
    def unreadable(each: Any) -> bytes:
        raise ValueError(f"no key in {each.offset()}")

    traffic = Traffic(dlq=True, on_exhausted="dead_letter", key_of=unreadable, undecodable=policy)
    assert traffic.until(10, 20, succeeds, "given_up") <= 5
    assert {each.error for each in traffic.rates} == {"Undecodable"}


def test_a_few_letters_of_one_key_are_not_much() -> None:
    traffic = Traffic(keys=10, **LETTERS)
    for _ in traffic.run(120, 5, fails_for(b"key-3")):
        assert not traffic.high("given_up")


def test_given_up_is_over_when_records_are_done_again() -> None:
    traffic = Traffic(**LETTERS)
    traffic.go_on(10, 30)
    traffic.go_on(20, 30, fails)
    assert traffic.high("given_up")
    traffic.go_on(15, 30)
    assert traffic.rates == []


# --- letters that are refused ---


@pytest.mark.parametrize("for_good", [True, False])
def test_a_letter_that_is_refused_for_good_is_named_at_the_first_refusal(for_good: bool) -> None:
    traffic = Traffic(keys=1, retry=RetryPolicy(attempts=1), **LETTERS)
    traffic.refusal = "unknown topic"
    traffic.go_on(0.5, 2, fails)
    harness = traffic.harness
    harness.tell(DeadLetterAnswer(harness.publishes.pop(), "unknown topic", for_good=for_good))
    assert ("dlq-refusing" in traffic.codes()) is for_good
    harness.now += 1.0
    harness.tell(LeaseDue())
    harness.tell(DeadLetterAnswer(harness.publishes.pop(), "no leader"))
    assert "dlq-refusing" in traffic.codes(), "twice is enough for any"
