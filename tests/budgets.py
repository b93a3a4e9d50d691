"""A pytest plug-in that holds every suite to the seconds given in ``[tool.keyshared.budgets]``.

A suite is a folder under ``tests/``. Its time is the sum over its tests of set-up, call and
tear-down, so a fixture that starts a broker is charged to the suite that asked for it first. The
budgets are of a run that is spread over processes as ``make test`` is: while one test computes, the
seconds of those beside it go on. A run in one process takes fewer.

Over its budget a suite is named in the summary, and that is all: a budget is there so that a suite
does not grow unnoticed, and seconds say as much about the machine as about the suite. A run that is
merely slow is never red; a test that does not end is (:mod:`tests.timeouts`), and so is a suite
without a budget.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pytest

TESTS = "tests"


class Overrun(NamedTuple):
    """A suite that took longer than it may; both numbers in seconds."""

    suite: str
    spent: float
    budget: float

    def __str__(self) -> str:
        return (
            f"tests/{self.suite} took {self.spent:.1f} s of {self.budget:g} s, over its budget; "
            "make it faster or raise its budget in pyproject.toml"
        )


def suite_of(nodeid: str) -> str | None:
    """The suite that a test belongs to; None for one outside ``tests/``.

    A test file directly in ``tests/`` belongs to the suite ``""``, which no budget can name.
    """
    parts = PurePosixPath(nodeid.partition("::")[0]).parts
    if not parts or parts[0] != TESTS:
        return None
    return parts[1] if len(parts) > 2 else ""


def overruns(spent: Mapping[str, float], budgets: Mapping[str, float]) -> list[Overrun]:
    """The suites over budget, worst first."""
    late = [Overrun(s, t, budgets[s]) for s, t in spent.items() if s in budgets and t > budgets[s]]
    return sorted(late, key=lambda overrun: overrun.spent / overrun.budget, reverse=True)


def unbudgeted(suites: Iterable[str], budgets: Mapping[str, float]) -> list[str]:
    """The suites that run although nobody said how long they may take."""
    return sorted(set(suites) - set(budgets))


def house_table(pyproject: Path, name: str) -> dict[str, Any]:
    """The table ``[tool.keyshared.NAME]``; empty where there is none."""
    tool = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {})
    found: dict[str, Any] = tool.get("keyshared", {}).get(name, {})
    return found


def read_seconds(pyproject: Path, name: str) -> dict[str, float]:
    """The seconds of each suite in a table.

    Raises:
        pytest.UsageError: they are not a positive number.
    """
    table = house_table(pyproject, name)
    for suite, seconds in table.items():
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
            raise pytest.UsageError(
                f"{pyproject}: [tool.keyshared.{name}] {suite} = {seconds!r}; give seconds above 0"
            )
    return {suite: float(seconds) for suite, seconds in table.items()}


def read_budgets(pyproject: Path) -> dict[str, float]:
    """The budgets in seconds by suite.

    Raises:
        pytest.UsageError: the table is missing, or a budget is not a positive number.
    """
    budgets = read_seconds(pyproject, "budgets")
    if not budgets:
        raise pytest.UsageError(f"{pyproject}: [tool.keyshared.budgets] is missing")
    return budgets


class BudgetPlugin:
    """Sums the durations of one run and says at its end which suite took too long."""

    def __init__(self, budgets: Mapping[str, float]) -> None:
        self.budgets = budgets
        self.spent: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        suites = {suite for item in items if (suite := suite_of(item.nodeid)) is not None}
        missing = unbudgeted(suites, self.budgets)
        if missing:
            names = ", ".join(f"tests/{suite}" for suite in missing)
            raise pytest.UsageError(
                f"no time budget for {names}; add the folder to [tool.keyshared.budgets] in "
                "pyproject.toml (a test file stands in a folder, never directly in tests/)"
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = suite_of(report.nodeid)
        if suite is not None:
            self.spent[suite] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line, yellow=not line.startswith("suite seconds"))

    def lines(self) -> list[str]:
        """The lines of the summary: the seconds, and which of them are too many."""
        if not self.spent:
            return []
        times = ", ".join(
            f"{suite} {seconds:.1f}/{self.budgets[suite]:g}"
            for suite, seconds in sorted(self.spent.items())
        )
        return [f"suite seconds: {times}", *map(str, overruns(self.spent, self.budgets))]


def pytest_configure(config: pytest.Config) -> None:
    budgets = read_budgets(config.rootpath / "pyproject.toml")
    config.pluginmanager.register(BudgetPlugin(budgets), "keyshared-budgets")
