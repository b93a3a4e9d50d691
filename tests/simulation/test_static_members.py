"""Static members (KIP-345): who comes back within its session has its partitions, and nobody else
hears of that."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kafka_keyshared.lab.simulator.history import CameBack
from kafka_keyshared.lab.simulator.plan_model import PROTOCOLS, Protocol
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from tests.support.simulated_members import Reading, Simulation

STEPS = 600
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


def two(protocol: Protocol) -> tuple[Simulation, Reading, Reading]:
    """Two static members that share everything."""
    simulation = Simulation(protocol)
    first = simulation.join("a")
    simulation.until(lambda: simulation.shared(first))
    second = simulation.join("b")
    simulation.until(lambda: simulation.shared(first, second))
    simulation.run(5.0)
    return simulation, first, second


@every_protocol
@pytest.mark.parametrize("in_order", [True, False], ids=["closed", "killed"])
def test_who_comes_back_soon_has_what_it_had_and_others_keep_theirs(
    protocol: Protocol, *, in_order: bool
) -> None:
    simulation, first, second = two(protocol)
    came_back: list[CameBack] = []
    simulation.history.listen(CameBack, came_back.append)
    had, others, known = sorted(first.held), sorted(second.held), second.names()
    if in_order:
        first.client.close()
    else:
        first.kill()
    simulation.run(4.0)
    assert sorted(second.held) == others, "nobody has said that it leaves"
    again = simulation.join("a")
    simulation.until(lambda: sorted(again.held) == had)
    simulation.run(30.0)
    assert again.names() == ["assigned"]
    assert second.names() == known
    assert came_back == [CameBack(3)]


@every_protocol
def test_who_stays_away_beyond_its_session_is_given_up(protocol: Protocol) -> None:
    simulation, first, second = two(protocol)
    first.client.close()
    simulation.until(lambda: simulation.shared(second))
    again = simulation.join("a")
    simulation.until(lambda: simulation.shared(second, again))
    assert second.names()[-2:] != ["assigned"]


@every_protocol
def test_who_has_another_instance_or_none_is_somebody_else(protocol: Protocol) -> None:
    simulation, first, second = two(protocol)
    came_back: list[CameBack] = []
    simulation.history.listen(CameBack, came_back.append)
    first.kill()
    others = simulation.join("c"), simulation.join()
    simulation.until(lambda: simulation.shared(second, *others))
    assert not came_back


@every_protocol
def test_what_it_had_is_read_on_from_where_it_was_committed(protocol: Protocol) -> None:
    simulation, first, second = two(protocol)
    simulation.write(50)
    simulation.until(lambda: len(first.taken) + len(second.taken) == 200)
    first.commit()
    simulation.run(2.0)
    first.client.close()
    again = simulation.join("a")
    simulation.write(50)
    everybody = (first, second, again)
    simulation.until(lambda: sum(len(each.taken) for each in everybody) >= 400)
    assert set(Counter(first.taken + second.taken + again.taken).values()) == {1}


def test_whole_runs_keep_the_contract_while_members_come_back() -> None:
    came_back = 0
    for seed in range(1, 10):
        plan = plan_of(Chance(seed))
        disturbances = {
            **plan.disturbances,
            "a member was killed": 3.0,
            "a member was stopped": 3.0,
        }
        plan = replace(plan, protocol=PROTOCOLS[seed % 3], static=True, disturbances=disturbances)
        outcome = run_seed(seed, STEPS, plan, summed=False)
        assert outcome.violations == [], f"seed {seed}"
        came_back += outcome.sometimes["static member came back"]
    assert came_back > 20
