"""The expected answer of the demo, and the comparison with it.

The fold is implemented a second time here on purpose. It reads the data file from start to end. It
shares no code with the dispatcher, the handler or the message encoding. Therefore a mistake in one
of those cannot cancel itself out. Both compute the same operations in the same order on the same
numbers, so floats must be equal to the last bit.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import fastavro

DATA_FILE = Path(__file__).with_name("flights.avro")
SHOWN = 10


class Aircraft(NamedTuple):
    """The state of one aircraft at the end of the year."""

    digest: str
    """Hex digest, 16 bytes, over all its departed flights in order."""
    delay: float
    """Departure delay in minutes, each flight weighing 0.9 of the one after it."""
    departed: int
    """Flights that departed, at least 1."""


Answer = dict[str, Aircraft]
"""Tail number -> aircraft, without the aircraft that never departed."""


def expected(records: int | None = None) -> Answer:
    """Fold the data file in its own order: 4,037 aircraft, 328,521 departed flights.

    ``records`` limits the number of records from its start, weather included.
    """
    answer: Answer = {}
    unknown = Aircraft("", 0.0, 0)
    with DATA_FILE.open("rb") as file:
        rows = cast("Iterable[dict[str, Any]]", fastavro.reader(file))
        for row in itertools.islice(rows, records):
            if "flight" not in row or row["dep_delay"] is None:
                continue
            before = answer.get(row["tailnum"], unknown)
            names = "month", "day", "sched_dep_time", "carrier", "flight", "dest", "dep_delay"
            text = " ".join(str(row[name]) for name in names)
            link = bytes.fromhex(before.digest) + text.encode()
            answer[row["tailnum"]] = Aircraft(
                hashlib.blake2b(link, digest_size=16).hexdigest(),
                0.9 * before.delay + row["dep_delay"],
                before.departed + 1,
            )
    return answer


def read_answers(directory: Path) -> list[Answer]:
    """Read the files of the handler instances in ``directory``, one answer per instance.

    :raises OSError: the directory or a file in it cannot be read.
    :raises ValueError: a line is not one that the handler writes; the message names the file.
    """
    return [_read_answer(path) for path in sorted(directory.glob("flights-*.jsonl"))]


def _read_answer(path: Path) -> Answer:
    answer: Answer = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            entry = json.loads(line)
            aircraft = Aircraft(entry["digest"], entry["delay"], entry["departed"])
            answer[entry["aircraft"]] = aircraft
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path}, line {number}: not an answer of the flights handler ({error!r}); "
                "give each run a directory of its own"
            ) from error
    return answer


def compare(right: Answer, actual: Iterable[Answer]) -> list[str]:
    """Return the differences of all handler instances' answers from ``right`` as text.

    An aircraft in two answers is a difference too. Its flights were split over two states, so
    neither can be right. The result is an empty list without a difference. Otherwise it has the
    first 10 differences by tail number and, if there are more, their number.
    """
    found: dict[str, list[Aircraft]] = {}
    for part in actual:
        for name, aircraft in part.items():
            found.setdefault(name, []).append(aircraft)
    differences = []
    for name in sorted(right.keys() | found.keys()):
        difference = _difference(right.get(name), found.get(name, []))
        if difference:
            differences.append(f"{name}: {difference}")
    more = len(differences) - SHOWN
    return differences[:SHOWN] + ([f"and {more:,} more aircraft"] if more > 0 else [])


def _difference(right: Aircraft | None, found: list[Aircraft]) -> str:
    if right is None:
        return f"never departed, yet {found[0].departed} departures were counted"
    if not found:
        return f"missing, {right.departed} departures expected"
    if len(found) > 1:
        counts = " + ".join(str(aircraft.departed) for aircraft in found)
        return f"split over {len(found)} handler instances ({counts} departures)"
    actual = found[0]
    if actual == right:
        return ""
    if actual.departed != right.departed:
        return f"{actual.departed} departures, {right.departed} expected"
    return (
        f"its {right.departed} departures came in another order or with other fields "
        f"(digest {actual.digest}, delay {actual.delay!r}; "
        f"expected {right.digest}, {right.delay!r})"
    )
