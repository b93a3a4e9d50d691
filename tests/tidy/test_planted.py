"""The table of planted faults names faults and tests that are there, as the page has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.setup.mutants import MutantError
from tests.setup.planted import PAGE, read_bugs, rows_of, updated
from tests.tidy.habits import functions
from tests.tidy.sources import modules

BUGS = read_bugs()


def test_the_page_has_every_planted_fault_with_the_test_that_catches_it_and_its_seconds() -> None:
    page = PAGE.read_text("utf-8")
    rows = rows_of(page)
    assert [row[:-1] for row in rows] == [bug.row for bug in BUGS], "run: make planted WRITE=1"
    seconds = {bug.mutant.name: float(row[-1]) for bug, row in zip(BUGS, rows, strict=True)}
    assert all(0 < each < 120 for each in seconds.values())
    assert updated(page, BUGS, seconds) == page


def test_every_test_that_catches_one_is_there() -> None:
    tests = {
        f"{module.path}::{each.name}"
        for module in modules("tests")
        for each in functions(module.tree)
    }
    assert [bug.test for bug in BUGS if bug.test not in tests] == []


def test_no_fault_is_planted_twice() -> None:
    assert len({bug.mutant.name for bug in BUGS}) == len({bug.bug for bug in BUGS}) == len(BUGS)


ENTRY = '[[bug]]\nbug = "It is"\nmutant = "{mutant}"\ntest = "{test}"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ENTRY.format(mutant="no-such", test="tests/a.py::test_a"), "there is no mutant 'no-such'"),
        (ENTRY.format(mutant=BUGS[0].mutant.name, test="tests/a.py"), "is no test"),
        (ENTRY + 'more = "x"\n', "give bug, mutant and test"),
    ],
)
def test_a_list_that_is_wrong_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "planted.toml").write_text(text)
    with pytest.raises(MutantError, match=said):
        read_bugs(tmp_path / "planted.toml")
