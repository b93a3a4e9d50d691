"""What a seed means, and that it goes on meaning it when there is more to choose from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.lab.simulator import scenarios
from kafka_keyshared.lab.simulator import seed_plan as plan
from kafka_keyshared.lab.simulator.disturbance_rates import ON_REQUEST, RATES
from kafka_keyshared.lab.simulator.disturbances import DISTURBANCES
from kafka_keyshared.lab.simulator.plan_model import Draw, Plan
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.scenarios import EMPHASES
from kafka_keyshared.lab.simulator.seed_plan import plan_of

SEEDS = range(1, 201)


def plan_without(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of all seeds, were it not for one emphasis."""
    with monkeypatch.context() as patched:
        rest = {each: how for each, how in EMPHASES.items() if each != name}
        patched.setattr(scenarios, "EMPHASES", rest)
        return [plan_of(Chance(seed)) for seed in SEEDS]


@pytest.mark.parametrize("name", EMPHASES)
def test_an_emphasis_changes_some_seeds_and_leaves_the_others_as_they_are(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = plan_without(name, monkeypatch)
    pairs = zip(without, [plan_of(Chance(seed)) for seed in SEEDS], strict=True)
    changed = [now for before, now in pairs if before != now]
    assert 0.03 < len(changed) / len(SEEDS) < 0.2
    for each in changed:
        assert {"stuck": each.habits.stuck, "looked after": each.habits.poisoned}.get(name, 1.0)
        for sub in each.member.subscriptions:
            sub.check()


def test_two_seeds_of_five_and_more_are_about_nothing_in_particular() -> None:
    plain = [
        seed
        for seed in SEEDS
        if not any(
            Draw(Chance(seed)).happens(f"emphasis: {name}", each.share)
            for name, each in EMPHASES.items()
        )
    ]
    assert len(plain) > len(SEEDS) * 2 / 5


def test_full_chunks_are_in_some_seeds_and_leave_the_others_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [plan_of(Chance(seed)) for seed in SEEDS]
    monkeypatch.setattr(plan, "with_full_chunks", lambda plan, draw: plan)
    before = [plan_of(Chance(seed)) for seed in SEEDS]
    changed = [new for old, new in zip(before, now, strict=True) if old != new]
    assert 0.05 < len(changed) / len(SEEDS) < 0.2
    for each in changed:
        assert each.member.chunk <= 40
        assert all(sub.at_least_once and len(sub.workers) >= 4 for sub in each.member.subscriptions)
        for sub in each.member.subscriptions:
            sub.check()


def test_one_more_thing_that_may_happen_changes_no_seed_but_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [plan_of(Chance(seed)) for seed in SEEDS]
    more = {"something new": 1.0, **RATES}
    monkeypatch.setattr(plan, "RATES", more)
    after = [plan_of(Chance(seed)) for seed in SEEDS]
    has = [each.disturbances.get("something new") for each in after]
    assert any(has)
    assert not all(has)
    for known, now in zip(before, after, strict=True):
        there = {name: how for name, how in now.disturbances.items() if name in RATES}
        assert replace(now, disturbances=there) == known


def test_every_disturbance_is_had_by_some_seeds_and_by_no_means_all() -> None:
    plans = [plan_of(Chance(seed)) for seed in SEEDS]
    for name in RATES:
        share = sum(name in each.disturbances for each in plans) / len(plans)
        assert share == 0 if name in ON_REQUEST else 0.15 < share < 0.6, name


def test_every_disturbance_has_a_rate_and_does_something() -> None:
    assert list(DISTURBANCES) == list(RATES)
