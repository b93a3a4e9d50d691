"""The plug-ins that watch a run: time budgets, and the reasons for skipping."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.budgets import (
    BudgetPlugin,
    overruns,
    read_budgets,
    read_seconds,
    suite_of,
    unbudgeted,
)
from tests.setup.suites import ALONE
from tests.skips import SkipPlugin, objection, on_build_server
from tests.tidy.sources import ROOT

MAKE_TEST_SECONDS = 20 * 60
LINT_AND_TYPES_SECONDS = 60
PROCESSES = 4
"""What ``make test`` spreads its tests over on two cores."""


class Terminal:
    """Keeps what a plug-in writes into the summary."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str, **colours: bool) -> None:
        self.lines.append(line)


def session() -> pytest.Session:
    return cast("pytest.Session", SimpleNamespace(exitstatus=pytest.ExitCode.OK))


def report(nodeid: str, duration: float) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=nodeid,
        location=(nodeid, 0, nodeid),
        keywords={},
        outcome="passed",
        longrepr=None,
        when="call",
        duration=duration,
    )


def lines_of(durations: dict[str, float], budgets: dict[str, float]) -> list[str]:
    plugin = BudgetPlugin(budgets)
    for nodeid, duration in durations.items():
        plugin.pytest_runtest_logreport(report(nodeid, duration))
    return plugin.lines()


def test_the_time_of_a_suite_is_the_sum_over_its_tests() -> None:
    durations = {"tests/unit/test_a.py::test_x": 3.0, "tests/unit/deep/test_b.py::test_y": 4.0}
    assert lines_of(durations, {"unit": 10}) == ["suite seconds: unit 7.0/10"]


def test_over_its_budget_a_suite_is_named() -> None:
    _, said = lines_of({"tests/unit/test_a.py::test_x": 11.0}, {"unit": 10})
    assert "tests/unit took 11.0 s of 10 s, over its budget" in said


def test_however_slow_a_run_is_it_stays_green() -> None:
    """Only what plug-ins do at the end of a session can change its status."""
    assert not hasattr(BudgetPlugin, "pytest_sessionfinish")


def test_the_worst_overrun_comes_first() -> None:
    late = overruns({"a": 11, "b": 30, "c": 1}, {"a": 10, "b": 10, "c": 10})
    assert [overrun.suite for overrun in late] == ["b", "a"]


def test_a_suite_is_a_folder_under_tests() -> None:
    assert suite_of("tests/unit/test_a.py::TestX::test_y[tests/z]") == "unit"
    assert suite_of("tests/unit/deep/test_a.py::test_x") == "unit"
    assert suite_of("tests/test_a.py::test_x") == ""
    assert suite_of("examples/test_a.py::test_x") is None


def test_a_suite_without_a_budget_is_refused() -> None:
    assert unbudgeted({"unit", "newsuite", ""}, {"unit": 1}) == ["", "newsuite"]
    item = cast("pytest.Item", SimpleNamespace(nodeid="tests/newsuite/test_a.py::test_x"))
    with pytest.raises(pytest.UsageError, match="no time budget for tests/newsuite"):
        BudgetPlugin({"unit": 1}).pytest_collection_modifyitems([item])


@pytest.mark.parametrize("table", ["budgets", "timeouts"])
@pytest.mark.parametrize("seconds", ["0", "-1", "'long'", "true"])
def test_seconds_that_are_no_time_are_refused(tmp_path: Path, seconds: str, table: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool.keyshared.{table}]\nunit = {seconds}\n", encoding="utf-8")
    with pytest.raises(pytest.UsageError, match=rf"keyshared.{table}\] unit = .*above 0"):
        read_seconds(path, table)


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text("[project]\n", encoding="utf-8")
    with pytest.raises(pytest.UsageError, match="is missing"):
        read_budgets(path)


def test_all_budgets_together_leave_make_test_its_20_minutes() -> None:
    seconds = read_budgets(ROOT / "pyproject.toml")
    alone = sum(seconds.pop(suite) for suite in ALONE)
    whole = LINT_AND_TYPES_SECONDS + sum(seconds.values()) / PROCESSES + alone
    assert whole <= MAKE_TEST_SECONDS


def test_all_plug_ins_are_active_in_this_run(request: pytest.FixtureRequest) -> None:
    manager = request.config.pluginmanager
    for name in ("budgets", "skips", "timeouts"):
        assert manager.has_plugin(f"keyshared-{name}")


def test_what_a_run_has_compiled_is_kept_whatever_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n", encoding="utf-8")
    plug_in = ["-p", "tests.bytecode", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, *plug_in, str(tmp_path)]
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT)}
    environ.pop("PYTHONPYCACHEPREFIX", None)
    subprocess.run(command, check=True, capture_output=True, env=environ, cwd=tmp_path, timeout=110)
    assert list(tmp_path.glob("__pycache__/test_it.*.pyc"))


REASON = "Java 17 is missing: install default-jre-headless"


def test_a_reason_that_says_how_to_get_the_part_is_fine_at_home() -> None:
    assert objection(REASON, ci=False) is None
    assert objection("no Docker engine answers: start one (testcontainers)", ci=False) is None


def test_on_a_build_server_only_the_container_engine_may_be_missing() -> None:
    assert "build server" in str(objection(REASON, ci=True))
    assert objection("no Docker engine answers: start one (testcontainers)", ci=True) is None


@pytest.mark.parametrize("reason", ["", "flaky", "not today", "install it\nand that"])
def test_a_reason_that_helps_nobody_is_refused(reason: str) -> None:
    assert objection(reason, ci=False) is not None


def test_the_build_server_is_known_by_ci_being_true() -> None:
    assert on_build_server({"CI": "true"})
    assert not on_build_server({"CI": "false"})
    assert not on_build_server({})


@pytest.mark.parametrize(("ci", "status"), [(False, 0), (True, 1)])
def test_a_skipped_test_fails_the_run_on_a_build_server(ci: bool, status: int) -> None:
    plugin, done, terminal = SkipPlugin(ci=ci), session(), Terminal()
    skipped = report("tests/chaos/test_a.py::test_x", 0)
    skipped.outcome = "skipped"
    skipped.longrepr = ("tests/chaos/test_a.py", 3, f"Skipped: {REASON}")
    plugin.pytest_runtest_logreport(skipped)
    plugin.pytest_sessionfinish(done, pytest.ExitCode.OK)
    plugin.pytest_terminal_summary(cast("pytest.TerminalReporter", terminal))
    assert int(done.exitstatus) == status
    assert terminal.lines[0] == f"skipped 1, first tests/chaos/test_a.py::test_x: {REASON}"
    assert len(terminal.lines) == 1 + ci


def test_a_test_that_fails_as_expected_is_not_skipped() -> None:
    plugin = SkipPlugin(ci=True)
    expected = report("tests/unit/test_a.py::test_x", 0)
    expected.outcome = "skipped"
    expected.wasxfail = "known"
    plugin.pytest_runtest_logreport(expected)
    assert plugin.refused() == {}
