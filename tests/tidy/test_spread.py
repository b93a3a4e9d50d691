"""In which order files of tests start, when a run is spread over processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.setup.suites import ALONE, NONE_PICKED, SPREAD, commands, status_of
from tests.spread import in_order, read_first, read_together
from tests.support.planted_run import planted_run

PYPROJECT = Path("pyproject.toml")


def test_what_takes_longest_starts_first() -> None:
    tests = {"tests/unit/test_a.py": 400, "tests/chaos/test_b.py": 2, "tests/chaos/test_c.py": 6}
    budgets = {"unit": 100.0, "chaos": 200.0}
    assert in_order(tests, [], budgets) == [
        "tests/chaos/test_c.py",
        "tests/unit/test_a.py",
        "tests/chaos/test_b.py",
    ]


def test_files_that_are_named_start_before_all_others() -> None:
    tests = {"tests/unit/test_a.py": 400, "tests/chaos/test_b.py": 2, "tests/chaos/test_c.py": 6}
    first = ["tests/chaos/test_b.py", "tests/unit/test_not_picked.py"]
    assert in_order(tests, first, {"unit": 1.0, "chaos": 200.0})[0] == "tests/chaos/test_b.py"


def test_a_file_that_is_named_and_gone_is_told(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[tool.keyshared.first]\nfiles = ["tests/chaos/test_gone.py"]\n')
    with pytest.raises(pytest.UsageError, match=r"names tests/chaos/test_gone\.py, which is not"):
        read_first(pyproject)


def test_the_files_that_are_named_here_are_there() -> None:
    assert read_first(PYPROJECT)


def test_files_that_stay_together_are_there_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    assert len(set(read_together(PYPROJECT).values())) == 2
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text('[tool.keyshared.together]\nall = ["tests/spark/test_gone.py"]\n')
    with pytest.raises(pytest.UsageError, match=r"names tests/spark/test_gone\.py, which is not"):
        read_together(pyproject)


def test_what_measures_runs_alone_and_after_all_others() -> None:
    together, alone = commands(["benchmarks", "chaos", "unit"], 4, None)
    assert together[-2:] == ["tests/chaos", "tests/unit"]
    assert "4" in together
    assert alone[-1:] == [f"tests/{each}" for each in ALONE]
    assert "-n" not in alone


def test_one_process_and_a_choice_of_tests_can_be_asked_for() -> None:
    (call,) = commands(["unit"], 0, "burst")
    assert call[-4:] == ["pytest", "-k", "burst", "tests/unit"]


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([0, 0], 0),
        ([0, NONE_PICKED], 0),
        ([NONE_PICKED, NONE_PICKED], NONE_PICKED),
        ([1, 0], 1),
        ([0, 1], 1),
        ([NONE_PICKED, 2], 2),
    ],
)
def test_one_bad_group_is_a_bad_run(statuses: list[int], status: int) -> None:
    assert status_of(statuses) == status


PLANTED = """
import os
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_it(number):
    if {ends!r} and number == 1:
        os._exit(1)
"""


def test_a_test_that_ends_its_process_fails_once_and_all_others_run(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.keyshared.budgets]\nunit = 1\n")
    for at in range(12):
        # Files of one test too: a process that is given one alone waits for the next.
        tests, ends = (4, True) if at in (4, 9) else (1 + 3 * (at % 2), False)
        text = PLANTED.format(tests=tests, ends=ends)
        (tmp_path / f"test_{at:02}.py").write_text(text)
    ended = planted_run(tmp_path, "-p", "tests.spread", "-n", "2", *SPREAD)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    expected = sum(4 if at in (4, 9) else 1 + 3 * (at % 2) for at in range(12))
    assert f"2 failed, {expected - 2} passed" in said, said
    assert "test_04.py::test_it[1]" in said
    assert "test_09.py::test_it[1]" in said
