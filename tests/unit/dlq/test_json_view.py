"""A replay's plan and its progress, as a person sees them."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.cli.dlq_replay import (
    KEY_SHOWN,
    MOST_PLACES,
    ReplayProgressLog,
    write_outcome,
    write_plan,
)
from kafka_keyshared.dlq.letter import LetterPlace

PLAN: dict[str, Any] = {
    "topic": "orders.dlq",
    "to_replay": 1_200,
    "to": {"gone": 200, "orders": 1_000},
    "partitions": {"gone": None, "orders": 4},
    "order": "per key of the source",
    "lanes": 30,
    "lanes_to": {"gone": 10, "orders": 20},
    "without_order": 0,
    "keyless_to": {},
    "most": [{"key": {"text": "customer-" + "x" * 300}, "letters": 77}],
    "already_replayed": 0,
    "copies": 0,
    "guarded": 9,
    "foreign": 0,
    "unreadable": 0,
    "examples": {"guarded": [f"0:{n}" for n in range(9)]},
}


def test_a_plan_is_a_table_that_fits_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write_plan(PLAN)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert ["orders", "4", "1,000", "20"] in cells
    assert ["gone", "none", "200", "10"] in cells
    (key,) = [row for row in cells if row[0].startswith("customer-")]
    assert (len(key[0]), key[0][-1], key[1]) == (KEY_SHOWN, "…", "77")
    (guarded,) = [row for row in cells if row[0].startswith("replayed too often")]
    assert guarded[1:] == ["9", "0:0, 0:1, 0:2, 0:3, 0:4, …"]
    assert guarded[2].count(":") == MOST_PLACES
    assert not any("not a dead letter of this package" in row for row in cells), (
        "what is none is left out"
    )


def test_what_became_of_the_letters_is_told_with_the_reasons(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    became = {"replayed": 5, "refused": 2, "behind_refused": 0, "gone": 0, "left": 0}
    why = "too large; raise its max.message.bytes"
    write_outcome({**became, "why": {why: 2}, "refused_examples": {"0:4": why, "1:5": why}})
    shown = capsys.readouterr().out
    assert "sent and acknowledged" in shown
    assert "no longer in the topic" not in shown
    (row,) = [line for line in shown.splitlines() if why in line]
    assert "0:4, 1:5" in row


def test_a_long_replay_says_every_ten_seconds_how_far_it_is() -> None:
    now, notes, kept = 0.0, list[str](), list[Any]()

    class Keeper:
        def add(self, letters: Any) -> None:
            kept.extend(letters)

    telling = ReplayProgressLog(Keeper(), 100, notes.append, lambda: now)
    for number in range(100):
        telling.add([(LetterPlace(0, number), number)])
        now += 0.5
    assert len(kept) == 100
    assert notes[0] == "replayed 21 of 100 letters, about 38 s left"
    assert len(notes) == 4
