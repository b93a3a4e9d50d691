"""The tests have a map."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT

TESTS = ROOT / "tests"
_NAMED = re.compile(r"`((?:\w+/)+(?:\w+\.py)?)`")
_NOT_SUITES = {"mutants", "setup", "support"}


def test_the_map_names_every_suite_and_only_what_is_there() -> None:
    named = set(_NAMED.findall((TESTS / "README.md").read_text(encoding="utf-8")))
    named -= {"kafka_keyshared/"}
    assert [name for name in sorted(named) if not (TESTS / name).exists()] == []
    folders = {path.name for path in TESTS.iterdir() if any(path.glob("**/test_*.py"))}
    assert {f"{name}/" for name in folders - _NOT_SUITES} <= named
