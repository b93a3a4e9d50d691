"""The same where somebody gives orders: for lanes that fail, for limits, for ranges."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.keys import key_cache
from tests.property.adversaries.lane_commands import OrderingAdversary
from tests.property.adversaries.lives import SMALL_BUDGET, STEPS, expect_reached, live
from tests.support.seeds import patience, seeds

pytestmark = pytest.mark.timeout(patience(400))
"""Seconds for each test: many lives take their time, and more on a busy machine."""


def test_no_seed_breaks_the_contract_whatever_is_ordered_while_records_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_cache, "KEPT", 1)
    monkeypatch.setattr(key_cache, "SPARE", 0)
    reached = live(seeds(50), OrderingAdversary)
    expect_reached(
        reached,
        "a limit has stopped a partition",
        "a limit was lifted",
        "a range moved while keys fail",
        "a retry waits for its slot to drain",
        "crashed",
        "dead_letter of blocked done",
        "dead_letter of waiting done",
        "drop of archiving done",
        "drop of blocked done",
        "drop of dead_lettering done",
        "drop of running refused",
        "drop of waiting done",
        "letter of what was dropped",
        "unblock of diverting done",
        "unblock of running refused",
        "unblock of waiting done",
        "revoked clean",
        "a record is detached",
        "stopped clean",
        "undecodable",
        "worker evicted",
    )


def test_no_seed_breaks_the_contract_with_orders_and_nearly_full_metadata() -> None:
    reached = live(seeds(12, first=5_000), OrderingAdversary, SMALL_BUDGET)
    expect_reached(reached, "drop of waiting done", "revoked clean")


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(80, id="a lane is blocked that has no room to be diverted"),
        pytest.param(77, id="a key is read late while its worker catches up"),
        pytest.param(66, id="a record is dropped whose letter is written"),
        pytest.param(1_536, id="a lane is released whose head was sent unrun"),
        pytest.param(900_148, id="a limit is lifted while a retry without a key waits"),
        pytest.param(910_325, id="a head is ordered away that its partition has no hash left for"),
    ],
)
def test_seeds_that_once_broke_the_contract_under_orders_hold(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_cache, "KEPT", 1)
    monkeypatch.setattr(key_cache, "SPARE", 0)
    life = OrderingAdversary(seed)
    life.run(STEPS)
    assert life.healed()
