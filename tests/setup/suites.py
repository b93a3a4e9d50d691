"""Run the suites: side by side, but for those that measure, which have the machine to themselves.

``python tests/setup/suites.py [SUITE…] [-k EXPRESSION] [-n PROCESSES]``; all suites if none is
named. Every process starts its own brokers, on ports and in folders of its own. ``-n 0`` runs
everything in one process, test after test, which is what a debugger needs.

Exit status: that of pytest; 5 when no test was picked at all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup.parts import existing_suites

ALONE = ("benchmarks",)
"""Suites whose assertions are about time."""

NONE_PICKED = 5
"""What pytest ends with when no test was picked."""

SPREAD = ("--dist", "loadfile", "--no-loadscope-reorder")


def processes() -> int:
    """Return how many processes run tests: most of them wait for brokers most of the time."""
    return 2 * (os.cpu_count() or 1)


def commands(suites: Sequence[str], count: int, pick: str | None) -> list[list[str]]:
    """Return the calls of pytest, one after the other."""
    together = [suite for suite in suites if suite not in ALONE]
    alone = [suite for suite in suites if suite in ALONE]
    picked = ["-k", pick] if pick else []
    spread = ["-n", str(count), *SPREAD] if count else []
    calls = [(together, spread), (alone, [])]
    return [
        [sys.executable, "-m", "pytest", *how, *picked, *(f"tests/{suite}" for suite in group)]
        for group, how in calls
        if group
    ]


def status_of(statuses: Sequence[int]) -> int:
    """Return the status of all: the first that is bad; one group without a test is none."""
    bad = [status for status in statuses if status not in (0, NONE_PICKED)]
    if bad:
        return bad[0]
    return 0 if 0 in statuses else NONE_PICKED


def main(arguments: Sequence[str]) -> int:
    """Run them; see the module."""
    parser = argparse.ArgumentParser(prog="suites.py", description="Run the suites.")
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="folders of tests/")
    parser.add_argument("-k", dest="pick", help="only tests whose names match")
    parser.add_argument("-n", dest="count", type=int, default=processes(), help="processes")
    asked = parser.parse_args(arguments)
    known = existing_suites(Path("tests"))
    if unknown := sorted(set(asked.suites) - set(known)):
        parser.error(f"no suite {', '.join(unknown)}; there are {', '.join(known)}")
    calls = commands(asked.suites or known, asked.count, asked.pick)
    return status_of([subprocess.run(call, check=False).returncode for call in calls])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
