"""No pool is left out of anything but by a line of the table, and every case has its tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conformance.opt_outs import CASES, POOLS, REAL, RESIZES, TABLE, pools_of

HERE = Path(__file__).parent

GIVEN = ("kind", "side", "past")
"""What a test takes that is run with every pool: ``conftest.py`` and the fixture of ``side``s."""

SKIPS = ("skip", "skipif", "xfail", "importorskip")


def named_tests(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The tests of a module, by their names."""
    found = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    return {each.name: each for each in found if each.name.startswith("test_")}


def goes_round(tree: ast.Module) -> list[str]:
    """What in a module leaves pools out in another way than by the table."""
    found = []
    for name, test in named_tests(tree).items():
        if not {each.arg for each in test.args.args} & {*GIVEN}:
            found.append(f"{name} takes none of {', '.join(GIVEN)}")
        for node in ast.walk(test):
            line = getattr(node, "lineno", 0)
            called = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                called = "isinstance" if getattr(node.args[0], "id", "") in GIVEN else ""
            if called == "isinstance" and not isinstance(node, ast.Call):
                called = ""
            if called in (*SKIPS, *POOLS, "isinstance"):
                found.append(f"{name}, line {line}, asks which pool it is: {called}")
            if isinstance(node, ast.Constant) and node.value in GIVEN:
                found.append(f"{name}, line {line}, chooses its pools")
    return found


MODULES = {each.name: ast.parse(each.read_text("utf-8")) for each in HERE.glob("test_pool*.py")}
TESTS = {name for tree in MODULES.values() for name in named_tests(tree)}


@pytest.mark.parametrize("module", MODULES)
def test_a_test_of_pools_is_run_with_each_and_asks_nobody_which_it_is(module: str) -> None:
    assert goes_round(MODULES[module]) == []


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("def test_it(record): ...", "takes none of"),
        ("def test_it(side):\n    if isinstance(side, Threads): return", "isinstance"),
        ("def test_it(side):\n    pytest.skip('not today')", "skip"),
        ("@pytest.mark.parametrize('kind', [Threads])\ndef test_it(kind): ...", "chooses"),
        ("@pytest.mark.skipif(True)\ndef test_it(side): ...", "skipif"),
    ],
)
def test_what_leaves_a_pool_out_by_itself_is_found(planted: str, said: str) -> None:
    assert said in "\n".join(goes_round(ast.parse(planted)))


def test_each_line_of_the_table_names_what_there_is_and_why() -> None:
    for line in TABLE:
        assert {*line.pools.split()} <= POOLS.keys(), line
        assert {*line.tests.split()} <= TESTS, line
        assert len(line.why) > 10
    assert {*RESIZES} <= POOLS.keys()


def test_nothing_is_left_out_twice() -> None:
    out = [
        (test, pool) for line in TABLE for test in line.tests.split() for pool in line.pools.split()
    ]
    assert len(out) == len({*out})


MEMBERS = {"Members", "Split"}
UNASKED = {
    "cancel": {"Inline"},
    "death": {"Inline", "OwnTasks"},
    "unpicklable or huge exceptions, BaseException": MEMBERS,
    "state of one record in the next": MEMBERS,
    "no cycles": MEMBERS,
    "idle cost": {"Tasks", "CallTasks", *MEMBERS},
    "no leak over 1,000 resizes": MEMBERS,
}
"""Of which cases a pool that a program has is asked nothing; the table says why."""


def test_each_case_is_asked_of_each_pool_that_a_program_has() -> None:
    unasked = {}
    for case, tests in CASES.items():
        assert {*tests.split()} <= TESTS, case
        asked = {name for test in tests.split() for name in pools_of(test)}
        if left := {each.__name__ for each in REAL} - asked:
            unasked[case] = left
    assert unasked == UNASKED
