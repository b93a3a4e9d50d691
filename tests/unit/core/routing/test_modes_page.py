"""The table of the ways to share a stream is what the package does, and changes with it."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.failures import follow_up
from kafka_keyshared.core.failures.decision import Decision
from kafka_keyshared.core.leasing import drop_when_full
from tests.setup import modes_page
from tests.setup.page_tables import written


def test_the_page_has_the_table_as_the_package_is() -> None:
    text = modes_page.PAGE.read_text(encoding="utf-8")
    assert modes_page.updated(text) == text, "run: make docs"


def rows() -> dict[str, list[str]]:
    lines = modes_page.modes().splitlines()[2:]
    return {cells[0]: cells[1:] for line in lines if (cells := line.strip("| ").split(" | "))}


def test_another_rule_for_a_full_worker_is_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows()
    monkeypatch.setattr(drop_when_full, "capacity", lambda sub: 1_000)
    after = rows()
    changed = {what for what in before if before[what] != after[what]}
    assert changed == {"a record comes for a worker that is full"}
    assert after["a record comes for a worker that is full"] == ["it waits"] * 4


def test_another_rule_for_failures_is_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_up, "decide", lambda *_, **__: Decision(Disposition.DROP))
    after = rows()
    assert after["a record fails"] == ["it is dropped, its key goes on"] * 4
    assert after["a worker is gone for good"][0].startswith("what it ran is dropped")


def test_the_page_says_which_table_it_is() -> None:
    assert written(modes_page.PAGE.read_text(encoding="utf-8"), "modes") == modes_page.modes()
