"""An outage of a dependency is told from poison: the subscription waits, and goes on by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.limits.circuit_breaker import (
    KEYS_LEAST,
    PROBE_FIRST,
    PROBE_MAX,
    PROBE_PATIENCE,
    CircuitBreaker,
    CircuitState,
)
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from tests.support.core_harness import Harness
from tests.support.failing_dependency import (
    REFUSED,
    Handler,
    Traffic,
    every,
    fails,
    fails_for,
    puts_off,
    succeeds,
)
from tests.support.records import ERROR, P0, P1, record

MINUTES = RetryPolicy(attempts=5, backoff=1.0, factor=5.0, backoff_max=120.0)
LETTERS: dict[str, Any] = {"on_exhausted": "dead_letter", "dlq": True, "retry": MINUTES}
POLICIES: dict[str, dict[str, Any]] = {
    "dead letters": LETTERS,
    "drop": {"on_exhausted": "drop", "retry": MINUTES},
    "block": {"on_exhausted": "block", "retry": MINUTES},
    "one worker": {**LETTERS, "workers": ("worker-0",)},
    "workers that share": {**LETTERS, "workers": ("a", "b", "c"), "pooled": True},
    "one lease per key": {**LETTERS, "one_in_flight_per_key": True},
    "one by one": {**LETTERS, "individually": True, "prefetch_records": 50},
}
AWAY = replace(REFUSED, waits=True)
IN_TIME = 9.0
"""Seconds in which an outage is noticed by the share of failures."""
WITHIN = 5.0
"""Seconds after the end of an outage in which records go on."""


def broken(**settings: Any) -> Traffic:
    return Traffic(breaker=True, **settings)


def breaker_of(traffic: Traffic | Harness) -> CircuitBreaker:
    harness = traffic.harness if isinstance(traffic, Traffic) else traffic
    breaker = harness.sub().breaker
    assert breaker is not None
    return breaker


def until_open(traffic: Traffic, handler: Handler = fails, rate: float = 40) -> float:
    for passed in traffic.run(30, rate, handler):
        if breaker_of(traffic).open:
            return passed
    return float("inf")


def counted(handler: Handler) -> tuple[Handler, list[int]]:
    calls = [0]

    def call(each: Any) -> Any:
        calls[0] += 1
        return handler(each)

    return call, calls


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("minutes", [1, 10])
def test_an_outage_costs_no_record_and_is_over_soon_after_its_end(
    policy: str, minutes: int
) -> None:
    traffic = broken(**POLICIES[policy])
    traffic.go_on(10, 40)
    assert until_open(traffic) <= IN_TIME
    handler, calls = counted(fails)
    traffic.go_on(60 * minutes, 40, handler)
    counts = traffic.harness.sub().counts
    assert (counts.dead_lettered, counts.dropped) == (0, 0)
    assert calls[0] <= 60 * minutes / (0.8 * PROBE_MAX) + 5, "only probes run"
    assert not traffic.harness.sub().closed.empty()
    done = counts.ok
    traffic.go_on(WITHIN, 40)
    assert not breaker_of(traffic).open
    assert counts.ok > done
    traffic.go_on(60, 40)
    assert (counts.dead_lettered, counts.dropped) == (0, 0)
    assert traffic.harness.sub().closed.empty()
    assert not traffic.harness.paused


@pytest.mark.parametrize("settings", [{}, {"individually": True}, {"pooled": True}])
@pytest.mark.parametrize("minutes", [1, 10])
def test_with_the_default_retries_an_outage_over_many_keys_costs_no_dead_letter(
    settings: dict[str, Any], minutes: int
) -> None:
    traffic = broken(keys=5_000, on_exhausted="dead_letter", dlq=True, **settings)
    traffic.go_on(10, 200)
    assert until_open(traffic, rate=200) <= 1.5
    traffic.go_on(60 * minutes, 200, fails)
    traffic.go_on(WITHIN, 200)
    assert not breaker_of(traffic).open
    traffic.go_on(30, 200)
    counts = traffic.harness.sub().counts
    assert (counts.dead_lettered, counts.dropped) == (0, 0)
    assert traffic.harness.sub().closed.empty()


@pytest.mark.parametrize("share", [2, 3, 10, 20])
def test_many_failures_in_one_slice_are_no_outage_if_others_of_it_are_done(share: int) -> None:
    """Its successes are reported when it ends."""
    traffic = broken(keys=5_000, retry=RetryPolicy(attempts=1), on_exhausted="drop")
    for _ in traffic.run(2, 2_000, every(share)):
        assert not breaker_of(traffic).open


def test_retries_of_many_poison_records_are_no_outage() -> None:
    """They run together, and all of them fail again; what succeeds is in other slices."""
    quick = RetryPolicy(attempts=4, backoff=0.3, factor=1.0, jitter=0.0)
    traffic = broken(keys=5_000, **{**LETTERS, "retry": quick})
    for _ in traffic.run(60, 400, every(10)):
        assert not breaker_of(traffic).open
    assert traffic.harness.sub().counts.dead_lettered > 1_000


def test_errors_that_name_a_dependency_are_believed_at_once_for_several_keys() -> None:
    traffic = broken(**LETTERS)
    traffic.go_on(5, 40)
    assert until_open(traffic, lambda _: AWAY) <= 1.0
    assert traffic.harness.said("waits for a dependency: attempts of several keys fail with")
    traffic.go_on(WITHIN, 40)
    assert traffic.harness.said("goes on after ")


def test_errors_that_name_a_dependency_use_up_no_attempt_of_a_single_key() -> None:
    once = RetryPolicy(attempts=1, backoff=0.5, factor=1.0, jitter=0.0)
    traffic = broken(keys=1, **{**LETTERS, "retry": once})
    traffic.go_on(30, 5, lambda _: AWAY)
    assert not breaker_of(traffic).open
    traffic.go_on(5, 5)
    assert traffic.harness.sub().counts.dead_lettered == 0
    assert traffic.harness.sub().closed.empty()


@pytest.mark.parametrize("handler", [fails_for(b"key-1"), fails_for(b"key-1", b"key-2"), every(50)])
def test_poison_records_are_no_outage(handler: Handler) -> None:
    traffic = broken(keys=100, **{**LETTERS, "retry": RetryPolicy()})
    for _ in traffic.run(60, 40, handler):
        assert not breaker_of(traffic).open
    assert traffic.harness.sub().counts.dead_lettered


def test_a_dead_letter_that_a_handler_asks_for_is_no_outage() -> None:
    asked = replace(REFUSED, disposition=Disposition.DEAD_LETTER)
    traffic = broken(keys=100, **LETTERS)
    traffic.go_on(60, 20, lambda _: asked)
    assert not breaker_of(traffic).open
    assert traffic.harness.sub().counts.dead_lettered > 1_000


def test_attempts_that_are_all_put_off_make_the_subscription_wait() -> None:
    traffic = broken(**LETTERS)
    traffic.go_on(10, 40)
    assert until_open(traffic, puts_off(2.0)) <= 2 * IN_TIME
    handler, calls = counted(puts_off(2.0))
    traffic.go_on(60, 40, handler)
    assert calls[0] <= 60 / (0.8 * PROBE_MAX) + 5
    traffic.go_on(WITHIN, 40)
    assert not breaker_of(traffic).open


def test_a_probe_that_fails_in_another_way_shows_that_the_dependency_answers() -> None:
    traffic = broken(**LETTERS)
    traffic.go_on(10, 40)
    until_open(traffic)
    first: list[bool] = []

    def other(_each: Any) -> Any:
        if first:
            return None
        first.append(True)
        return ERROR

    traffic.go_on(WITHIN, 40, other)
    assert not breaker_of(traffic).open


def test_each_probe_is_another_record_so_that_a_poison_record_prolongs_nothing() -> None:
    """Records of one key go on failing with the error of the outage."""
    traffic = broken(keys=20, **LETTERS)
    traffic.go_on(10, 40)
    until_open(traffic)
    traffic.go_on(30, 40, fails)
    traffic.go_on(2 * WITHIN, 40, fails_for(b"key-3"))
    assert not breaker_of(traffic).open


def test_an_outage_that_comes_back_is_noticed_again() -> None:
    traffic = broken(**LETTERS)
    for _ in range(3):
        traffic.go_on(15, 40)
        assert not breaker_of(traffic).open
        assert until_open(traffic) <= IN_TIME
        traffic.go_on(20, 40, fails)
        assert breaker_of(traffic).open
        traffic.go_on(WITHIN, 40, succeeds)
    assert traffic.harness.sub().counts.dead_lettered == 0


# --- step by step ---


def three_keys(**settings: Any) -> Harness:
    """Return a member of which three keys wait for a dependency; others wait behind them."""
    harness = Harness(SubscriptionSettings(breaker=True, retry=MINUTES, **settings))
    harness.assign(P0, P1)
    harness.fetch(*[record(offset, f"k{offset}") for offset in range(10)])
    worker = harness.worker()
    for _ in range(KEYS_LEAST):
        worker.start()
        worker.finish(AWAY)
    harness.deliver()
    assert breaker_of(harness).state is CircuitState.OPEN
    return harness


def test_what_has_not_started_is_taken_back_and_waits() -> None:
    harness = three_keys()
    assert harness.work() == []
    assert harness.sub().leased == 0
    harness.beat()
    assert harness.paused == {P0, P1}
    assert harness.core.holds.reasons(P0) == (Reason.DEPENDENCY,)
    harness.fetch(record(0, "new", P1))
    assert harness.sub().leased == 1, "the probe"


def test_a_probe_is_one_record_and_its_success_lets_everything_go_on() -> None:
    harness = three_keys()
    harness.work()
    harness.later(PROBE_FIRST)
    assert breaker_of(harness).state is CircuitState.HALF_OPEN
    assert harness.work() == [0, *range(3, 10)]
    assert breaker_of(harness).state is CircuitState.CLOSED
    harness.beat()
    assert not harness.paused
    harness.later(2.0)
    assert harness.work() == [1, 2]
    assert harness.committed() == (10, [])


def test_probes_follow_each_other_more_and_more_slowly() -> None:
    harness = three_keys()
    harness.work()
    times, began = [], harness.now
    for _ in range(7):
        due = harness.core.next_due()
        assert due is not None
        harness.later(due - harness.now)
        while not (started := harness.work({offset: [AWAY] for offset in range(10)})):
            harness.later(0.1)
        assert len(started) == 1
        times.append(harness.now - began)
    waits = [after - before for before, after in pairwise(times)]
    assert waits == pytest.approx([1.0, 2.0, *[PROBE_MAX] * 4], abs=0.15)


def test_a_probe_that_hangs_is_followed_by_another_and_still_counts() -> None:
    harness = three_keys(workers=("a", "b", "c", "d"), pooled=True)
    harness.work()
    harness.later(PROBE_FIRST)
    hanging = next(each for each in harness.pool.workers.values() if each.start())
    harness.beat(round(2 * PROBE_PATIENCE))
    others = [each for each in harness.pool.workers.values() if each is not hanging]
    second = next(each for each in others if each.start())
    second.finish(AWAY)
    harness.deliver()
    assert breaker_of(harness).state is CircuitState.OPEN
    hanging.finish(None)
    harness.work()
    assert breaker_of(harness).state is CircuitState.CLOSED


def test_a_probe_that_is_taken_back_is_followed_by_another() -> None:
    harness = three_keys()
    harness.work()
    harness.later(PROBE_FIRST)
    harness.recall()
    harness.deliver()
    assert breaker_of(harness).state is not CircuitState.CLOSED
    harness.beat()
    assert harness.work()[0] == 0
    assert breaker_of(harness).state is CircuitState.CLOSED


def test_without_a_record_that_could_probe_everything_goes_on() -> None:
    """The partition with the failed records has gone."""
    harness = three_keys()
    harness.work()
    harness.fetch(record(0, "other", P1))
    harness.revoke(P0)
    harness.beat(4)
    assert harness.work() == [0]
    harness.beat()
    assert not harness.paused


def test_a_stop_during_an_outage_waits_for_nothing() -> None:
    harness = three_keys()
    harness.work()
    harness.later(PROBE_FIRST / 2)
    harness.tell(ev.Stopping())
    assert harness.sub().leased == 0
    assert harness.commit(final=True) == []


def test_attempts_of_the_outage_are_given_back_when_it_is_noticed() -> None:
    traffic = broken(keys=50, **LETTERS)
    traffic.go_on(10, 20)
    until_open(traffic, rate=20)
    waiting = list(traffic.harness.sub().closed.lanes.values())
    assert waiting
    assert all(each.failures == 0 and each.attempts > 0 for each in waiting)


def test_with_wait_on_alone_only_errors_of_a_dependency_open_the_breaker() -> None:
    traffic = Traffic(keys=5_000, wait_on=True, **LETTERS)
    traffic.go_on(30, 200, fails)
    assert not breaker_of(traffic).open
    assert until_open(traffic, lambda _: AWAY) <= 1.0


def test_without_retries_there_is_no_breaker() -> None:
    settings = SubscriptionSettings(breaker=True, delivery="at-most-once")
    assert Harness(settings).sub().breaker is None
    assert Harness(SubscriptionSettings()).sub().breaker is None
