"""The dispatcher against an adversary: whole lives of a member, judged by independent books."""

from __future__ import annotations

import pytest

from tests.property.adversaries.lives import STEPS, expect_reached, live
from tests.property.adversaries.protocol import Adversary
from tests.support.seeds import patience, seeds

pytestmark = pytest.mark.timeout(patience(400))
"""Seconds for each test: many lives take their time, and more on a busy machine."""


def test_no_seed_breaks_the_contract() -> None:
    reached = live(seeds(300))
    expect_reached(
        reached,
        "a hot slot is a shard of its own",
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
        "other keys of it are beside",
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
