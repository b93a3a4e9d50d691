"""The measurement of coroutines against a bare event loop, tiny."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.benchmarks.coroutines import CoroutinePlan, measure


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_both_sides_run_every_record_and_are_told_as_a_ratio(
    loop: Literal["asyncio", "uvloop"],
) -> None:
    found = measure(CoroutinePlan(loop, records=4_000, partitions=2, keys=100, pairs=1))
    assert found["records"] == 4_000
    assert found["ratios"] == [found["ratio"]]
    # As lax as a busy machine may need.
    assert found["ratio"] > 0.05
    assert found["bare_per_s"] > 0 and found["ours_per_s"] > 0
