"""A file that names letters: what it takes, and what is wrong with one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_keyshared.cli.dlq_options import absent
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay_plan import digest_of, mark_of
from kafka_keyshared.dlq.selection import LetterSelection
from kafka_keyshared.errors import ConfigError
from tests.support.letters import a_letter

LETTERS = [a_letter((partition, 7), ("t", 0, partition)) for partition in range(3)]


def line_of(topic: str, at: LetterPlace, mark: int) -> str:
    return json.dumps({"topic": topic, "at": str(at), "mark": f"{mark:016x}"})


def selected(file: Path, *lines: str) -> LetterSelection:
    file.write_text("".join(f"{line}\n" for line in lines))
    return LetterSelection(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "selection.jsonl"


def test_the_letters_that_are_named_are_taken_and_no_others(file: Path) -> None:
    one, two, three = LETTERS
    by_mark = line_of("t.dlq", one.at, mark_of(one, digest_of(one)))
    # As an export has it, and whatever was made of that.
    found = selected(
        file, by_mark, "", '{"at": "1:7", "written": 5, "key": {"text": "k"}}', by_mark
    )
    choice = Choice(selection=found)
    assert [choice.takes(each) for each in (one, two, three)] == [True, True, False]
    assert not choice.takes(replace(one, at=LetterPlace(0, 8)))
    assert (len(found), found.met, absent(choice)) == (2, 2, None)
    assert [found.within(each, 0, 9) for each in range(3)] == [(7, 8), (7, 8), (9, 9)]


def test_another_letter_at_the_place_is_not_meant_and_is_told(file: Path) -> None:
    letter = LETTERS[0]
    choice = Choice(selection=selected(file, line_of("t.dlq", letter.at, 4711)))
    assert not choice.takes(letter)
    assert absent(choice) == (
        "1 of 1 selected letters do not exist: they were deleted, or the topic was created again"
    )
    # Not all was read, so nothing is known of the others.
    assert absent(replace(choice, partition=1)) is None


def test_letters_of_another_topic_are_refused(file: Path) -> None:
    found = selected(file, line_of("t.dlq", LetterPlace(0, 1), 1))
    found.require("t.dlq")
    with pytest.raises(ConfigError, match=r"is of letters in 't.dlq', .* give --dlq t.dlq"):
        found.require("u.dlq")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "the file has no letters"),
        (["[]"], "line 1: Expected `object`"),
        (['{"at": "0:1"}', "0:2"], "line 2: .* give what `keyshared spark dlq"),
        (['{"at": "0@1"}'], "line 1: '0@1' is no place of a letter, such as 0:12"),
        (['{"at": "0:9999999999999999999"}'], "is no place of a letter"),
        (['{"at": "0:1", "mark": "xyz"}'], "line 1: invalid literal"),
        (['{"at": "0:1", "mark": "10000000000000000"}'], "line 1: the mark .* is none"),
        (['{"at": "0:1", "topic": "t"}', '{"at": "0:1", "topic": "u"}'], "line 2: a letter of 'u'"),
        (['{"at": "0:1", "topic": "t', ""], "line 1: "),
    ],
)
def test_what_is_no_selection_is_refused_in_a_line(file: Path, lines: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"--selection .*: .*{said}") as raised:
        selected(file, *lines)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        LetterSelection(file)
    file.write_bytes(b'{"at": "0:1", "topic": "\xff"}\n')
    with pytest.raises(ConfigError, match="line 1: "):
        LetterSelection(file)
