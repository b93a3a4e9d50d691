"""Choosing letters and counting them, as the command line does."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.cli import dlq
from kafka_keyshared.cli import dlq_options as letters
from kafka_keyshared.cli.dlq_options import LetterOptions, LetterTopicOptions
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.json_view import when
from kafka_keyshared.dlq.letter import Letter, LetterForm, LetterPlace
from kafka_keyshared.dlq.summary import MOST_GROUPS, OTHERS, Summary
from kafka_keyshared.errors import ConfigError
from tests.support.cli import in_process
from tests.support.letters import a_letter

LETTER = a_letter((1, 7), ("t", 0, 3), group="g", error_type="ValueError", error_message="no such")


@pytest.mark.parametrize(
    "choice",
    [
        Choice(),
        Choice(source_topic="t"),
        Choice(source_group="g"),
        Choice(error=re.compile("Value.*such")),
        Choice(key=b"k"),
        Choice(since=5),
        Choice(until=6),
        Choice(partition=1),
        Choice(offset=7),
    ],
)
def test_a_letter_that_is_meant(choice: Choice) -> None:
    assert choice.takes(LETTER)


@pytest.mark.parametrize(
    "choice",
    [
        Choice(source_topic="u"),
        Choice(source_group="h"),
        Choice(error=re.compile("^such")),
        Choice(key=b""),
        Choice(since=6),
        Choice(until=5),
        Choice(partition=0),
        Choice(offset=8),
    ],
)
def test_a_letter_that_is_not_meant(choice: Choice) -> None:
    assert not choice.takes(LETTER)


def test_what_is_no_letter_has_no_source_and_no_error() -> None:
    foreign = a_letter((1, 7), None)
    assert Choice(partition=1, key=b"k").takes(foreign)
    for choice in (Choice(source_topic="t"), Choice(source_group=""), Choice(error=re.compile(""))):
        assert not choice.takes(foreign)


def test_options_become_a_choice() -> None:
    wanted = LetterOptions(
        error="Time.*", key="hex:00ff", since="2026-01-31T12:00Z", until="2026-02-01"
    )
    choice = wanted.choice()
    assert choice.error is not None
    assert (choice.error.pattern, choice.key) == ("Time.*", b"\x00\xff")
    assert choice.since == int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 1_000
    assert choice.until == int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) * 1_000


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("2h", 7_200), ("1.5d", 129_600)]
)
def test_a_time_may_be_how_long_ago(text: str, seconds: int) -> None:
    since = LetterOptions(since=text).choice().since
    assert since is not None
    now = datetime.now(UTC).timestamp() * 1_000
    assert now - seconds * 1_000 - 60_000 < since <= now - seconds * 1_000


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (LetterOptions(error="("), "--error"),
        (LetterOptions(since="yesterday"), "--since yesterday"),
        (LetterOptions(until="9" * 400 + "d"), "--until"),
        (LetterOptions(key="hex:0"), "hex"),
    ],
)
def test_what_means_nothing_is_refused(wanted: LetterOptions, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        wanted.choice()


@pytest.mark.parametrize(
    ("at", "text"),
    [(None, None), (1_700_000_000_123, "2023-11-14T22:13:20.123Z"), (2**62, f"{2**62} ms")],
)
def test_times_are_shown_in_utc(at: int | None, text: str | None) -> None:
    assert when(at) == text


# --- ls ---


def summed(letters: list[Letter], limit: int = 3) -> Summary:
    summary = Summary(limit)
    for letter in letters:
        summary.add(letter)
    return summary


def written(at: int | None, n: int, **more: Any) -> Letter:
    letter = a_letter((0, n), ("t", 0, n), **more)
    return Letter(letter.at, at, letter.kind, letter.key, letter.value, [], letter.told)


def test_letters_are_counted_by_source_and_error() -> None:
    summary = summed(
        [
            written(30, 0, error_type="A", group="g", replays=1),
            written(10, 1, error_type="A", group="g"),
            written(20, 2, error_type="B"),
            written(None, 3, error_type="B"),
            a_letter((0, 4), None),
        ]
    )
    counts = summary.counts["t", "g", "A"]
    assert (counts.letters, counts.first, counts.last, counts.replays) == (2, 10, 30, 1)
    assert (summary.counts["t", "", "B"].letters, summary.counts["t", "", "B"].last) == (2, 20)
    assert (summary.kinds[LetterForm.HEADERS], summary.kinds[LetterForm.FOREIGN]) == (4, 1)
    assert summary.counts["(foreign)", "", ""].letters == 1


def test_the_newest_are_kept_whatever_the_order_of_reading() -> None:
    letters = [written(at, n) for n, at in enumerate([5, 1, 9, 3, 9, None])]
    newest = [letter.at for letter, _ in summed(letters).newest()]
    assert newest == [LetterPlace(0, 4), LetterPlace(0, 2), LetterPlace(0, 0)]
    assert summed(letters, limit=0).newest() == []


def test_error_types_without_end_do_not_take_memory_without_end() -> None:
    summary = summed([written(1, n, error_type=f"E{n}") for n in range(MOST_GROUPS + 50)])
    assert len(summary.counts) == MOST_GROUPS + 1
    assert summary.counts[OTHERS, OTHERS, OTHERS].letters == 50


def test_what_was_replayed_is_counted_apart() -> None:
    summary = Summary(2)
    summary.add(written(1, 0, group="g"), replayed=True)
    summary.add(written(2, 1, group="g"), replayed=False)
    assert (summary.letters, summary.replayed) == (2, 1)
    assert summary.counts["t", "g", ""].replayed == 1
    assert [replayed for _, replayed in summary.newest()] == [False, True]


def test_what_a_terminal_would_obey_is_not_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    letter = replace(
        a_letter((0, 0), (evil, 0, 0), error_type=evil, error_message=evil, error_stack=evil),
        headers=[(evil, evil.encode())],
        value=evil.encode(),
    )
    monkeypatch.setattr(dlq, "reading", lambda *_: nullcontext())
    monkeypatch.setattr(scan, "bounds_of", lambda *_: {})
    monkeypatch.setattr(scan, "letters", lambda *_, **__: iter([letter]))
    monkeypatch.setattr(letters, "require_broker", lambda conf: None)
    for verb in (["ls", "--state", tmp_path / "none"], ["show", "0:0"]):
        ended = in_process(capsys, "dlq", *verb, "-b", "b:1", "-t", "x")
        assert ended.status == 0
        assert "owned" in ended.out
        assert not {"\x1b", "\x07"} & set(ended.out)


# --- which topic ---


@pytest.mark.parametrize(
    ("given", "file", "name"),
    [
        (("orders", None), "", "orders.dlq"),
        (("orders", "auto"), "", "orders.dlq"),
        ((None, "dead"), "", "dead"),
        ((None, None), 'topics = ["orders"]', "orders.dlq"),
        ((None, None), 'topics = ["orders"]\ndlq = true', "orders.dlq"),
        ((None, None), 'topics = ["orders", "bills"]\ndlq = "dead"', "dead"),
        (("orders", None), 'topics = ["bills"]\ndlq = "dead"', "dead"),
        (("orders", None), 'topics = ["bills"]\ndlq = true', "orders.dlq"),
        (("orders", "auto"), 'dlq = "dead"', "orders.dlq"),
    ],
)
def test_the_dead_letter_topic_is_found_as_an_instance_finds_it(
    given: tuple[str | None, str | None], file: str, name: str, tmp_path: Path
) -> None:
    config = tmp_path / "keyshared.toml"
    config.write_text(file)
    assert LetterTopicOptions(None, *given, config, []).name() == name


def test_several_dead_letter_topics_are_named(tmp_path: Path) -> None:
    config = tmp_path / "keyshared.toml"
    config.write_text('topics = ["orders", "bills"]\ndlq = true')
    with pytest.raises(ConfigError, match=r"\(bills\.dlq, orders\.dlq\): give -t TOPIC"):
        LetterTopicOptions(None, None, None, config, []).name()


@pytest.mark.parametrize("verb", [["ls"], ["show", "0:0"], ["export"], ["replay"]])
def test_the_file_of_the_folder_is_named_in_the_first_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    verb: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # Without a broker each of them ends at once.
    Path("keyshared.toml").write_text('topics = ["orders"]')
    first, second = in_process(capsys, "dlq", *verb).err.splitlines()
    assert first == "using the settings of keyshared.toml in this folder"
    assert "no broker is named" in second
    assert in_process(capsys, "dlq", *verb, "--config", "keyshared.toml").err.count("folder") == 0


# --- wrong command lines ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ls"], "-t TOPIC"),
        (["ls", "-t", "x"], "-b host:port"),
        (["ls", "-t", "^x"], "may be several dead-letter topics (^x)"),
        (["ls", "-t", "x", "--limit", "-1"], "--limit"),
        (["ls", "-t", "x", "--key", "k"], "--key"),
        (["ls", "-t", "x", "-b", "b:1", "--id", "a", "--state", "p"], "give one of them"),
        (["ls", "--error", "("], "--error"),
        (["show", "-t", "x", "0"], "PARTITION:OFFSET"),
        (["show", "0:1", "--payload", "xml"], "--payload xml"),
        (["show", "0:1", "--payload", "avro"], "--schema FILE"),
        (["show", "0:1", "--schema", "no-such.avsc"], "no such file"),
        (["export", "-t", "x", "--format", "csv"], "--format csv"),
        (["export", "-t", "x", "--format", "avro", "--payload", "hex"], "leave out --payload"),
        (["replay", "-t", "x", "--to", "x.dlq"], "read its own letters"),
        (["replay", "-t", "x", "--order", "time"], "key or partition"),
        (["replay", "-t", "x", "--partitioner", "mine"], "murmur2_random"),
        (["replay", "-t", "x", "--rate", "0"], "--rate"),
    ],
)
def test_a_wrong_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    ended = in_process(capsys, "dlq", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert said in ended.err
