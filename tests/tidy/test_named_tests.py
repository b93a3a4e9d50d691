"""Every test that the documents name is there."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.tidy.habits import functions
from tests.tidy.sources import Finding, modules, report, texts

_SPAN = re.compile(r"`([^`]+)`")
_FILE = re.compile(r"(?:[\w./-]*/)?(test_\w+\.py)")
_TEST = re.compile(r"test_\w+")


def check_named_tests(path: str, text: str, tests: Mapping[str, set[str]]) -> list[Finding]:
    """Tests that the document at ``path`` names and that are not there.

    ``tests`` has the test functions of every test file, by the file's name. A test in backquotes
    belongs to the file that was named last before it on its line, else to any.
    """
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        file: str | None = None
        for span in _SPAN.findall(line):
            where = f"{path}:{number}"
            if match := _FILE.fullmatch(span):
                file = match.group(1)
                if file not in tests:
                    found.append(Finding(where, f"names {file}, which does not exist"))
            elif _TEST.fullmatch(span):
                places = [file] if file is not None and file in tests else list(tests)
                if not any(span in tests[place] for place in places):
                    what = f"names {span}, which is not in {file or 'any test file'}"
                    found.append(Finding(where, what))
    return found


def _by_file() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for module in modules("tests"):
        name = module.path.rpartition("/")[2]
        if name.startswith("test_"):
            names = {each.name for each in functions(module.tree) if each.name[:5] == "test_"}
            found.setdefault(name, set()).update(names)
    return found


def test_every_test_that_a_document_names_is_there() -> None:
    tests = _by_file()
    documents = [(path, text) for path, text in texts() if path.endswith(".md")]
    found = [each for path, text in documents for each in check_named_tests(path, text, tests)]
    assert documents
    assert "test_named_tests.py" in tests
    assert not found, report(found)


TESTS = {"test_a.py": {"test_one", "test_two"}, "test_b.py": {"test_three"}}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("held by `test_c.py`", "names test_c.py, which does not exist"),
        ("held by `tests/unit/test_c.py`", "names test_c.py, which does not exist"),
        ("| trap | `test_a.py`: `test_three` |", "names test_three, which is not in test_a.py"),
        (
            "| `test_a.py`: `test_one`; `test_b.py`: `test_two` |",
            "names test_two, which is not in test_b.py",
        ),
        ("see `test_four`", "names test_four, which is not in any test file"),
    ],
)
def test_a_planted_name_that_is_not_there_is_found(line: str, complaint: str) -> None:
    (finding,) = check_named_tests("docs/page.md", f"# Page\n\n{line}\n", TESTS)
    assert str(finding) == f"docs/page.md:3: {complaint}"


@pytest.mark.parametrize(
    "line",
    [
        "| `test_a.py`: `test_one`, `test_two`; `test_b.py`: `test_three` |",
        "see `tests/unit/test_a.py`, then `test_three_is_no_test of ours`",
        "any of them, such as `test_three`",
        "run `pytest tests/unit/test_c.py`",
        "test_c.py without quotes is a word",
    ],
)
def test_a_name_that_is_there_is_not_reported(line: str) -> None:
    assert check_named_tests("docs/page.md", line, TESTS) == []
