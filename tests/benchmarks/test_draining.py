"""The measurement of what draining costs, tiny: it drains what it says, and lets all else end."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.errors import KeySharedError
from tests.benchmarks import verify
from tests.benchmarks.draining import DrainingPlan, measure


def test_the_other_slots_are_measured_while_many_drain() -> None:
    found = measure(DrainingPlan(slots=500, records=5_000, pairs=1))
    (case,) = [case for case in verify.CASES if case.name == "draining"]
    assert {floor.figure for floor in case.floors} <= found.keys()
    # As lax as a busy machine may need; `make verify` holds it to 0.8.
    assert 0.2 < found["ratio"] < 5


def test_where_nothing_drains_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_draining, "change", lambda *_: [])
    with pytest.raises(KeySharedError, match="0 slots drain, and not 500"):
        measure(DrainingPlan(slots=500, records=1_000, pairs=1))
