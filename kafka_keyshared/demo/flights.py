"""The demo's handler, and a model for your own: state per key without a lock.

The records of one aircraft (the key) come one at a time and in order, and all of them to the same
instance of this class, because each worker makes its own. So the state is a plain dict.

What the handler keeps is chosen so that order matters: swap two flights, lose one or run one twice,
and both the digest and the delay of that aircraft come out different.
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

from kafka_keyshared.demo.data import SCHEMA
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import Record

LATE_MINUTES = 60
"""What leaves more than this behind its time is late."""


class CancelledFlight(Exception):  # noqa: N818 - named as the domain names it
    """The flight never departed, so there is nothing to add; a failed attempt like any other."""


class Flights:
    """Folds the departed flights of each aircraft, in the order in which they come.

    ``close()`` writes the answer, one JSON object per aircraft and line, to a new file in the
    directory that the environment variable ``FLIGHTS_OUT`` names; without it nothing is written.
    """

    def __init__(self) -> None:
        # aircraft -> (digest so far, decayed delay in minutes, flights departed)
        self._state: dict[str, tuple[bytes, float, int]] = {}

    def handle(self, record: Record) -> None:
        """Add one flight to its aircraft; weather needs nothing done and succeeds.

        :raises CancelledFlight: the flight was cancelled. Raised before any state changes, so an
            attempt that is run again starts from where the first one did.
        """
        row: Any = fastavro.schemaless_reader(BytesIO(record.value()), SCHEMA)
        if "flight" not in row:
            return
        if row["dep_delay"] is None:
            raise CancelledFlight(f"{row['carrier']}{row['flight']} on {row['month']}/{row['day']}")
        aircraft = row["tailnum"]
        digest, delay, departed = self._state.get(aircraft, (b"", 0.0, 0))
        # Chained digests rather than one running hash object: this state can be written down.
        flown = "{month} {day} {sched_dep_time} {carrier} {flight} {dest} {dep_delay}"
        digest = blake2b(digest + flown.format_map(row).encode(), digest_size=16).digest()
        self._state[aircraft] = (digest, 0.9 * delay + row["dep_delay"], departed + 1)
        if row["dep_delay"] > LATE_MINUTES:
            self.late(record)

    def late(self, record: Record) -> None:
        """Do what is to be done about a late flight; here nothing, a subclass may wait for it."""

    def release(self, slots: Sequence[int]) -> dict[str, tuple[bytes, float, int]]:
        """Give up what is known of the aircraft in these slots: another worker has them now."""
        moved = set(slots)
        found = [each for each in self._state if slot_of(each.encode()) in moved]
        return {aircraft: self._state.pop(aircraft) for aircraft in found}

    def adopt(self, slots: Sequence[int], state: dict[str, tuple[bytes, float, int]]) -> None:
        """Go on with what the worker knew that had these slots before."""
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
        # Renamed when whole: a reader sees a worker's complete answer or none.
        partial = path.with_suffix(".partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.rename(path)
