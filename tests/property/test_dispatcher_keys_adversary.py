"""The same where keys are derived, and where topics are made anew."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.keys import key_cache
from tests.property.adversaries.derived_keys import KeyedAdversary
from tests.property.adversaries.lives import SMALL_BUDGET, STEPS, expect_reached, live
from tests.property.adversaries.recreated_topics import RemakingAdversary
from tests.support.seeds import patience, seeds

pytestmark = pytest.mark.timeout(patience(400))
"""Seconds for each test: many lives take their time, and more on a busy machine."""


def test_no_seed_breaks_the_contract_whatever_the_keys_are_derived_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that keys of settled records are forgotten many times in a life this short.
    monkeypatch.setattr(key_cache, "KEPT", 1)
    monkeypatch.setattr(key_cache, "SPARE", 0)
    reached = live(seeds(120, first=20_000), KeyedAdversary)
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
    reached = live(seeds(60, first=30_000), KeyedAdversary, SMALL_BUDGET)
    expect_reached(reached, "parked beyond a ceiling", "undecodable", "stopped clean")


def test_no_seed_breaks_the_contract_where_topics_are_made_anew() -> None:
    reached = live(seeds(60, first=40_000), RemakingAdversary)
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


def test_the_seed_that_once_started_a_lost_partition_before_its_commit_holds() -> None:
    life = KeyedAdversary(400)
    life.run(STEPS)
    assert life.healed()
