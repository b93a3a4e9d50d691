"""Plants one fault at a time and sees whether the tests catch it: what `make mutants` runs.

A *mutant* is a text of a source file and the faulty text to put in its place, kept as data under
``tests/mutants/``. It is planted in a copy of the sources, and the test files that it names must
fail within a minute. One that survives shows a rule of the package that no test holds.

With ``--matrix`` the tests go on behind the first failure, and all that catch a mutant are named. A
test that is never the only one, of any mutant, may say nothing that others do not say.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "mutants"
PACKAGE = "kafka_keyshared"
COPIED = (PACKAGE, "tests", "examples", "docs", "pyproject.toml", "README.md")

LIMIT = 180.0
"""Seconds in which the tests must have caught a mutant."""

BASELINE_LIMIT = 540.0
AT_ONCE = 2

_FIELDS = {"name", "file", "old", "new", "breaks", "tests"}
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S+)", re.MULTILINE)
_TESTS_FAILED = 1  # pytest's exit status; others mean that it did not get as far as that


class MutantError(Exception):
    """A mutant that cannot be planted, or a tree in which nothing can be learnt of one."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault: in ``file`` the text ``old`` becomes ``new``, which breaks the rule ``breaks``.

    ``tests`` are the test files that catch it, the likeliest first.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]

    def planted(self, text: str) -> str:
        """Return the file's text with the fault in it.

        Raises :class:`MutantError` where ``old`` does not stand there exactly once, or where what
        comes out is no Python or the same program as before.
        """
        count = text.count(self.old)
        if count != 1:
            raise MutantError(
                f"{self.name}: its old text stands {count} times in {self.file}, not once: follow "
                "what the file says now, or take the mutant out if there is nothing left to break"
            )
        mutated = text.replace(self.old, self.new)
        try:
            program = _program(mutated)
        except SyntaxError as error:
            raise MutantError(f"{self.name}: {self.file} is no Python with it: {error}") from error
        if program == _program(text):
            raise MutantError(f"{self.name}: {self.file} is the same program with it")
        return mutated


@cache
def _program(text: str) -> tuple[object, ...]:
    """Return what Python makes of a module, without the places of its lines."""
    return _without_lines(compile(text, "", "exec", dont_inherit=True))


def _without_lines(code: CodeType) -> tuple[object, ...]:
    inner = [_without_lines(e) if isinstance(e, CodeType) else e for e in code.co_consts]
    return (code.co_code, code.co_names, code.co_varnames, code.co_exceptiontable, repr(inner))


