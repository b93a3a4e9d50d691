"""A pytest plug-in that keeps skipped tests honest.

A test may skip only because a part outside Python is missing, and its reason says in one line how
to get that part. On a build server (``CI=true``) everything can be installed, so there a skip is a
failure; the one exception is a container engine, which cannot be installed from inside a container.
"""

from __future__ import annotations

import os
import re

import pytest

# What a reason must contain to tell its reader what to do next.
_REMEDY = re.compile(r"\b(install|run|start|set|make)\b", re.IGNORECASE)
_EXCEPTION = "testcontainers"


def objection(reason: str, *, ci: bool) -> str | None:
    """Why a test may not skip for this reason; None when it may."""
    if "\n" in reason.strip():
        return "the reason is longer than one line"
    if not _REMEDY.search(reason):
        return "the reason does not say how to get the missing part (install, run, start or set)"
    if ci and _EXCEPTION not in reason:
        return "nothing is skipped on a build server (CI=true); install the part there"
    return None


def on_build_server(environ: dict[str, str] | os._Environ[str]) -> bool:
    """Whether this run is one where every part can be installed."""
    return environ.get("CI", "").lower() == "true"


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Why the test skipped; None for one that did not skip, or that failed as expected."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(report.longrepr)


class SkipPlugin:
    """Collects the reasons of one run and refuses the ones that do not hold."""

    def __init__(self, *, ci: bool) -> None:
        self.ci = ci
        self.skipped: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = _reason(report)
        if reason is not None:
            self.skipped.setdefault(reason, []).append(report.nodeid)

    def refused(self) -> dict[str, str]:
        """The reasons that do not hold, each with what is wrong about it."""
        found = {reason: objection(reason, ci=self.ci) for reason in self.skipped}
        return {reason: why for reason, why in found.items() if why is not None}

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.refused() and exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        refused = self.refused()
        for reason, nodeids in self.skipped.items():
            line = f"skipped {len(nodeids)}, first {nodeids[0]}: {reason}"
            terminalreporter.write_line(line, yellow=True)
            if reason in refused:
                terminalreporter.write_line(f"  not allowed: {refused[reason]}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SkipPlugin(ci=on_build_server(os.environ)), "keyshared-skips")
