"""A pytest plug-in that gives every test an end.

Three lines of defence, each for what gets past the one before:

- ``timeout`` in pyproject.toml, or what ``[tool.keyshared.timeouts]`` says for the suite, or the
  test's own ``@pytest.mark.timeout``: the stacks of all threads are shown, the test fails, its
  fixtures end what they started, and the run goes on (pytest-timeout, by a signal).
- Twice as much: a test that the signal did not end (its main thread is inside the client's own
  code, or swallows what is raised) ends the run, again with all stacks.
- After the last test a watchdog ends a process that does not come to its end, as one does not whose
  threads hang without being daemons.

What a run has started and cannot end any more is ended by :mod:`tests.reaper`.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

from tests import reaper
from tests.budgets import read_seconds, suite_of

HARD_FACTOR = 2.0
"""How many of its time-outs a test lasts at most."""

EXIT_SECONDS = 60.0
"""How long the process may take to end after its last test."""


class TimeoutPlugin:
    """Gives the tests of a suite the time-out of their suite, and the process one for its end.

    ``stderr`` is the descriptor that the stacks go to; with 0 ``exit_seconds`` the end is awaited.
    """

    def __init__(
        self, timeouts: dict[str, float], exit_seconds: float = EXIT_SECONDS, stderr: int = 2
    ) -> None:
        self.timeouts = timeouts
        self.exit_seconds = exit_seconds
        self.stderr = stderr

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            seconds = self.timeouts.get(suite_of(item.nodeid) or "")
            if seconds is not None and item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(seconds))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        seconds = HARD_FACTOR * self.timeout_of(item)
        if seconds > 0:
            faulthandler.dump_traceback_later(seconds, exit=True, file=self.stderr)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def timeout_of(self, item: pytest.Item) -> float:
        """The seconds after which the test fails, 0 for never."""
        marker = item.get_closest_marker("timeout")
        if marker is not None:
            return float(marker.args[0] if marker.args else marker.kwargs["timeout"])
        option = item.config.getoption("timeout", default=None)
        return float((item.config.getini("timeout") or 0) if option is None else option)

    def pytest_enter_pdb(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self.exit_seconds:
            faulthandler.dump_traceback_later(self.exit_seconds, exit=True, file=self.stderr)


def pytest_configure(config: pytest.Config) -> None:
    timeouts = read_seconds(config.rootpath / "pyproject.toml", "timeouts")
    # One of several processes waits for the others, and is ended by the one that gives them work.
    end = 0.0 if hasattr(config, "workerinput") else EXIT_SECONDS
    # A copy: the one that is open now may be a test's capture, or closed, at the end.
    plugin = TimeoutPlugin(timeouts, end, stderr=os.dup(2))
    config.pluginmanager.register(plugin, "keyshared-timeouts")
    reaper.watch()
