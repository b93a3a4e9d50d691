"""The file of public names says what the package has: a name that goes is seen in review."""

from __future__ import annotations

import json

from tests.setup.public_names import PAGE, changes, names


def test_the_file_has_every_public_name() -> None:
    found = [*changes(json.loads(PAGE.read_text("utf-8")), names())]
    assert not found, "\n".join(["run `python tests/setup/public_names.py`:", *found])


def test_what_went_and_what_came_is_told_by_kind() -> None:
    before = {"settings": ["poison", "topics"], "metrics": ["a"]}
    after = {"settings": ["on_exhausted", "topics"], "metrics": ["a"], "headers": ["h"]}
    assert [*changes(before, after)] == [
        "headers: + h",
        "settings: - poison",
        "settings: + on_exhausted",
    ]