class Verdict(Enum):
    """What became of a mutant; only the first is as it should be."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    TOO_SLOW = "TOO SLOW"
    NOT_TRIED = "NOT TRIED"


class Result(NamedTuple):
    """The verdict on a mutant, the test that caught it or what went wrong, and the seconds."""

    mutant: Mutant
    verdict: Verdict
    by: str
    seconds: float
    killers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.verdict.value:9}  {self.seconds:5.1f} s  {self.mutant.name:44}  {self.by}"


def read_mutants(folder: Path = FOLDER) -> list[Mutant]:
    """Return every mutant under the folder; raise :class:`MutantError` for a file that is wrong."""
    found: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.toml")):
        for number, table in enumerate(_tables(path), start=1):
            where = f"{path.name}, mutant {number}"
            if table.keys() != _FIELDS:
                odd = ", ".join(sorted(table.keys() ^ _FIELDS))
                raise MutantError(f"{where}: give {', '.join(sorted(_FIELDS))}; see {odd}")
            mutant = Mutant(**{**table, "tests": tuple(table["tests"])})
            if not _NAME.fullmatch(mutant.name) or mutant.name in found:
                raise MutantError(f"{where}: {mutant.name!r} is no name of its own, in-this-form")
            if not (mutant.tests and mutant.breaks.strip()):
                raise MutantError(f"{where}: {mutant.name} needs test files and the rule it breaks")
            found[mutant.name] = mutant
    return list(found.values())


def _tables(path: Path) -> list[dict[str, Any]]:
    try:
        tables: list[dict[str, Any]] = tomllib.loads(path.read_text("utf-8")).get("mutant", [])
    except tomllib.TOMLDecodeError as error:
        raise MutantError(f"{path}: not TOML: {error}") from error
    return tables


class Tree:
    """A copy of the sources, in which the tests import what stands in the copy."""

    def __init__(self, source: Path, at: Path) -> None:
        self.root = at
        for name in COPIED:
            if (source / name).is_dir():
                shutil.copytree(
                    source / name, at / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            elif (source / name).exists():
                shutil.copy2(source / name, at / name)
        self._check_imports()

    def _check_imports(self) -> None:
        """An installed package, an editable one too, would be tested in place of the copy."""
        code = f"import {PACKAGE}; print({PACKAGE}.__file__)"
        status, out = self._python(["-c", code], LIMIT)
        if status != 0 or not Path(out.strip()).is_relative_to(self.root.resolve()):
            raise MutantError(f"tests in {self.root} would not import what stands there: {out}")

    def test(
        self, files: Iterable[str], limit: float, *, through: bool = False
    ) -> tuple[int | None, str]:
        """Run test files up to the first failure; the status is None when time ran out.

        With ``through`` the tests behind a failure run, too.
        """
        options = [*([] if through else ["-x"]), "-rfE", "--tb=line", "-p", "no:cacheprovider"]
        return self._python(["-m", "pytest", *options, *files], limit)

    def _python(self, arguments: Sequence[str], limit: float) -> tuple[int | None, str]:
        environment = {k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"}
        with subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**environment, "PYTHONPATH": str(self.root)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                return None, ""
            finally:
                # What the tests have started ends with them.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, out

    def try_out(self, mutant: Mutant, limit: float = LIMIT, *, matrix: bool = False) -> Result:
        """Plant the mutant, run its tests, and take it out again.

        With ``matrix`` all tests that catch it are in the result.
        """
        path = self.root / mutant.file
        began = time.monotonic()
        try:
            text = path.read_text("utf-8")
            mutated = mutant.planted(text)
        except (OSError, MutantError) as error:
            return Result(mutant, Verdict.NOT_TRIED, str(error), 0.0)
        try:
            _write(path, mutated)
            status, out = self.test(mutant.tests, limit, through=matrix)
        finally:
            _write(path, text)
        seconds = time.monotonic() - began
        if status is None:
            return Result(mutant, Verdict.TOO_SLOW, f"not done after {limit:g} s", seconds)
        if status == 0:
            return Result(mutant, Verdict.SURVIVED, mutant.breaks, seconds)
        failed = tuple(dict.fromkeys(match["test"] for match in _FAILED.finditer(out)))
        if status != _TESTS_FAILED or not failed:
            last = out.strip().splitlines()[-1:]
            return Result(mutant, Verdict.NOT_TRIED, f"no test ran: {''.join(last)}", seconds)
        return Result(mutant, Verdict.CAUGHT, failed[0], seconds, failed)


def _write(path: Path, text: str) -> None:
    """Write a source file and remove what was compiled of it.

    Python takes a compiled file for the newest as long as size and second of the source agree.
    """
    path.write_text(text, "utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run(
    mutants: Sequence[Mutant],
    source: Path = ROOT,
    *,
    limit: float = LIMIT,
    matrix: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> list[Result]:
    """Try out every mutant, some at a time; return the results in the order of the mutants.

    Raises :class:`MutantError` when the tests fail without any mutant: then a failure says nothing.
    """
    with tempfile.TemporaryDirectory(prefix="keyshared-mutants-") as folder:
        trees: SimpleQueue[Tree] = SimpleQueue()
        all_trees = [Tree(source, _made(Path(folder, str(n)))) for n in range(AT_ONCE)]
        files = list(dict.fromkeys(file for mutant in mutants for file in mutant.tests))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            began = time.monotonic()
            for out in pool.map(
                lambda n: _baseline(all_trees[n], files[n::AT_ONCE]), range(AT_ONCE)
            ):
                say(out)
            say(f"without a mutant all tests pass ({time.monotonic() - began:.0f} s)")
            for tree in all_trees:
                trees.put(tree)

            def try_one(mutant: Mutant) -> Result:
                tree = trees.get()
                try:
                    result = tree.try_out(mutant, limit, matrix=matrix)
                finally:
                    trees.put(tree)
                say(str(result))
                return result

            return list(pool.map(try_one, mutants))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _baseline(tree: Tree, files: Sequence[str]) -> str:
    if not files:
        return "no test files"
    status, out = tree.test(files, BASELINE_LIMIT)
    if status is None:
        raise MutantError(f"the tests, without any mutant, did not end in {BASELINE_LIMIT:g} s")
    if status != 0:
        raise MutantError(
            f"the tests fail without any mutant, so nothing can be learnt: see to them first\n{out}"
        )
    return out.strip().splitlines()[-1]


def matrix_of(results: Iterable[Result]) -> list[str]:
    """Return a line for each test that caught mutants: how many, and which no other test caught."""
    caught: defaultdict[str, list[str]] = defaultdict(list)
    alone: defaultdict[str, list[str]] = defaultdict(list)
    for result in results:
        for test in result.killers:
            caught[test].append(result.mutant.name)
        if len(result.killers) == 1:
            alone[result.killers[0]].append(result.mutant.name)
    return [
        f"{len(caught[test]):4} caught, {len(alone[test]):3} alone  {test}  {' '.join(alone[test])}"
        for test in sorted(caught, key=lambda test: (-len(alone[test]), -len(caught[test]), test))
    ]


def main(arguments: Sequence[str]) -> int:
    """Try out the mutants that the options choose; 0 when each is caught."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("-k", default="", help="try only mutants with this in their name")
    parser.add_argument("--matrix", action="store_true", help="name all tests that catch each one")
    parser.add_argument("--file", default="", help="try only mutants of files with this in it")
    parser.add_argument("--tests", nargs="+", default=[], help="run these files in place of theirs")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        mutants = [
            replace(mutant, tests=tuple(given.tests) or mutant.tests)
            for mutant in read_mutants()
            if given.k in mutant.name and given.file in mutant.file
        ]
        if not mutants:
            print(f"no mutant has {given.k!r} in its name and is in such a file", file=sys.stderr)
            return 2
        results = run(mutants, matrix=given.matrix, say=lambda line: print(line, flush=True))
    except MutantError as error:
        print(error, file=sys.stderr)
        return 2
    if given.matrix:
        print("", *matrix_of(results), sep="\n")
    counts = Counter(result.verdict for result in results)
    missed = [result for result in results if result.verdict is not Verdict.CAUGHT]
    if missed:
        print("\nnot caught:", *missed, sep="\n")
    told = ", ".join(f"{counts[each]} {each.value.lower()}" for each in Verdict)
    slowest = max(result.seconds for result in results)
    took = time.monotonic() - began
    print(f"\n{len(results)} mutants: {told}; the slowest {slowest:.1f} s, all {took:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
