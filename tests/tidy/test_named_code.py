"""What the pages that name modules name is there: files, their functions, and every part."""

from __future__ import annotations

import re

import pytest

from tests.tidy.layers import ORDER, ROOT_PART
from tests.tidy.sources import PACKAGE, ROOT, Finding, report

PAGE = "docs/internals/architecture.md"
FOLDER = "docs/internals"
PAGES = (
    PAGE,
    *(f"{FOLDER}/{name}.md" for name in ("reading-order", "states", "traps", "client-behavior")),
    *(f"{FOLDER}/{name}.md" for name in ("sources", "reliability")),
)

_PATH = re.compile(r"`((?:[\w-]+/)*[\w-]+\.py|(?:[\w-]+/)+)`")
# Names in brackets right behind a module are in it: `core/lanes/closed.py` (`LANE_TABLE`,
# `ClosedLane`).
_NAMED = re.compile(r"`((?:[\w-]+/)*\w+\.py)` \(((?:`[\w.]+`(?:, | and )?)+)\)")
_ROW = re.compile(r"^\| ((?:`[\w./]+`(?:, )?)+) \|", re.M)


def check_named_code(path: str, text: str) -> list[Finding]:
    """Modules, folders and names that the document at ``path`` names and that are not there."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}:{number}"
        found += [
            Finding(where, f"names {name}, which does not exist")
            for name in _PATH.findall(line)
            if not any((base / name).exists() for base in (ROOT / PACKAGE, ROOT))
            and not name.startswith("test_")
        ]
        for name, names in _NAMED.findall(line):
            module = ROOT / PACKAGE / name
            source = module.read_text(encoding="utf-8") if module.is_file() else ""
            found += [
                Finding(where, f"names {each}, which is not in {name}")
                for each in re.findall(r"`([\w.]+)`", names)
                if not all(_defines(source, part) for part in each.split("."))
            ]
    return found


def _defines(source: str, name: str) -> bool:
    return bool(re.search(rf"^\s*(?:def |class |self\.)?{name}\b\s*(?:[:=(\[]|$)", source, re.M))


def rows(text: str, below: str) -> list[str]:
    """Return the parts that the page's tables name in their first column, in order.

    They are those directly in ``below``, which is "" for the whole package.
    """
    names = [name for row in _ROW.findall(text) for name in re.findall(r"`([\w./]+)`", row)]
    inside = [name.removeprefix(below).strip("/") for name in names if name.startswith(below)]
    return [name.removesuffix(".py") for name in inside if name and "/" not in name]


@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert _PATH.findall(text)
    found = check_named_code(page, text)
    assert not found, report(found)


@pytest.mark.parametrize("package", ["", "core"])
def test_the_page_has_every_part_in_the_order_of_imports(package: str) -> None:
    shown = rows((ROOT / PAGE).read_text(encoding="utf-8"), package and f"{package}/")
    order = [part for part in ORDER[package] if not (package and part == ROOT_PART)]
    assert shown == order


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("see `core/no_such.py`", "names core/no_such.py, which does not exist"),
        ("see `nosuch/`", "names nosuch/, which does not exist"),
        (
            "see `core/contract/retry_policy.py` (`judge`)",
            "names judge, which is not in core/contract/retry_policy.py",
        ),
        (
            "see `core/contract/retry_policy.py` (`RetryPolicy.delay`, `RetryPolicy.after`)",
            "names RetryPolicy.after, which is not in core/contract/retry_policy.py",
        ),
    ],
)
def test_a_planted_name_that_is_not_there_is_found(line: str, complaint: str) -> None:
    (finding,) = check_named_code("docs/page.md", f"# Page\n\n{line}\n")
    assert str(finding) == f"docs/page.md:3: {complaint}"
