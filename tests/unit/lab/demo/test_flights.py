"""The flights handler and the expected answer agree; the comparison notices every kind of harm."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Message

from examples.flights import app, check
from kafka_keyshared.lab.demo import data, make_data
from kafka_keyshared.lab.demo import expected as expected_module
from kafka_keyshared.lab.demo.expected import Aircraft, Answer, compare, expected, read_answers
from kafka_keyshared.lab.demo.flights import CancelledFlight, Flights

WORKERS = 8


@pytest.fixture
def weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The first weeks of the year take the place of the whole; returns their rows."""
    with data.DATA_FILE.open("rb") as file:
        named: Any = itertools.islice(fastavro.reader(file, return_record_name=True), 20_000)
        rows = list(named)
    path = tmp_path / "weeks.avro"
    with path.open("wb") as file:
        make_data.write(rows, file)
    monkeypatch.setattr(data, "DATA_FILE", path)
    monkeypatch.setattr(expected_module, "DATA_FILE", path)
    return [row for _, row in rows]


@pytest.fixture(scope="module")
def first_records() -> list[tuple[bytes, bytes]]:
    """The first departed flights of one busy aircraft, as (key, value)."""
    found = []
    for record in data.records():
        if record.key == b"N725MQ" and data.decode(record.value)["dep_delay"] is not None:
            found.append((record.key, record.value))
        if len(found) == 3:
            break
    return found


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that handlers write to."""
    directory = tmp_path / "out"
    directory.mkdir()
    monkeypatch.setenv("FLIGHTS_OUT", str(directory))
    return directory


def handle(handler: Flights, key: bytes | None, value: bytes) -> None:
    handler.handle(message(key, value))


def message(key: bytes | None, value: bytes) -> Any:
    return Message(topic="flights", partition=0, offset=0, key=key, value=value)


def answer_of(out: Path, records: list[tuple[bytes, bytes]]) -> Aircraft:
    handler = Flights()
    for key, value in records:
        handle(handler, key, value)
    handler.close()
    (answer,) = read_answers(out)
    for path in out.iterdir():
        path.unlink()
    return answer["N725MQ"]


def test_eight_workers_give_the_expected_answer(
    weeks: list[dict[str, Any]], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = [Flights() for _ in range(WORKERS)]
    cancelled = 0
    for key, value in data.records():
        try:
            handle(workers[zlib.crc32(key or b"") % WORKERS], key, value)
        except CancelledFlight:
            cancelled += 1
    for worker in workers:
        worker.close()
    departed = [row for row in weeks if row.get("dep_delay") is not None]
    assert cancelled == sum(row.get("dep_delay", 0) is None for row in weeks) > 100
    answers = read_answers(out)
    assert len(answers) == WORKERS
    assert compare(expected(), answers) == []
    assert check.main([str(out)]) == 0
    aircraft = len({row["tailnum"] for row in departed})
    said = f"match: {aircraft:,} aircraft, {len(departed):,} departures\n"
    assert capsys.readouterr().out == said


def test_the_expected_answer_covers_every_departure_of_the_year() -> None:
    right = expected()
    assert len(right) == data.AIRCRAFT - 6
    assert sum(aircraft.departed for aircraft in right.values()) == data.FLIGHTS - data.CANCELLED


def test_order_and_repeats_change_the_answer(
    out: Path, first_records: list[tuple[bytes, bytes]]
) -> None:
    one, two, three = first_records
    straight = answer_of(out, [one, two, three])
    swapped = answer_of(out, [one, three, two])
    repeated = answer_of(out, [one, two, two, three])
    assert straight.departed == swapped.departed == 3
    assert straight.digest != swapped.digest
    assert straight.delay != swapped.delay
    assert repeated.departed == 4
    assert repeated.digest != straight.digest


def test_a_cancelled_flight_fails_and_changes_nothing(
    out: Path, first_records: list[tuple[bytes, bytes]]
) -> None:
    before = answer_of(out, first_records)
    cancelled = next(
        record
        for record in data.records()
        if data.decode(record.value).get("dep_delay", 0) is None and record.key
    )
    handler = Flights()
    for key, value in first_records:
        handle(handler, key, value)
    with pytest.raises(CancelledFlight, match=r"^[A-Z0-9]+ on 1/\d"):
        handle(handler, cancelled.key, cancelled.value)
    handler.close()
    assert [dict(answer) for answer in read_answers(out)] == [{"N725MQ": before}]


def test_weather_succeeds_and_leaves_no_answer(out: Path) -> None:
    weather = next(record for record in data.records() if record.key is None)
    assert "hour" in data.decode(weather.value)
    handler = Flights()
    handle(handler, weather.key, weather.value)
    handler.close()
    assert read_answers(out) == [{}]


def test_without_the_variable_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLIGHTS_OUT", raising=False)
    monkeypatch.chdir(tmp_path)
    Flights().close()
    assert list(tmp_path.iterdir()) == []


A = Aircraft("aa", 1.5, 3)
B = Aircraft("bb", 2.5, 4)


@pytest.mark.parametrize(
    ("actual", "difference"),
    [
        ([{"N1": A}], "N2: missing, 4 departures expected"),
        ([{"N1": A, "N2": B, "N3": A}], "N3: never departed, yet 3 departures were counted"),
        ([{"N1": A}, {"N1": A, "N2": B}], "N1: split over 2 handler instances (3 + 3 departures)"),
        ([{"N1": A._replace(departed=2), "N2": B}], "N1: 2 departures, 3 expected"),
        ([{"N1": A._replace(delay=1.5000000000000002), "N2": B}], "N1: its 3 departures came in"),
        ([{"N1": A._replace(digest="ab"), "N2": B}], "N1: its 3 departures came in"),
    ],
)
def test_every_kind_of_difference_is_named(actual: list[Answer], difference: str) -> None:
    (only,) = compare({"N1": A, "N2": B}, actual)
    assert only.startswith(difference)


def test_equal_answers_differ_in_nothing_however_they_are_split() -> None:
    assert compare({"N1": A, "N2": B}, [{"N2": B}, {}, {"N1": A}]) == []


def test_only_the_first_differences_are_listed() -> None:
    right = {f"N{number:02}": A for number in range(12)}
    differences = compare(right, [])
    assert len(differences) == 11
    assert differences[0].startswith("N00: missing")
    assert differences[-1] == "and 2 more aircraft"


def test_check_reports_a_mismatch(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "expected", lambda: {"N1": A})
    Flights().close()
    assert check.main([str(out)]) == 1
    assert capsys.readouterr().out == "mismatch\n  N1: missing, 3 departures expected\n"


@pytest.mark.parametrize("text", ["{", '{"aircraft": "N1"}', "[1]"])
def test_a_file_of_something_else_is_refused(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flights-1.jsonl").write_text(text + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"flights-1\.jsonl, line 1: not an answer"):
        read_answers(tmp_path)
    assert check.main([str(tmp_path)]) == 2
    assert "flights-1.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["/no/such/directory"], ["a", "b"]])
def test_check_says_how_to_use_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main(arguments) == 2
    assert capsys.readouterr().err.startswith("usage: check.py DIR")


def test_the_example_runs_the_class_that_the_demo_runs() -> None:
    assert app.Flights is Flights
    assert app.CancelledFlight is CancelledFlight
