"""The dispatcher against an adversary: whole lives of a member, judged by independent books.

Seeds fix everything, so a failure repeats by its seed. ``KEYSHARED_SEEDS`` multiplies the number of
seeds of a run (default 1: about 600 lives of 300 steps).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pytest

from kafka_keyshared.core import keying, subscription
from kafka_keyshared.core.metadata import SET_BUDGET
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from tests.support.adversary import Adversary
from tests.support.delaying import DelayingAdversary
from tests.support.evicting import EvictingAdversary
from tests.support.keyed import KeyedAdversary
from tests.support.losing import LosingAdversary
from tests.support.remade import RemakingAdversary

STEPS = 300
SCALE = max(1, int(os.environ.get("KEYSHARED_SEEDS", "1")))

pytestmark = pytest.mark.timeout(400 * SCALE)
"""Seconds for each test: many lives take their time, and more on a busy machine."""

SMALL_BUDGET = 44
"""Characters for settled sets, so small that a handful of gaps fills them."""


@lru_cache(maxsize=64)
def _table(names: tuple[str, ...]) -> list[int]:
    return VnodeRing(names, ROUTING_VNODES).table()


class _KnownRing:
    """The ring, computed once for each set of names and not once for each of thousands of lives."""

    def __init__(self, names: Sequence[str], vnodes: int) -> None:
        assert vnodes == ROUTING_VNODES
        self._names = tuple(names)

    def table(self) -> list[int]:
        return _table(self._names)


@pytest.fixture(autouse=True)
def known_rings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(subscription, "VnodeRing", _KnownRing)
    yield
    _table.cache_clear()


def live(
    seeds: range, kind: type[Adversary] = Adversary, set_budget: int = SET_BUDGET
) -> Counter[str]:
    """Run one life per seed; return the rare states that were reached."""
    reached: Counter[str] = Counter()
    for seed in seeds:
        life = kind(seed, set_budget=set_budget)
        try:
            life.run(STEPS)
        except Exception as error:
            error.add_note(f"{kind.__name__}({seed}, set_budget={set_budget}).run({STEPS})")
            raise
        reached += life.reached
    return reached


def expect_reached(reached: Counter[str], *states: str) -> None:
    missing = [state for state in states if not reached[state]]
    assert not missing, f"no seed reached {missing}; reached: {dict(reached)}"


def test_no_seed_breaks_the_contract() -> None:
    reached = live(range(420 * SCALE))
    expect_reached(
        reached,
        "a retry is recalled",
        "blocked",
        "commit failed",
        "commit too large",
        "crashed",
        "dead letter failed",
        "dead letter of an old epoch written",
        "dead letter written",
        "dead letter written after a failure",
        "failure with later records leased",
        "late failure of an old epoch",
        "lost",
        "recall while a fence is pending",
        "revoke while a retry waits",
        "revoked clean",
        "revoked late",
        "set aside",
        "stopped clean",
        "stopped late",
        "window full",
        "worker died running",
        "worker evicted",
        "written into while running",
    )


def test_no_seed_breaks_the_contract_while_the_commit_metadata_is_nearly_full() -> None:
    reached = live(range(5_000, 5_000 + 180 * SCALE), set_budget=SMALL_BUDGET)
    expect_reached(
        reached,
        "parked beyond a ceiling",
        "unparked with an older backlog",
        "revoked clean",
        "stopped clean",
        "crashed",
    )


def test_no_seed_breaks_the_contract_where_workers_are_evicted_with_one_lease_per_key() -> None:
    reached = live(range(50_000, 50_000 + 40 * SCALE), EvictingAdversary)
    expect_reached(reached, "worker evicted", "granted at an eviction", "stopped clean")


def test_no_seed_breaks_the_contract_where_partitions_are_lost_and_come_back() -> None:
    reached = live(range(60_000, 60_000 + 60 * SCALE), LosingAdversary)
    expect_reached(reached, "lost", "regained", "went on elsewhere", "revoked clean", "crashed")


def test_no_seed_breaks_the_contract_where_commits_are_stored_late() -> None:
    reached = live(range(70_000, 70_000 + 60 * SCALE), DelayingAdversary)
    expect_reached(reached, "stored over a later one", "revoked clean", "stopped clean", "crashed")


def test_no_seed_breaks_the_contract_whatever_the_keys_are_derived_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that keys of settled records are forgotten many times in a life this short.
    monkeypatch.setattr(keying, "KEYS_KEPT", 2)
    monkeypatch.setattr(keying, "KEYS_SPARE", 0)
    reached = live(range(20_000, 20_000 + 170 * SCALE), KeyedAdversary)
    expect_reached(
        reached,
        "a key cannot be read yet",
        "undecodable",
        "undecodable dead-lettered",
        "revoke while a key cannot be read",
        "dead letter failed",
        "set aside",
        "revoked clean",
        "stopped clean",
        "crashed",
        "worker evicted",
    )


def test_no_seed_breaks_the_contract_with_derived_keys_and_nearly_full_metadata() -> None:
    reached = live(range(30_000, 30_000 + 60 * SCALE), KeyedAdversary, SMALL_BUDGET)
    expect_reached(reached, "parked beyond a ceiling", "undecodable", "stopped clean")


def test_no_seed_breaks_the_contract_where_topics_are_made_anew() -> None:
    reached = live(range(40_000, 40_000 + 60 * SCALE), RemakingAdversary)
    expect_reached(
        reached,
        "made anew",
        "made anew while records are held",
        "made anew while records run",
        "late failure of an old epoch",
        "dead letter of an old epoch written",
        "revoked clean",
        "crashed",
    )


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(12, id="a worker dies and its key runs on another one before the failure"),
        pytest.param(21, id="a keyless retry ends up in two slices and forgets its attempts"),
        pytest.param(1_005, id="a late answer of an earlier epoch drops the settled set"),
    ],
)
def test_seeds_that_once_broke_the_contract_hold(seed: int) -> None:
    life = Adversary(seed)
    life.run(STEPS)
    assert life.healed()


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(5_001, id="a gate closes before the records under it were fetched"),
        pytest.param(5_197, id="a gate is held by the set of another subscription"),
        pytest.param(5_389, id="two slices of a failed lane are recalled in the wrong order"),
        pytest.param(5_873, id="what a gate lets go overtakes what a recall brings back"),
    ],
)
def test_seeds_that_once_broke_the_contract_with_nearly_full_metadata_hold(seed: int) -> None:
    life = Adversary(seed, set_budget=SMALL_BUDGET)
    life.run(STEPS)
    assert life.healed()
