"""The measurement of the slot table, tiny: it makes whole tables, and says so of every routing."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.errors import KeySharedError
from tests.benchmarks import tables, verify
from tests.benchmarks.tables import TablePlan, measure


def test_every_routing_is_measured_while_its_last_worker_joins() -> None:
    found = measure(TablePlan(workers=5, vnodes=10, repeat=1))
    (case,) = [case for case in verify.CASES if case.name == "table"]
    assert {floor.figure for floor in case.floors} <= found.keys()
    times = {name: value for name, value in found.items() if name.endswith("_ms")}
    assert times.keys() == {f"{name}_ms" for name in tables.routings(TablePlan(workers=5))}
    # As lax as a busy machine may need; `make verify` holds it to 20 ms for 100 workers.
    assert all(0 < value < 1_000 for value in times.values())


def test_a_table_without_the_worker_that_joined_is_no_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlotTable, "project", lambda *_: None)
    with pytest.raises(KeySharedError, match="is not whole"):
        measure(TablePlan(workers=3, vnodes=1, repeat=1))
