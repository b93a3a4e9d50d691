"""The faults that systems of this kind have had, each planted and caught: what `make planted` runs.

``tests/mutants/planted.toml`` says which mutant has each fault and which test catches it. The table
of them in docs/internals/reliability.md is written from there, with the seconds of the last run
that was told to ``--write`` it.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.setup.mutants import (
    FOLDER,
    ROOT,
    Mutant,
    MutantError,
    Result,
    Verdict,
    read_mutants,
    run,
)
from tests.setup.page_tables import filled, others, table, written

PAGE = ROOT / "docs" / "internals" / "reliability.md"
TABLE = "planted faults"

LIMIT = 240.0
"""Seconds in which all of them are to be caught."""

_HEAD = ("fault", "planted as", "caught by", "seconds")
_TEST = re.compile(r"(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)")


class Bug(NamedTuple):
    """A fault in words, the mutant that has it, and the test that catches it."""

    bug: str
    mutant: Mutant
    test: str

    @property
    def row(self) -> tuple[str, str, str]:
        """What the page says of it, but for the seconds."""
        file, _, name = self.test.partition("::")
        return self.bug, f"`{self.mutant.name}`", f"`{file}`: `{name}`"


def read_bugs(path: Path = FOLDER / "planted.toml") -> list[Bug]:
    """Return every fault of the list; raise :class:`MutantError` for an entry that is wrong."""
    mutants = {mutant.name: mutant for mutant in read_mutants()}
    found = []
    for entry in tomllib.loads(path.read_text("utf-8"))["bug"]:
        if entry.keys() != {"bug", "mutant", "test"}:
            raise MutantError(f"{path.name}: give bug, mutant and test; see {entry}")
        name, test = entry["mutant"], entry["test"]
        if name not in mutants:
            raise MutantError(f"{path.name}: there is no mutant {name!r}")
        if not _TEST.fullmatch(test):
            raise MutantError(f"{path.name}: {test!r} is no test: write tests/….py::test_…")
        found.append(Bug(entry["bug"], replace(mutants[name], tests=(test,)), test))
    return found


def rows_of(page: str) -> list[tuple[str, ...]]:
    """Return the rows of the page's table."""
    lines = written(page, TABLE).strip().splitlines()[2:]
    return [tuple(cell.strip() for cell in line.strip("| ").split(" | ")) for line in lines]


def updated(page: str, bugs: Sequence[Bug], seconds: Mapping[str, float]) -> str:
    """Return the page with its table of these faults, each with the seconds until it was caught."""
    rows = [(*bug.row, f"{seconds[bug.mutant.name]:.1f}") for bug in bugs]
    return filled(PAGE.name, page, {**others(page, TABLE), TABLE: lambda: table(_HEAD, rows)})


def main(arguments: Sequence[str]) -> int:
    """Plant every fault; 0 when each is caught by its test, and all in time."""
    parser = argparse.ArgumentParser(prog="make planted", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of the page")
    write = parser.parse_args(arguments).write
    began = time.monotonic()
    try:
        bugs = read_bugs()
        results = run([bug.mutant for bug in bugs])
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    took = time.monotonic() - began
    for bug, result in zip(bugs, results, strict=True):
        print(f"{result.verdict.value:9}  {result.seconds:5.1f} s  {bug.bug}\n{'':21}{result.by}")
    missed = missed_of(results)
    print(f"\n{len(results)} planted, {len(results) - len(missed)} caught, in {took:.0f} s")
    if missed:
        return 1
    if write:
        seconds = {result.mutant.name: result.seconds for result in results}
        PAGE.write_text(updated(PAGE.read_text("utf-8"), bugs, seconds), "utf-8")
    if took > LIMIT:
        print(f"that is more than {LIMIT:.0f} s: name quicker tests in tests/mutants/planted.toml")
        return 1
    return 0


def missed_of(results: Sequence[Result]) -> list[Result]:
    """Return those that no test has caught."""
    return [result for result in results if result.verdict is not Verdict.CAUGHT]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
