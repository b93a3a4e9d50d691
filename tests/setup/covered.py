"""Runs the suites under coverage.py and holds every part of the package to what it must reach.

Lines and branches count alike. The core decides everything, so each of its modules has a figure of
its own; elsewhere the figure is the package's, because what a module does in a process that is
killed, or on another system, is not seen. Not every suite runs: those chosen reach everything that
can be reached without killing processes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "coverage"

CORE, CORE_LEAST, LEAST = "core", 97.0, 90.0

SUITES = (
    *("tests/unit", "tests/property", "tests/conformance", "tests/web", "tests/benchmarks"),
    # What is a program of its own, or needs a broker: the command line, the demo, the fixtures.
    *(
        f"tests/integration/test_{name}.py"
        for name in (
            *("advise", "cli_demo", "cli_doctor", "cli_run", "dlq_verbs", "doctor_finds", "init"),
            *("split_and_pull", "testing_cluster", "testing_plugin", "testing_running"),
        )
    ),
)


class Reached(NamedTuple):
    """Lines and branches of something, and how many of them were reached."""

    reached: int
    all: int

    @property
    def percent(self) -> float:
        """All of nothing is everything."""
        return 100.0 * self.reached / self.all if self.all else 100.0

    def plus(self, other: Reached) -> Reached:
        """Both together."""
        return Reached(self.reached + other.reached, self.all + other.all)


def package_of(module: str) -> str:
    """The part of the package that a file belongs to; ``(top)`` for what stands above the parts."""
    parts = PurePosixPath(module).parts
    return parts[1] if len(parts) > 2 else "(top)"


def modules_in(report: Mapping[str, Any]) -> dict[str, Reached]:
    """What was reached of each file, by its path."""
    found = {}
    for path, file in report["files"].items():
        summary = file["summary"]
        found[Path(path).as_posix()] = Reached(
            summary["covered_lines"] + summary["covered_branches"],
            summary["num_statements"] + summary["num_branches"],
        )
    return found


def packages_in(modules: Mapping[str, Reached]) -> dict[str, Reached]:
    """The same by part of the package."""
    found: defaultdict[str, Reached] = defaultdict(lambda: Reached(0, 0))
    for module, reached in modules.items():
        package = package_of(module)
        found[package] = found[package].plus(reached)
    return dict(found)


def too_little(modules: Mapping[str, Reached]) -> list[str]:
    """What does not reach its figure, a line each."""
    found = [
        f"{module}: {reached.percent:.1f} % of lines and branches, at least {CORE_LEAST:g} wanted"
        for module, reached in sorted(modules.items())
        if package_of(module) == CORE and reached.percent < CORE_LEAST
    ]
    found += [
        f"{package}: {reached.percent:.1f} % of lines and branches, at least {LEAST:g} wanted"
        for package, reached in sorted(packages_in(modules).items())
        if package != CORE and reached.percent < LEAST
    ]
    return found


def table(modules: Mapping[str, Reached]) -> Iterator[str]:
    """A line for each module, then one for each part of the package."""
    for module, reached in sorted(modules.items()):
        yield f"{reached.percent:6.1f} %  {module}"
    yield ""
    for package, reached in sorted(packages_in(modules).items()):
        least = CORE_LEAST if package == CORE else LEAST
        yield f"{reached.percent:6.1f} %  {package:<12} (least: {least:g})"


def _coverage(*arguments: str) -> int:
    command = [sys.executable, "-m", "coverage", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    """Measure, print, judge; return the exit status."""
    shutil.rmtree(BUILD, ignore_errors=True)
    BUILD.mkdir(parents=True)
    status = _coverage("run", "-m", "pytest", *SUITES)
    report = BUILD / "report.json"
    if _coverage("combine", "--quiet") or _coverage("json", "--quiet", "-o", str(report)):
        return 1
    modules = modules_in(json.loads(report.read_text(encoding="utf-8")))
    print("\n".join(table(modules)))
    missed = too_little(modules)
    print("\n".join(missed), file=sys.stderr, end="\n" if missed else "")
    return 1 if missed or status else 0


if __name__ == "__main__":
    sys.exit(main())
