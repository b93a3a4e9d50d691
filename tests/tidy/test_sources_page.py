"""The sources page names for each rule its module and its test, or says "not built yet"."""

from __future__ import annotations

import re

import pytest

from tests.tidy.sources import ROOT, Finding, report

PAGE = "docs/internals/sources.md"
NOT_BUILT = "*not built yet*"

_ROW = re.compile(r"^\| (?!rule \||---)")
_TEST = re.compile(r"`test_\w+\.py`")
_MODULE = re.compile(r"`[\w/]+\.py`")


def check_rows(text: str) -> list[Finding]:
    """Rules of which it is not said what holds them, nor that nothing does yet."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not _ROW.match(line):
            continue
        where, cells = f"{PAGE}:{number}", line.strip("| ").split(" | ")
        if len(cells) != 3:
            found.append(Finding(where, f"has {len(cells)} cells: rule, held by, test"))
            continue
        _, held, test = cells
        if not (_MODULE.search(held) or NOT_BUILT in held):
            found.append(Finding(where, f"names no module, and does not say {NOT_BUILT}"))
        if not (_TEST.search(test) or NOT_BUILT in test):
            found.append(Finding(where, f"names no test, and does not say {NOT_BUILT}"))
    return found


def test_each_rule_of_the_sources_has_a_module_and_a_test_or_says_that_it_has_none() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if _ROW.match(line)]) > 60
    found = check_rows(text)
    assert not found, report(found)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("| a rule | `core/lanes/closed.py` |", "has 2 cells"),
        ("| a rule | somewhere | `test_closed.py` |", "names no module"),
        ("| a rule | `core/lanes/closed.py` | some test |", "names no test"),
    ],
)
def test_a_row_that_leaves_it_open_is_found(line: str, complaint: str) -> None:
    head = "| rule | held by | test |\n|---|---|---|\n"
    (finding,) = check_rows(head + line)
    assert complaint in finding.what
    assert check_rows(head + "| a rule | `core/lanes/closed.py` | `test_closed.py` |\n") == []
    assert check_rows(head + f"| a rule | {NOT_BUILT} | {NOT_BUILT} |\n") == []
