"""The measurement of batches of coroutines, tiny."""

from __future__ import annotations

from tests.benchmarks.batching import BatchingPlan, measure


def test_all_three_do_every_record_and_are_told_as_ratios() -> None:
    found = measure(BatchingPlan(records=3_000, partitions=2, keys=100, rounds=1))
    assert found["records"] == 3_000
    assert found["to_bare_rounds"] == [found["to_bare"]]
    assert found["to_single"] > 0
    assert all(found[f"{side}_per_s"] > 0 for side in ("bare", "single", "batched"))
    # A call that has one record has gained nothing.
    assert found["records_a_call"] > 1
