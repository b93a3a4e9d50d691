"""The measurement of handlers that compute, tiny: both sides run every record."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import KeySharedError
from tests.benchmarks import verify
from tests.benchmarks.computing import ComputePlan, largest_part, measure


def test_both_sides_run_every_record_and_are_judged_as_a_ratio() -> None:
    found = measure(ComputePlan(records=400, keys=50, partitions=2, pairs=1))
    (case,) = [case for case in verify.CASES if case.name == "computing"]
    assert {floor.figure for floor in case.floors} <= found.keys()
    assert found["records"] == 400
    assert found["ratios"] == [found["ratio"]]
    # As lax as a busy machine may need; `make verify` holds it to more.
    assert found["ratio"] > 0.2
    assert found["bare_per_s"] < 5_000, "each record takes the time that it is said to"


def test_a_side_that_was_cut_off_has_no_ratio() -> None:
    plan = ComputePlan(records=2_000, keys=50, partitions=2, pairs=1, limit=0.05)
    with pytest.raises(KeySharedError, match=r"did \d+ of 2000 records"):
        measure(plan)


def test_what_the_keys_allow_is_known() -> None:
    assert largest_part(ComputePlan(records=1_000, keys=1)) == 1.0
    assert largest_part(ComputePlan()) == 0.5
