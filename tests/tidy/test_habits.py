"""The habits of the house hold, and each checker finds a planted fault."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tidy.habits import (
    check_bare_asserts,
    check_private,
    check_sleeps,
    check_swallowed,
    check_tests_assert,
    check_text,
    long_functions,
    long_modules,
)
from tests.tidy.sources import PACKAGE, Finding, Module, modules, parse, report, texts

Check = Callable[[Module], list[Finding]]

HELD: dict[Check, tuple[str, ...]] = {
    check_swallowed: (PACKAGE, "examples", "tests"),
    check_bare_asserts: (PACKAGE,),
    check_private: (PACKAGE,),
    check_sleeps: ("tests",),
    check_tests_assert: ("tests",),
}


@pytest.mark.parametrize("check", HELD, ids=lambda check: check.__name__)
def test_the_sources_keep_the_habit(check: Check) -> None:
    sources = [module for folder in HELD[check] for module in modules(folder)]
    found = [finding for module in sources for finding in check(module)]
    assert sources
    assert not found, report(found)


def test_no_file_holds_unfinished_work_or_a_path_of_one_machine() -> None:
    found = [finding for path, text in texts() for finding in check_text(path, text)]
    assert not found, report(found)


SWALLOWED = [
    "try:\n    f()\nexcept ValueError:\n    pass",
    "try:\n    f()\nexcept:\n    ...",
    "try:\n    f()\nexcept ValueError:\n    'never mind'",
    "for x in y:\n    try:\n        f()\n    except Exception:\n        continue",
    "def g():\n    try:\n        f()\n    except (ValueError, BaseException):\n        return None",
    "import contextlib\nwith contextlib.suppress(Exception):\n    f()",
]


@pytest.mark.parametrize("text", SWALLOWED)
def test_a_swallowed_error_is_found(text: str) -> None:
    assert len(check_swallowed(parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    f()\nexcept ValueError as error:\n    log(error)",
        "while True:\n    try:\n        f()\n    except Empty:\n        continue",
        "try:\n    f()\nexcept Exception:\n    failures += 1\n    raise",
        "from contextlib import suppress\nwith suppress(KeyError):\n    f()",
    ],
)
def test_a_handled_error_is_not_reported(text: str) -> None:
    assert check_swallowed(parse(text)) == []


def test_a_long_module_and_a_long_function_are_found() -> None:
    body = "\n".join(["    x = 1"] * 70)
    assert [f.what for f in long_functions(parse(f"def f():\n{body}"))] == [
        "f has 71 lines; split it (at most 70)"
    ]
    assert len(long_modules(parse("x = 1\n" * 501))) == 1
    assert long_modules(parse("x = 1\n" * 500)) == []


def test_an_assert_in_the_package_is_found() -> None:
    (finding,) = check_bare_asserts(parse("def f(x):\n    assert x\n"))
    assert finding.where.endswith(":2")


@pytest.mark.parametrize(
    "text", ["app._hooks = 1", "self.pool._cells", f"from {PACKAGE}.pools.threads import _Cell"]
)
def test_a_private_name_of_another_module_is_found(text: str) -> None:
    assert len(check_private(parse(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    def __init__(self, other):\n        self._x = other._x",
        "class A:\n    def _f(self): ...\nA()._f()",
        "if code == KafkaError._PARTITION_EOF: f()",
        "point._replace(x=1), f.__name__",
    ],
)
def test_private_names_of_ones_own_are_not_reported(text: str) -> None:
    assert check_private(parse(text)) == []


@pytest.mark.parametrize(
    "text", ["import time\ntime.sleep(1)", "from time import sleep", "f = time.sleep"]
)
def test_a_sleeping_test_is_found(text: str) -> None:
    assert len(check_sleeps(parse(text, "tests/unit/test_planted.py"))) == 1


def test_waiting_for_an_event_is_not_sleeping() -> None:
    assert check_sleeps(parse("import asyncio\nasync def f(e):\n    await e.wait()")) == []


@pytest.mark.parametrize("body", ["f()", "x = 1", "expected = 2", "pytest.skip('install it')"])
def test_a_test_without_an_assertion_is_found(body: str) -> None:
    (finding,) = check_tests_assert(parse(f"class TestX:\n    def test_a(self):\n        {body}"))
    assert "test_a" in finding.what


@pytest.mark.parametrize(
    "body",
    [
        "assert f()",
        "assert_same(a, b)",
        "self.check_order()",
        "with pytest.raises(E): f()",
        "raise AssertionError('x')",
    ],
)
def test_an_assertion_in_any_of_its_forms_counts(body: str) -> None:
    assert check_tests_assert(parse(f"async def test_a():\n    {body}")) == []


@pytest.mark.parametrize(
    "line",
    [
        "# TO" + "DO: later",
        "# FIX" + "ME",
        "see /home" + "/me/notes",
        "pip install --index" + "-url x",
        "from pypi" + ".org",
    ],
)
def test_a_planted_word_is_found(line: str) -> None:
    (finding,) = check_text("docs/planted.md", f"fine\n{line}\n")
    assert finding.where == "docs/planted.md:2"


def test_ordinary_words_and_paths_are_not_reported() -> None:
    text = "examples/work/app.py, tests/root/x, todos, /tmp/x, https://example.org/home/page"
    assert check_text("docs/planted.md", text) == []
