"""A pytest plug-in that holds every suite to the seconds given in ``[tool.keyshared.budgets]``.

A suite is a folder under ``tests/``. Its time is the sum over its tests of set-up, call and
tear-down, so a fixture that starts a broker is charged to the suite that asked for it first.
Over its budget a suite is named in the summary; over twice its budget the run fails. Budgets are
a guard against a suite that grows unnoticed, which is why they are wide and why one slow machine
only warns.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

FATAL_FACTOR = 2.0
TESTS = "tests"


class Overrun(NamedTuple):
    """A suite that took longer than it may; both numbers in seconds."""

    suite: str
    spent: float
    budget: float

    @property
    def fatal(self) -> bool:
        return self.spent > FATAL_FACTOR * self.budget

    def __str__(self) -> str:
        verdict = "more than twice its budget: the run fails" if self.fatal else "over its budget"
        return (
            f"tests/{self.suite} took {self.spent:.1f} s of {self.budget:g} s, {verdict}; make it "
            "faster or raise its budget in pyproject.toml"
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


def read_budgets(pyproject: Path) -> dict[str, float]:
    """The budgets in seconds by suite.

    Raises:
        pytest.UsageError: the table is missing, or a budget is not a positive number.
    """
    tool = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool", {})
    table = tool.get("keyshared", {}).get("budgets")
    if not table:
        raise pytest.UsageError(f"{pyproject}: [tool.keyshared.budgets] is missing")
    for suite, seconds in table.items():
        if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not seconds > 0:
            raise pytest.UsageError(
                f"{pyproject}: the budget of {suite!r} is {seconds!r}; give seconds above 0"
            )
    return {suite: float(seconds) for suite, seconds in table.items()}


class BudgetPlugin:
    """Sums the durations of one run and judges them at its end."""

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

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        late = overruns(self.spent, self.budgets)
        if exitstatus == pytest.ExitCode.OK and any(overrun.fatal for overrun in late):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.spent:
            times = ", ".join(
                f"{suite} {seconds:.1f}/{self.budgets[suite]:g}"
                for suite, seconds in sorted(self.spent.items())
            )
            terminalreporter.write_line(f"suite seconds: {times}")
        for overrun in overruns(self.spent, self.budgets):
            terminalreporter.write_line(str(overrun), red=overrun.fatal, yellow=not overrun.fatal)


def pytest_configure(config: pytest.Config) -> None:
    budgets = read_budgets(config.rootpath / "pyproject.toml")
    config.pluginmanager.register(BudgetPlugin(budgets), "keyshared-budgets")
