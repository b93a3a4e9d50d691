"""Letters as rows, and rows as letters: whatever somebody has written there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.json_view import in_a_line
from kafka_keyshared.dlq.selection import LetterSelection
from kafka_keyshared.spark.letters import letter_of, line_of, outline_of, whole_of
from tests.support.letters import a_letter

NOBODYS = a_letter((0, 3), None, None, value=None)
LETTERS = [
    a_letter((1, 7), ("t", 0, 3), group="g", attempts=4, error_type="E", error_message="m"),
    a_letter((1, 8), ("t", 0, 4), b"\xff", replays=2),
    NOBODYS,
]


@pytest.mark.parametrize("letter", LETTERS)
def test_a_row_says_of_a_letter_what_a_list_shows(letter: object) -> None:
    row = outline_of(letter)  # type: ignore[arg-type]
    full = {"source_topic": None, **row}
    assert in_a_line(letter_of(full)) == in_a_line(letter)  # type: ignore[arg-type]


def test_numbers_that_no_column_has_room_for_are_left_out() -> None:
    letter = a_letter(
        (1, 7), ("t", 0, 3), attempts=10**30, timestamp=10**30, first_failure=10**30, last_failure=5
    )
    row = whole_of(letter)
    numbers = [row[name] for name in ("attempts", "source_timestamp", "first_failure")]
    assert pa.array([*numbers, row["last_failure"]], pa.int64()).to_pylist() == [None] * 3 + [5]


def test_a_line_names_its_letter_for_a_replay(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    lines = [line_of(each, "t.dlq")["line"] for each in LETTERS[:1]]
    file.write_text("".join(f"{line}\n" for line in lines))
    assert json.loads(lines[0])["source"]["offset"] == 3
    choice = Choice(selection=LetterSelection(file))
    assert [choice.takes(each) for each in LETTERS] == [True, False, False]
