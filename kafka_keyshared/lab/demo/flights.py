"""The demo's handler, with state per key and without a lock.

It is also a model for your own handlers. The records of one aircraft (the key) come one at a time
and in order. All of them go to the same instance of this class, because each worker makes its own.
So the state is a plain dict.

The state depends on the order of flights. If two flights are swapped, or one is lost or run twice,
both the digest and the delay of that aircraft change.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from kafka_keyshared.hashing import slot_of
from kafka_keyshared.lab.demo.data import SCHEMA
from kafka_keyshared.model import Record

LATE_MINUTES = 60
"""A flight is late when its delay is above this number of minutes."""


class CancelledFlight(Exception):  # noqa: N818 - named as the domain names it
    """The flight never departed, so there is nothing to add; a failed attempt like any other."""


class Flights:
    """Folds the departed flights of each aircraft, in the order in which they come.

    ``close()`` writes the answer, one JSON object per aircraft and line, to a new file. The
    environment variable ``FLIGHTS_OUT`` names the directory; without it nothing is written.
    """

    def __init__(self) -> None:
        # aircraft -> (digest so far, decayed delay in minutes, flights departed)
        self._state: dict[str, tuple[bytes, float, int]] = {}

    def handle(self, record: Record) -> None:
        """Add one flight to its aircraft; weather is ignored and succeeds.

        :raises CancelledFlight: the flight was cancelled. Raised before any state changes, so that
            another attempt begins with the same state.
        """
        row: Any = fastavro.schemaless_reader(BytesIO(record.value()), SCHEMA)
        if "flight" not in row:
            return
        if row["dep_delay"] is None:
            raise CancelledFlight(f"{row['carrier']}{row['flight']} on {row['month']}/{row['day']}")
        aircraft = row["tailnum"]
        digest, delay, departed = self._state.get(aircraft, (b"", 0.0, 0))
        # Chained digests instead of one running hash object, because this state can be stored.
        flown = "{month} {day} {sched_dep_time} {carrier} {flight} {dest} {dep_delay}"
        digest = blake2b(digest + flown.format_map(row).encode(), digest_size=16).digest()
        self._state[aircraft] = (digest, 0.9 * delay + row["dep_delay"], departed + 1)
        if row["dep_delay"] > LATE_MINUTES:
            self.late(record)

    def late(self, record: Record) -> None:
        """Handle a late flight; does nothing here, but a subclass may wait."""

    def release(self, slots: Sequence[int]) -> dict[str, tuple[bytes, float, int]]:
        """Remove and return the state of the aircraft in these slots, which have moved."""
        moved = set(slots)
        found = [each for each in self._state if slot_of(each.encode()) in moved]
        return {aircraft: self._state.pop(aircraft) for aircraft in found}

    def adopt(self, slots: Sequence[int], state: dict[str, tuple[bytes, float, int]]) -> None:
        """Take over the state of the worker that had these slots before."""
        del slots
        self._state.update(state)

    def close(self) -> None:
        """Write the answer of this worker; it is called once, after the last record."""
        directory = os.environ.get("FLIGHTS_OUT")
        if not directory:
            return
        lines = [
            json.dumps({"aircraft": a, "digest": d.hex(), "delay": y, "departed": n}) + "\n"
            for a, (d, y, n) in self._state.items()
        ]
        path = Path(directory) / f"flights-{uuid.uuid4().hex}.jsonl"
        # Renamed when complete, so that a reader sees a worker's complete answer or none.
        partial = path.with_suffix(".partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.rename(path)
