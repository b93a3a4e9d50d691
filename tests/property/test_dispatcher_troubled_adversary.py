"""The same where one kind of trouble comes often."""

from __future__ import annotations

import pytest

from tests.property.adversaries.evictions import EvictingAdversary
from tests.property.adversaries.late_commits import DelayingAdversary
from tests.property.adversaries.lives import SMALL_BUDGET, STEPS, expect_reached, live
from tests.property.adversaries.lost_partitions import LosingAdversary
from tests.property.adversaries.protocol import Adversary
from tests.property.adversaries.worker_changes import FilteringAdversary, JoiningAdversary
from tests.support.seeds import patience, seeds

pytestmark = pytest.mark.timeout(patience(400))
"""Seconds for each test: many lives take their time, and more on a busy machine."""


def test_no_seed_breaks_the_contract_while_the_commit_metadata_is_nearly_full() -> None:
    reached = live(seeds(120, first=5_000), set_budget=SMALL_BUDGET)
    expect_reached(
        reached,
        "parked beyond a ceiling",
        "unparked with an older backlog",
        "revoked clean",
        "stopped clean",
        "crashed",
    )


def test_no_seed_breaks_the_contract_where_workers_are_evicted_with_one_lease_per_key() -> None:
    reached = live(seeds(40, first=50_000), EvictingAdversary)
    expect_reached(reached, "worker evicted", "granted at an eviction", "stopped clean")


def test_no_seed_breaks_the_contract_where_partitions_are_lost_and_come_back() -> None:
    reached = live(seeds(60, first=60_000), LosingAdversary)
    expect_reached(reached, "lost", "regained", "went on elsewhere", "revoked clean", "crashed")


def test_no_seed_breaks_the_contract_where_commits_are_stored_late() -> None:
    reached = live(seeds(60, first=70_000), DelayingAdversary)
    expect_reached(reached, "stored over a later one", "revoked clean", "stopped clean", "crashed")


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(5_124, id="a key comes diverted and cannot be diverted any more"),
        pytest.param(5_001, id="a gate closes before the records under it were fetched"),
        pytest.param(5_197, id="a gate is held by the set of another subscription"),
        pytest.param(5_389, id="two slices of a failed lane are recalled in the wrong order"),
        pytest.param(5_373, id="a lane comes diverted as it fails, and is diverted no more"),
        pytest.param(5_873, id="what a gate lets go overtakes what a recall brings back"),
    ],
)
def test_seeds_that_once_broke_the_contract_with_nearly_full_metadata_hold(seed: int) -> None:
    life = Adversary(seed, set_budget=SMALL_BUDGET)
    life.run(STEPS)
    assert life.healed()


class JoiningAndEvicting(JoiningAdversary, EvictingAdversary):
    """Workers join, answer late and die for good."""


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(LosingAdversary, 908, id="a lost partition comes back before its commit"),
        pytest.param(DelayingAdversary, 1_880, id="and is ended clean behind that commit"),
        pytest.param(JoiningAdversary, 261, id="two that join wait for each other"),
        pytest.param(JoiningAdversary, 100_016, id="a record without a key waits in no slot"),
        pytest.param(JoiningAdversary, 100_620, id="a worker starts what it has not given back"),
        pytest.param(JoiningAndEvicting, 120_452, id="a worker answers when it is gone"),
        pytest.param(FilteringAdversary, 721_285, id="the last worker cannot be restarted"),
    ],
)
def test_seeds_that_once_broke_the_contract_in_trouble_hold(
    kind: type[Adversary], seed: int
) -> None:
    life = kind(seed)
    life.run(STEPS)
    assert life.healed()


def test_no_seed_breaks_the_contract_where_workers_come_and_go_and_answer_late() -> None:
    """24 once kept a lane for ever whose lease was given back after its partition had gone."""
    reached = live(seeds(60), JoiningAdversary)
    expect_reached(
        reached,
        "joined",
        "one that joined is active",
        "resized",
        "a worker waits until it has caught up",
        "a worker leaves and has leases",
        "slots drain",
        "records wait for a slot to drain",
        "a retry waits for its slot to drain",
        "a grant waits for its slot to drain",
        "what has drained waits for the tick",
        "state was released",
        "a recall is not answered yet",
        "asked twice before the answer",
        "started before the answer",
    )


def test_no_seed_breaks_the_contract_where_workers_begin_to_filter_later() -> None:
    reached = live(seeds(40, first=200_000), FilteringAdversary)
    expect_reached(
        reached,
        "joined with filters",
        "the first to filter came while slots drain",
        "the first to filter came while records run",
        "filters were set while records run",
        "filters were set while slots drain",
        "filters were set while a retry waits",
        "resized",
    )
