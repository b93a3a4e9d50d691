"""The planted faults still apply to the sources, and the runner can tell what became of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.setup.mutants import (
    Mutant,
    MutantError,
    Tree,
    Verdict,
    main,
    matrix_of,
    read_mutants,
    run,
)
from tests.tidy.sources import ROOT

MUTANTS = read_mutants()

AREAS = (
    "core",
    "executors",
    "executors/handling",
    "client",
    "runtime",
    "dlq",
    "config",
    "config/keys",
    "observability/web",
    "observability/diagnosis",
    "observability/audit",
    "cli/advice",
    "lab/simulator",
    "spark",
)


def test_every_mutant_applies_and_names_tests_that_are_there() -> None:
    found = []
    for each in MUTANTS:
        try:
            each.planted((ROOT / each.file).read_text("utf-8"))
        except (OSError, MutantError) as error:
            found.append(str(error))
        found += [f"{each.name}: no {name}" for name in each.tests if not (ROOT / name).is_file()]
    assert not found, "\n".join(found)


def test_every_area_has_mutants() -> None:
    files = [mutant.file for mutant in MUTANTS]
    without = [
        area
        for area in AREAS
        if not any(file.startswith(f"kafka_keyshared/{area}/") for file in files)
    ]
    assert len(MUTANTS) >= 80
    assert without == []


OLD = 'limit = 3\nname = "limit"\n'


def mutant(name: str = "one", old: str = "limit = 3", new: str = "limit = 4") -> Mutant:
    return Mutant(name, "kafka_keyshared/thing.py", old, new, "three", ("tests/test_thing.py",))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("limit = 4", "limit = 5", "stands 0 times"),
        ("limit", "bound", "stands 2 times"),
        ("limit = 3", "limit = (3", "is no Python"),
        ("limit = 3", "limit  =  3  # three", "is the same program"),
    ],
)
def test_what_cannot_be_planted_says_why(old: str, new: str, said: str) -> None:
    with pytest.raises(MutantError, match=said):
        mutant("one", old, new).planted(OLD)


TABLE = """
[[mutant]]
name = "one"
file = "a.py"
old = "a"
new = "b"
breaks = "it"
tests = ["test_a.py"]
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TABLE.replace('new = "b"\n', ""), "see new"),
        (TABLE + 'more = "x"\n', "see more"),
        (TABLE + TABLE, "no name of its own"),
        (TABLE.replace('"one"', '"One of them"'), "no name of its own"),
        (TABLE.replace('["test_a.py"]', "[]"), "needs test files"),
        (TABLE.replace('"it"', '" "'), "the rule it breaks"),
        ("[[mutant", "not TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "area.toml").write_text(text)
    with pytest.raises(MutantError, match=said):
        read_mutants(tmp_path)


# --- what became of it ---

PROJECT = {
    "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-q", "--import-mode=importlib"]\n'
    'pythonpath = ["."]\n',
    "kafka_keyshared/__init__.py": "",
    "kafka_keyshared/thing.py": "limit = 3\nunused = 0\nready = True\n",
    "tests/test_thing.py": """
        from threading import Event

        from kafka_keyshared import thing

        def test_the_limit():
            if not thing.ready:
                Event().wait()
            assert thing.limit == 3
    """.replace("\n        ", "\n"),
}


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """Return what makes a small checkout, with other files in place of its own."""

    def make(**files: str) -> Path:
        for name, text in {**PROJECT, **files}.items():
            path = tmp_path / "checkout" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / "checkout"

    return make


def test_the_runner_tells_who_is_caught_who_survives_and_who_was_not_tried(
    project: Callable[..., Path],
) -> None:
    """As long as a harmless one survives, "caught" says something."""
    checkout = project()
    mutants = [
        mutant("caught"),
        mutant("harmless", "unused = 0", "unused = 1"),
        mutant("gone", "no such text", "limit = 4"),
        mutant("does-not-start", "unused = 0", "raise ImportError"),
    ]
    said: list[str] = []
    results = {result.mutant.name: result for result in run(mutants, checkout, say=said.append)}
    assert {name: result.verdict for name, result in results.items()} == {
        "caught": Verdict.CAUGHT,
        "harmless": Verdict.SURVIVED,
        "gone": Verdict.NOT_TRIED,
        "does-not-start": Verdict.NOT_TRIED,
    }
    assert results["caught"].by == "tests/test_thing.py::test_the_limit"
    assert results["harmless"].by == "three", "the rule that nothing holds"
    assert "stands 0 times" in results["gone"].by
    assert (checkout / "kafka_keyshared/thing.py").read_text() == PROJECT[
        "kafka_keyshared/thing.py"
    ]
    assert sum("SURVIVED" in line and "harmless" in line for line in said) == 1


def test_one_that_hangs_is_too_slow_and_what_it_started_ends(
    project: Callable[..., Path], tmp_path: Path
) -> None:
    tree = Tree(project(), tmp_path / "tree")
    hangs = mutant("hangs", "ready = True", "ready = False")
    assert tree.try_out(hangs, limit=5.0).verdict is Verdict.TOO_SLOW
    assert tree.test(hangs.tests, limit=60.0)[0] == 0, "it was taken out again"


def test_the_matrix_names_all_tests_that_catch_a_mutant_and_which_were_alone(
    project: Callable[..., Path],
) -> None:
    text = PROJECT["tests/test_thing.py"] + (
        "\ndef test_more():\n    assert thing.limit < 4\n    assert not thing.unused\n"
    )
    checkout = project(**{"tests/test_thing.py": text})
    mutants = [mutant("both"), mutant("one", "unused = 0", "unused = 1")]
    limit, more = (f"tests/test_thing.py::test_{name}" for name in ("the_limit", "more"))
    results = run(mutants, checkout, matrix=True)
    assert [result.killers for result in results] == [(limit, more), (more,)]
    assert [line.split() for line in matrix_of(results)] == [
        ["2", "caught,", "1", "alone", more, "one"],
        ["1", "caught,", "0", "alone", limit],
    ]
    assert [result.killers for result in run(mutants, checkout)] == [(limit,), (more,)]


def test_where_tests_fail_without_a_mutant_nothing_is_learnt(
    project: Callable[..., Path],
) -> None:
    red = "def test_red():\n    assert not 'red'\n"
    checkout = project(**{"tests/test_thing.py": red})
    with pytest.raises(MutantError, match="fail without any mutant"):
        run([mutant()], checkout)


def test_a_name_that_no_mutant_has_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-k", "no such mutant"]) == 2
    assert (
        "no mutant has 'no such mutant' in its name and is in such a file"
        in capsys.readouterr().err
    )
