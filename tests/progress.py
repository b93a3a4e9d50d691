"""A pytest plug-in that shows how far each suite is, for a run that is spread over processes.

On a terminal there is a line per suite that stays where it is; elsewhere a line when a suite has
ended, and one with all of them where nothing was said for a while. A test that fails is named at
once; why it failed comes at the end, as always.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from tests.budgets import suite_of

SPEAK_EVERY = 30.0
"""Seconds without a word after which all suites are named, where there is no terminal."""


class Suites:
    """How many tests each suite has, and how many of them have ended and failed."""

    def __init__(self) -> None:
        self.tests: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def expect(self, nodeids: Iterable[str]) -> None:
        self.tests = Counter(suite_of(each) or "" for each in nodeids)

    def count(self, report: pytest.TestReport) -> str:
        """Count a part of a test; return its suite."""
        suite = suite_of(report.nodeid) or ""
        self.seconds[suite] += report.duration
        self.failed[suite] += report.failed
        self.ended[suite] += report.when == "teardown"
        return suite

    def over(self, suite: str) -> bool:
        return self.ended[suite] == self.tests[suite]

    def line(self, suite: str) -> str:
        """Say how far a suite is; its seconds are the sum over its tests, in all processes."""
        failed = f", {self.failed[suite]} failed" if self.failed[suite] else ""
        if self.over(suite):
            return f"{suite}: {self.tests[suite]:,} tests in {self.seconds[suite]:.0f} s{failed}"
        return f"{suite} {self.ended[suite]:,}/{self.tests[suite]:,}{failed}"


class Lines:
    """Shows it as lines."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._said = clock()

    def begin(self, suites: Suites) -> None:
        self.say(", ".join(f"{suite} {tests:,}" for suite, tests in sorted(suites.tests.items())))

    def say(self, text: str) -> None:
        self._said = self._clock()
        self._say(text)

    def moved(self, suites: Suites, suite: str) -> None:
        if suites.over(suite):
            self.say(suites.line(suite))
        elif self._clock() - self._said >= SPEAK_EVERY:
            self.say(", ".join(suites.line(each) for each in sorted(suites.tests)))

    def end(self) -> None:
        """There is nothing to clear away."""


class Bars:
    """Shows it on a terminal."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("{task.fields[failed]}", style="red"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def begin(self, suites: Suites) -> None:
        for suite, tests in sorted(suites.tests.items()):
            self._tasks[suite] = self._progress.add_task(suite, total=tests, failed="")
        self._progress.start()

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def moved(self, suites: Suites, suite: str) -> None:
        failed = f"{suites.failed[suite]} failed" if suites.failed[suite] else ""
        self._progress.update(self._tasks[suite], completed=suites.ended[suite], failed=failed)

    def end(self) -> None:
        self._progress.stop()


class ProgressPlugin:
    """Hears of every test in the process that gives the others their work."""

    def __init__(self, shown: Lines | Bars) -> None:
        self.suites = Suites()
        self.shown = shown
        self.begun = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        if not self.begun:
            self.begun = True
            self.suites.expect(ids)
            self.shown.begin(self.suites)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, str] | None:
        """Count it as ever, and show no letter."""
        if not isinstance(report, pytest.TestReport) or hasattr(report, "wasxfail"):
            return None
        if report.failed:
            return ("failed", "", "FAILED") if report.when == "call" else ("error", "", "ERROR")
        if report.skipped:
            return "skipped", "", ""
        return ("passed" if report.when == "call" else ""), "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = self.suites.count(report)
        if report.failed:
            self.shown.say(f"FAILED {report.nodeid}")
        if self.begun:
            self.shown.moved(self.suites, suite)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self.begun:
            self.shown.end()


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("numprocesses", default=None) or hasattr(config, "workerinput"):
        return
    console = Console()
    shown = Bars(console) if console.is_terminal else Lines(_write, time.monotonic)
    config.pluginmanager.register(ProgressPlugin(shown), "keyshared-progress")


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
