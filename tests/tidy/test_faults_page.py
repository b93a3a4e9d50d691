"""The table of what faults cost has every kind that the simulation knows, and shows no breach."""

from __future__ import annotations

from tests.setup.faults import HEAD, NONE, PAGE, Cost, kinds, rows_of, run_one

CLEAN = (NONE, "a member joined", "a partition was added")
"""What ends nobody's session: rebalances in order, and these repeat nothing by the contract."""


def test_the_page_has_every_kind_of_fault_and_nothing_of_it_broke_the_contract() -> None:
    rows = rows_of(PAGE.read_text("utf-8"))
    assert [row[0] for row in rows] == [NONE, *kinds()], "run: make faults"
    for row in rows:
        found = dict(zip(HEAD, row, strict=True))
        assert found["lost"] == found["out of order"] == found["overlaps"] == "0", row
        assert (found["times"] == "0") is (row[0] == NONE), row
        assert found["repeats"] == "0" or row[0] not in CLEAN, row


def test_a_rebalance_in_order_repeats_nothing() -> None:
    """The first seed is of a cooperative group, whose commits meet the rounds that go on."""
    cost = Cost()
    run_one("a partition was added", 1, 20.0, cost)
    assert cost.times > 0
    assert cost.repeats == 0


def test_what_is_measured_is_what_happens() -> None:
    quiet, killed = Cost(), Cost()
    run_one(NONE, 1, 10.0, quiet)
    run_one("a member was killed", 1, 10.0, killed)
    assert quiet.times == quiet.repeats == 0
    assert killed.times > 0
    assert killed.starts > 100
    assert quiet.row(NONE)[3:6] == killed.row("killed")[3:6] == ["0", "0", "0"]
