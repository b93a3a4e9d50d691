"""What is shown of the suites while they run side by side."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.progress import SPEAK_EVERY, Bars, Lines, ProgressPlugin

IDS = ["tests/unit/test_a.py::test_1", "tests/unit/test_a.py::test_2", "tests/web/test_b.py::test"]


class Shown:
    """A plug-in that shows lines, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.plugin = ProgressPlugin(Lines(self.said.append, lambda: self.now))
        self.plugin.pytest_xdist_node_collection_finished(IDS)
        self.plugin.pytest_xdist_node_collection_finished(IDS)  # each process has collected

    def run(self, nodeid: str, *, failed: bool = False) -> None:
        for report in reports(nodeid, failed=failed):
            self.plugin.pytest_runtest_logreport(report)


def reports(nodeid: str, *, failed: bool = False) -> list[pytest.TestReport]:
    return [
        pytest.TestReport(
            nodeid=nodeid,
            location=("", None, ""),
            keywords={},
            outcome="failed" if failed and when == "call" else "passed",
            longrepr=None,
            when=when,
            duration=1.0,
        )
        for when in ("setup", "call", "teardown")
    ]


def test_a_suite_is_told_when_it_has_ended_with_its_tests_and_seconds() -> None:
    shown = Shown()
    assert shown.said == ["unit 2, web 1"]
    shown.run(IDS[0])
    assert len(shown.said) == 1
    shown.run(IDS[1])
    assert shown.said[1:] == ["unit: 2 tests in 6 s"]


def test_a_test_that_fails_is_named_at_once() -> None:
    shown = Shown()
    shown.run(IDS[0], failed=True)
    assert shown.said[1:] == [f"FAILED {IDS[0]}"]
    shown.run(IDS[1])
    assert shown.said[2:] == ["unit: 2 tests in 6 s, 1 failed"]


def test_where_nothing_was_said_for_a_while_all_suites_are_named() -> None:
    shown = Shown()
    shown.now = SPEAK_EVERY
    shown.run(IDS[0])
    assert shown.said[1] == "unit 0/2, web 0/1"


def test_no_letter_is_shown_for_a_test_and_its_outcome_still_counts() -> None:
    plugin = Shown().plugin
    outcomes = [plugin.pytest_report_teststatus(each) for each in reports(IDS[0], failed=True)]
    assert outcomes == [("", "", ""), ("failed", "", "FAILED"), ("", "", "")]
    assert plugin.pytest_report_teststatus(reports(IDS[0])[1]) == ("passed", "", "")


def test_on_a_terminal_each_suite_has_a_line() -> None:
    out = io.StringIO()
    bars = Bars(Console(file=out, force_terminal=True, width=80))
    plugin = ProgressPlugin(bars)
    plugin.pytest_xdist_node_collection_finished(IDS)
    for report in reports(IDS[2], failed=True):
        plugin.pytest_runtest_logreport(report)
    plugin.pytest_sessionfinish()
    last = [line for line in out.getvalue().splitlines() if " of " in line][-2:]
    for line, parts in zip(last, (("unit", "0 of 2"), ("web", "1 of 1", "1 failed")), strict=True):
        assert all(part in line for part in parts), line
