"""The arithmetic of the bench of skewed backlogs."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.bench import sleeping
from kafka_keyshared.lab.bench.figures import lost, median, spread
from kafka_keyshared.lab.bench.skew import Pair, SkewPlan, bound_of, doubts_of, exponent_of, row_of
from kafka_keyshared.lab.bench.sleeping import fill_backlog, fitting, sleep_cost
from kafka_keyshared.lab.bench.workloads import zipf


def test_zipf_gives_each_key_the_share_of_its_rank() -> None:
    for exponent in (0.8, 1.1):
        counts = Counter(zipf(50_000, 1_000, exponent))
        whole = sum(rank**-exponent for rank in range(1, 1_001))
        for rank in (1, 2, 10):
            expected = 50_000 * rank**-exponent / whole
            assert counts[rank - 1] == pytest.approx(expected, rel=0.1)


def test_fewer_records_of_zipf_are_the_beginning_of_more() -> None:
    assert zipf(1_000, 50, 1.1)[:300] == zipf(300, 50, 1.1)


def test_a_uniform_plan_gives_each_key_as_many_records() -> None:
    plan = SkewPlan(records=1_000, keys=10)
    assert set(Counter(plan.numbers("uniform")).values()) == {100}
    assert Counter(plan.numbers("zipf:1.1"))[0] > Counter(plan.numbers("zipf:0.8"))[0] > 100


def test_the_bound_is_all_work_divided_or_the_hottest_key_alone() -> None:
    even = bound_of(1_600, 10, 16, 0.001)
    assert (even.work, even.hottest) == pytest.approx((0.1, 0.01))
    assert even.seconds == even.work
    skewed = bound_of(1_600, 400, 16, 0.001)
    assert skewed.seconds == skewed.hottest == pytest.approx(0.4)


def test_a_row_has_medians_over_pairs_and_each_ratio_counts_with_the_sleep_beside_it() -> None:
    plan = SkewPlan(workers="thread:2", repeat=3)
    numbers = [0] * 75 + [1] * 25
    pairs = [
        Pair(cost=0.001, keyshared=0.075, bare=0.05),
        Pair(cost=0.002, keyshared=0.300, bare=0.11),
        Pair(cost=0.001, keyshared=0.090, bare=0.06),
    ]
    row = row_of(plan, "zipf:2", numbers, pairs)
    assert (row["records"], row["keys_used"], row["hottest_records"]) == (100, 2, 75)
    assert (row["bound"], row["bound_s"]) == ("hottest key", 0.075)
    assert (row["ratio"], row["ratios"]) == (1.2, [1.0, 2.0, 1.2])
    assert row["ratio_spread"] == "1.200 (1.000 to 2.000)"
    assert (row["bare_ratio"], row["bare_ratios"]) == (1.1, [1.0, 1.1, 1.2])
    assert row_of(plan, "uniform", [0, 1] * 50, pairs)["bound"] == "all work"


def test_a_busy_machine_makes_a_row_doubtful() -> None:
    calm = {"distribution": "uniform", "ratios": [1.1], "bare_ratios": [1.07], "bare_ratio": 1.07}
    assert list(doubts_of([calm])) == []
    (low,) = doubts_of([calm | {"ratios": [1.1, 0.98]}])
    assert low.startswith("uniform: a run took 0.980 of its lower bound")
    (slow,) = doubts_of([calm | {"bare_ratio": 1.3}])
    assert slow.startswith("uniform: the bare threads took 1.30 times their lower bound")


def test_a_backlog_ends_where_its_fullest_partition_is_full() -> None:
    # Keys 0 and 2 are in the first of two partitions, key 1 in the second.
    assert fitting([0, 1, 2, 1, 0, 1], 2, 2) == [0, 1, 2, 1]
    assert fitting([0, 1, 2], 2, 5) == [0, 1, 2]


def test_a_key_is_always_in_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[object, ...]] = []
    monkeypatch.setattr(sleeping, "produce_rows", lambda _bootstrap, _topic, all: rows.extend(all))
    fill_backlog("", "t", [0, 3, 1, 3], 2, 5)
    assert [row[1:3] for row in rows] == [
        (b"key-0", 0),
        (b"key-3", 1),
        (b"key-1", 1),
        (b"key-3", 1),
    ]
    assert {row[0] for row in rows} == {b"xxxxx"}


def test_the_cost_of_a_sleep_is_the_median_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    now, calls = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, calls
        calls += 1
        # One call in four is held up by something else.
        now += 1.0 if calls % 4 == 0 else seconds * 1.25

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    assert sleep_cost(0.5) == pytest.approx(0.625)
    assert calls == sleeping.CALLS_LEAST


def test_a_sleep_never_costs_less_than_it_is_told() -> None:
    assert sleep_cost(0.0005) >= 0.0005


@pytest.mark.parametrize("wrong", ["zipf", "zipf:", "zipf:-1", "zipf:nan", "zipf:99", "1.1", ""])
def test_a_distribution_that_is_none_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"--distributions {wrong}: give uniform"):
        exponent_of(wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"records": 0}, "--records 0"),
        ({"value_bytes": -1}, "--value-bytes -1"),
        ({"sleep_ms": 0.0}, "--sleep-ms 0"),
        ({"distributions": ()}, "at least one"),
        ({"workers": "process:2"}, "give thread:2"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_by_name(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SkewPlan(**wrong).check()  # type: ignore[arg-type]


def test_what_is_lost_is_the_share_that_is_missing() -> None:
    assert lost(200.0, 150.0) == 0.25
    assert lost(100.0, 110.0) == pytest.approx(-0.1)
    assert median([3.0, 1.0, 2.0004], 3) == 2.0
    assert spread([2.0, 1.0, 3.5]) == "2.00 (1.00 to 3.50)"
