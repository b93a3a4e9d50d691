"""What a seed makes of a soak."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from tests.chaos.soak_schedule import (
    ALWAYS,
    BLOCKED,
    LEAST_MEMBERS,
    MAIN,
    MOST_MEMBERS,
    Stream,
    What,
    scenario_of,
)

SEEDS = range(40)


def test_a_seed_decides_everything() -> None:
    assert scenario_of(7, 600) == scenario_of(7, 600)
    assert scenario_of(7, 600) != scenario_of(8, 600)
    taken = [Stream(scenario_of(7, 600), MAIN).take(1_000) for _ in range(2)]
    assert taken[0] == taken[1]


def test_ten_minutes_have_every_kind_of_step() -> None:
    for seed in SEEDS:
        kinds = {step.what for step in scenario_of(seed, 600).steps}
        assert kinds == set(get_args(What)), (seed, kinds)


def test_seeds_choose_every_protocol_and_both_sizes_of_cluster() -> None:
    scenarios = [scenario_of(seed, 600) for seed in SEEDS]
    assert {each.protocol for each in scenarios} == {"eager", "cooperative", "consumer"}
    assert {each.brokers for each in scenarios} == {1, 3}


@pytest.mark.parametrize("seconds", [25, 60, 600])
def test_steps_do_not_disturb_each_other(seconds: float) -> None:
    """One fault is over before the next step; the last is over before the end."""
    for seed in SEEDS:
        steps = scenario_of(seed, seconds).steps
        assert steps
        for one, next_one in itertools.pairwise(steps):
            assert one.at + one.seconds <= next_one.at, (seed, one, next_one)
        assert steps[-1].at + steps[-1].seconds < seconds


def test_members_are_there_when_something_is_done_to_them() -> None:
    for seed in SEEDS:
        scenario = scenario_of(seed, 600)
        here = set(scenario.first)
        for step in scenario.steps:
            if step.what == "start":
                assert step.who not in here
                here.add(step.who)
            elif step.what in ("stop", "kill", "stop in outage"):
                here.remove(step.who)
            elif step.what in ("nap", "coma"):
                assert step.who in here
            elif step.what in ("kill broker", "freeze broker"):
                assert 1 <= int(step.who) <= scenario.brokers
            of_main = [name for name in here if scenario.plans[name].topic == MAIN]
            assert LEAST_MEMBERS <= len(of_main) <= MOST_MEMBERS, (seed, step)
            assert len(here) - len(of_main) <= 1


def test_naps_are_shorter_than_the_session_and_comas_longer() -> None:
    for seed in SEEDS:
        scenario = scenario_of(seed, 600)
        for step in scenario.steps:
            assert step.what != "nap" or step.seconds < scenario.session - 2
            assert step.what != "coma" or step.seconds > scenario.session + 1


def test_a_key_stays_in_its_partition_when_the_topic_grows() -> None:
    scenario = scenario_of(3, 600)
    stream = Stream(scenario, MAIN)
    records = stream.take(5_000)
    stream.grow(scenario.partitions + 3)
    records += stream.take(5_000)
    places: dict[bytes, set[int | None]] = {}
    for record in records:
        if record.key is not None:
            places.setdefault(record.key, set()).add(record.partition)
    assert all(len(found) == 1 for found in places.values())
    assert {number for found in places.values() for number in found} == set(
        range(scenario.partitions + 3)
    )
    assert any(record.key is None for record in records)


def test_few_records_block() -> None:
    records = Stream(scenario_of(3, 600), BLOCKED).take(50_000)
    blocking = [each for each in records if each.key is not None and each.key.startswith(ALWAYS)]
    assert 10 <= len(blocking) <= 60


def test_big_values_are_as_many_as_asked_for() -> None:
    stream = Stream(scenario_of(3, 600), MAIN)
    stream.big = 10
    assert sum(each.size > 50_000 for each in stream.take(100)) == 10
