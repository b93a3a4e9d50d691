"""What was replayed is kept, also of a process that is killed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay_file import Journal
from kafka_keyshared.errors import ConfigError, KeySharedError

FIRST = [(LetterPlace(0, 1), 11), (LetterPlace(2, 5), 2**64 - 1)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.replay"


def test_what_was_added_is_there_the_next_time(path: Path) -> None:
    with Journal(path, "orders.dlq").open() as journal:
        journal.add(FIRST)
        journal.add([(LetterPlace(0, 2), 12)])
        assert 12 in journal
    with Journal(path, "orders.dlq").open() as again:
        assert (len(again), 11 in again, 2**64 - 1 in again, 13 in again) == (3, True, True, False)
        again.add([(LetterPlace(0, 3), 13)])
    assert len(Journal(path, "orders.dlq").load()) == 4


def test_looking_makes_no_file(path: Path) -> None:
    assert len(Journal(path, "orders.dlq").load()) == 0
    assert not path.exists()


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_a_torn_line_is_cut_off_and_the_file_goes_on(path: Path, cut: int) -> None:
    """The process was killed while it wrote."""
    with Journal(path, "orders.dlq").open() as journal:
        journal.add(FIRST)
        journal.add([(LetterPlace(0, 2), 12)])
    path.write_bytes(path.read_bytes()[:-cut])
    assert len(Journal(path, "orders.dlq").load()) == 2
    with Journal(path, "orders.dlq").open() as journal:
        journal.add([(LetterPlace(0, 3), 13)])
    found = Journal(path, "orders.dlq").load()
    assert (len(found), 12 in found, 13 in found) == (3, False, True)
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_torn_first_line_is_written_again(path: Path) -> None:
    path.write_bytes(b'{"file": "keysh')
    with Journal(path, "orders.dlq").open() as journal:
        journal.add(FIRST)
    assert len(Journal(path, "orders.dlq").load()) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("some notes\n", "line 1 is not"),
        ("[1]\n", "line 1 is not"),
        ('{"file": "keyshared replay", "version": 2, "topic": "orders.dlq"}\n', "line 1 is not"),
        ('{"file": "keyshared replay", "version": 1, "topic": "other"}\n', "of replays of 'other'"),
        (
            '{"file": "keyshared replay", "version": 1, "topic": "orders.dlq"}\n{"0:1": 7}\n',
            "line 2 is not",
        ),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    for use in (Journal.load, Journal.open):
        journal = Journal(path, "orders.dlq")
        with pytest.raises(ConfigError, match=said) as refused:
            use(journal)
        assert "--state" in str(refused.value)
        journal.close()
    assert path.read_text() == text


def test_one_replay_at_a_time_writes(path: Path) -> None:
    with Journal(path, "orders.dlq").open() as journal:
        with pytest.raises(ConfigError, match="another replay"):
            Journal(path, "orders.dlq").open()
        journal.add(FIRST)
    with Journal(path, "orders.dlq").open() as later:
        assert len(later) == 2


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--state .*No such file"):
        Journal(tmp_path / "none" / "x", "orders.dlq").open()


def test_a_full_disk_is_told_with_what_it_means(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(path, "orders.dlq").open() as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(KeySharedError, match=r"No space left on device.*replayed again"):
            journal.add(FIRST)
