"""What `keyshared read` makes of its options, and what it refuses before it asks anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.cli.read import parse_bound
from kafka_keyshared.client.bounds import Moment, ReadingBound
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition
from tests.support.cli import in_process

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", ReadingBound("--from", "earliest")),
        ("latest", ReadingBound("--from", "latest")),
        ("-10", ReadingBound("--from", -10)),
        ("0:12", ReadingBound("--from", None, {P0: 12})),
        ("0:12, 1:-3", ReadingBound("--from", None, {P0: 12, P1: -3})),
        ("orders-1@7", ReadingBound("--from", None, {P1: 7})),
        ("earliest,0:12", ReadingBound("--from", "earliest", {P0: 12})),
        ("0:12,2026-01-31T12:00Z", ReadingBound("--from", Moment(1_769_860_800_000), {P0: 12})),
        ("2026-01-31 12:00", ReadingBound("--from", Moment(1_769_860_800_000))),
    ],
)
def test_a_bound_as_it_is_typed(text: str, bound: ReadingBound) -> None:
    assert parse_bound("--from", text, ["orders"], lambda: NOW) == bound


def test_a_topic_with_a_dash_and_a_number_in_its_name_can_be_named() -> None:
    topics = ["orders-2", "orders"]
    found = parse_bound("--from", "orders-2-0@5,orders-2@7", topics)
    assert found.single == {TopicPartition("orders-2", 0): 5, TopicPartition("orders", 2): 7}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tomorrow", "--from tomorrow: give earliest, latest, PARTITION:OFFSET"),
        ("0:", "--from 0:: give earliest"),
        ("0:x", "--from 0:x: give earliest"),
        ("5", "--from 5: give earliest"),
        ("-0", "--from -0: give earliest"),
        ("", "--from : give earliest"),
        ("0:" + "9" * 5_000, "give earliest"),
        ("earliest,latest", "--from earliest,latest: 'latest' is a second bound"),
        ("0:1,0:2", "--from 0:1,0:2: orders-0 is given twice"),
        ("2099-01-01", "--from 2099-01-01 is a time in the future"),
    ],
)
def test_what_is_no_bound_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_bound("--from", text, ["orders"], lambda: NOW)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no slots are given: give --key-hash-range 0-10000,20001-30000"),
        (["--key-hash-range", "0-9,5-20"], "the ranges 0-9 and 5-20 overlap in 5-9"),
        (["--key-hash-range", "9-5"], "--key-hash-range 9-5: the range 9-5 is inverted"),
        (["--key-hash-range", "0-70000"], "the range 0-70000 is out of bounds"),
        (["--key-hash-range", "a-b"], "'a-b' is no range of slots"),
        (["--key-hash-range", "0-9", "--from", "latest"], "give --follow to wait for new records"),
        (
            ["--key-hash-range", "0-9", "--follow", "--until", "0:3"],
            "--follow and --until exclude each other: give one of them",
        ),
        (["--key-hash-range", "0-9", "--until", "2099-01-01"], "is a time in the future"),
        (["--key-hash-range", "0-9", "--until", "earliest"], "before which there is nothing"),
        (["--key-hash-range", "0-9", "--from", "0:3", "--until", "0:3"], "nothing lies between"),
        (["--key-hash-range", "0-9", "--slot-function", "x"], "give one of mmh3, fnv1a, pulsar"),
        (["--key-hash-range", "0-9", "--key", "heder:x"], "key='heder:x'"),
        (["--key-hash-range", "0-9", "--payload", "xml"], "--payload xml"),
        (["--key-hash-range", "0-9", "-X", "no.such.setting=1"], "no.such.setting"),
        (["--key-hash-range", "0-9", "-t", "bills", "--from", "0:3"], "may be of any of the topic"),
        (["--key-hash-range", "0-9", "--limit", "0"], "greater than or equal to 1"),
    ],
)
def test_it_is_refused_before_anybody_is_asked(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = in_process(capsys, "read", "-b", "127.0.0.1:1", "-t", "orders", *arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize(("without", "said"), [("-b", "no broker is"), ("-t", "no topic is")])
def test_what_is_missing_is_named(
    without: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"-b": "127.0.0.1:1", "-t": "orders"}
    del given[without]
    words = [word for pair in given.items() for word in pair]
    ended = in_process(capsys, "read", *words, "--key-hash-range", "0-9")
    assert ended.status == 2
    assert said in ended.err
    assert "group" not in ended.err
