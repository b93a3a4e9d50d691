"""The table of verify.py: medians beside ranges, bounds, goals and verdicts."""

from __future__ import annotations

from tests.benchmarks.cases import HEAD, Case, Floor, judged, table


def test_a_row_has_the_median_the_range_and_the_number_of_runs() -> None:
    floor = Floor("ms", 50, at_most=True, goal=10, runs="all_ms", beside=("before", "before_ms"))
    outcome = judged(
        Case("resize", "a resize", (floor,)),
        {"ms": 12.5, "all_ms": [9.0, 12.5, 20.0], "before_ms": 31},
    )
    assert outcome.missed == []
    *head, row = table([outcome]).splitlines()
    assert (*head,) == HEAD
    assert row == "| a resize | ms | 12.5 | 9.0 to 20.0 | 3 | <= 50 | <= 10 | holds | before: 31 |"
    assert row.count("|") == HEAD[0].count("|")


def test_a_verdict_is_missed_or_holds_or_reaches_the_goal() -> None:
    floors = (Floor("share", 0.85, goal=0.92), Floor("count", 0, at_most=True))
    case = Case("sleeping", "sleep", floors)
    verdicts = {
        (0.5, 0): ["MISSED", "holds"],
        (0.9, 1): ["holds", "MISSED"],
        (0.92, 0): ["reaches the goal", "holds"],
    }
    for (share, count), expected in verdicts.items():
        outcome = judged(case, {"share": share, "count": count})
        rows = table([outcome]).splitlines()[2:]
        assert [row.split(" | ")[7] for row in rows] == expected
        assert len(outcome.missed) == expected.count("MISSED")
