"""Every place that rests on the interpreter lock says so, and is in the list of them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

PACKAGE = Path("kafka_keyshared")
PAGE = Path("docs/internals/architecture.md")
MARK = re.compile(r"# GIL: ")
ROW = re.compile(r"^\| `([\w/]+\.py)` \|", re.MULTILINE)


def marked() -> Counter[str]:
    return Counter(
        {
            str(path.relative_to(PACKAGE)): count
            for path in PACKAGE.rglob("*.py")
            if (count := len(MARK.findall(path.read_text(encoding="utf-8"))))
        }
    )


def listed() -> Counter[str]:
    page = PAGE.read_text(encoding="utf-8")
    section = page.split("### What rests on the interpreter lock")[1].split("\n## ")[0]
    return Counter(ROW.findall(section))


def test_each_place_that_rests_on_the_lock_is_listed_and_no_other() -> None:
    assert marked()
    assert listed() == marked()
