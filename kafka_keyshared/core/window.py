"""The bound on everything received and not yet settled, in records and in bytes.

Records are counted one by one. Bytes are the lengths of record values, sampled: every 16th record
while the window is less than three quarters full, each of them above that. Settling takes the mean
away, and each commit, which walks all unsettled records anyway, puts the exact sum in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record

SAMPLE_EVERY = 16


class Window:
    """How much more may be received."""

    def __init__(self, records_max: int = 10_000, bytes_max: int = 64 << 20) -> None:
        if records_max < 1 or bytes_max < 1:
            raise ConfigError(
                f"window={records_max} records, {bytes_max} bytes: both must be at least 1"
            )
        self.records_max = records_max
        self.bytes_max = bytes_max
        self.records = 0
        self.bytes = 0.0

    def room(self) -> int:
        """Return how many more records may be received now."""
        if self.bytes >= self.bytes_max:
            return 0
        room = self.records_max - self.records
        if self.records and self.bytes:
            mean = self.bytes / self.records
            room = min(room, int((self.bytes_max - self.bytes) / mean) + 1)
        return max(0, room)

    def receive(self, records: Sequence[Record]) -> None:
        """Count records that were taken in."""
        self.records += len(records)
        every = 1 if self.bytes * 4 > self.bytes_max * 3 else SAMPLE_EVERY
        self.bytes += sum(map(len, records[::every])) * every

    def settle(self, count: int) -> None:
        """Count records that are no longer held: settled, or forgotten with their partition."""
        if count:
            self.bytes -= self.bytes * count / self.records
            self.records -= count

    def correct(self, exact_bytes: int) -> None:
        """Replace the estimate by an exact sum over the records held."""
        self.bytes = float(exact_bytes)
