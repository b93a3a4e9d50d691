"""A pytest plug-in for a run that is spread over processes (pytest-xdist, ``-n``).

A file of tests stays in one process (``--dist loadfile``), because its tests share what its
fixtures have started, and files are given out in the order in which they were collected
(``--no-loadscope-reorder``). Files that ``[tool.keyshared.together]`` names in one list stay in one
process as well: what they share takes longer to start than most of them take.

So the order is made here: what takes longest goes first, or at the end one process works alone.
First come the files that ``[tool.keyshared.first]`` in pyproject.toml names, then the others by the
seconds that the budget of their suite has for so many tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests.budgets import house_table, read_budgets, suite_of


def in_order(
    tests: Mapping[str, int], first: Sequence[str], budgets: Mapping[str, float]
) -> list[str]:
    """Return the files in the order of their start; ``tests`` is how many each has."""
    of_suite: Counter[str] = Counter()
    for file, count in tests.items():
        of_suite[suite_of(file) or ""] += count

    def rank(file: str) -> tuple[int, float, str]:
        suite = suite_of(file) or ""
        seconds = budgets.get(suite, 0.0) / of_suite[suite] * tests[file]
        return first.index(file) if file in first else len(first), -seconds, file

    return sorted(tests, key=rank)


def read_first(pyproject: Path) -> list[str]:
    """Return the files that start before all others."""
    return _there(pyproject, "first", house_table(pyproject, "first").get("files", []))


def read_together(pyproject: Path) -> dict[str, str]:
    """Return the name of its group for each file that stays with others in one process."""
    groups = house_table(pyproject, "together")
    found = {file: name for name, files in groups.items() for file in files}
    _there(pyproject, "together", [*found])
    return found


def _there(pyproject: Path, name: str, files: list[str]) -> list[str]:
    """Return the files; raises :class:`pytest.UsageError` for one that is not there."""
    if gone := [file for file in files if not (pyproject.parent / file).is_file()]:
        raise pytest.UsageError(
            f"{pyproject}: [tool.keyshared.{name}] names {', '.join(gone)}, which is not there: "
            "give its new name or take it out"
        )
    return files


class SpreadPlugin:
    """Puts the collected tests in the order in which their files are to start."""

    def __init__(self, first: Sequence[str], budgets: Mapping[str, float]) -> None:
        self.first = first
        self.budgets = budgets

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        files = [item.nodeid.partition("::")[0] for item in items]
        order = in_order(Counter(files), self.first, self.budgets)
        place = {file: at for at, file in enumerate(order)}
        items.sort(key=lambda item: place[item.nodeid.partition("::")[0]])


class Together(LoadFileScheduling):  # type: ignore[misc] # pytest-xdist has no types
    """Gives out files, and those of one group as one; goes on when a process has died.

    By itself pytest-xdist would give the test that ended a process to the next one, which it ends
    as well, and files that are finished to a process that then waits for ever for a test's end.
    """

    groups: Mapping[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return self.groups.get(file, file)

    def remove_node(self, node: Any) -> str | None:
        """Take back what a process that has ended was given; return the test that it ran."""
        files: dict[str, dict[str, bool]] = self.assigned_work[node]
        tests = ((name, over) for file in files.values() for name, over in file.items())
        running = next((name for name, over in tests if not over), None)
        if running is not None:
            files[self._split_scope(running)][running] = True
        left = {name: file for name, file in files.items() if not all(file.values())}
        self.assigned_work[node] = left
        super().remove_node(node)
        return running

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # else it does not know its tests yet
            super()._reschedule(node)

    def schedule(self) -> None:
        """Begin; or begin with a process that takes the place of one that has died."""
        super().schedule()
        for (
            node
        ) in self.nodes:  # a process runs a test once it knows the next, or that there is none
            self._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep files that belong together in one process, where files are what is given out."""
    if config.getvalue("dist") != "loadfile":
        return None
    together = Together(config, log)
    together.groups = read_together(config.rootpath / "pyproject.toml")
    return together


def pytest_configure(config: pytest.Config) -> None:
    first = read_first(config.rootpath / "pyproject.toml")
    if hasattr(config, "workerinput"):  # this is one of the processes
        budgets = read_budgets(config.rootpath / "pyproject.toml")
        config.pluginmanager.register(SpreadPlugin(first, budgets), "keyshared-spread")
