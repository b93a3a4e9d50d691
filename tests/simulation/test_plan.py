"""What a seed means, and that it goes on meaning it when there is more to choose from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_keyshared.sim import plan
from kafka_keyshared.sim.chance import Chance
from kafka_keyshared.sim.disturbances import DISTURBANCES, Disturbance
from kafka_keyshared.sim.plan import plan_of

SEEDS = range(1, 201)


def test_one_more_thing_that_may_happen_changes_no_seed_but_by_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [plan_of(Chance(seed)) for seed in SEEDS]
    more = {"something new": Disturbance(1.0, lambda world, chance: True), **DISTURBANCES}
    monkeypatch.setattr(plan, "DISTURBANCES", more)
    after = [plan_of(Chance(seed)) for seed in SEEDS]
    has = [each.disturbances.get("something new") for each in after]
    assert any(has)
    assert not all(has)
    for known, now in zip(before, after, strict=True):
        there = {name: how for name, how in now.disturbances.items() if name in DISTURBANCES}
        assert replace(now, disturbances=there) == known


def test_every_disturbance_is_had_by_some_seeds_and_by_no_means_all() -> None:
    plans = [plan_of(Chance(seed)) for seed in SEEDS]
    for name in DISTURBANCES:
        share = sum(name in each.disturbances for each in plans) / len(plans)
        assert 0.15 < share < 0.5, name
