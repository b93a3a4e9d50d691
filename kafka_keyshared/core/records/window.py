"""The bound on received and unsettled records, in number and in bytes.

Records are counted one by one. Bytes are the lengths of keys, values and headers, and are sampled.
Up to three quarters of the bytes, the sample is keys and values of every 16th record and headers of
every 64th. Above that it is all records. A freed record subtracts the mean. A commit, which walks
all unsettled records anyway, replaces the mean of keys and values by the exact one. It does not use
their sum. Settled records of an open slice count until the slice is reported as ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kafka_keyshared.core.records.pristine import Chunk, column
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.headers import size_of_headers
from kafka_keyshared.model import Record

SAMPLE_EVERY = 16

HEADERS_SAMPLE_EVERY = 64
"""The client converts headers at their first read, which costs about a microsecond."""

LARGEST = 1 << 20
"""A broker's default maximum record size in bytes; each of the first records may have it."""


SPARE_SHARE = 10
"""Settled records that are still in memory may take ``1 / SPARE_SHARE`` of the bytes."""


class Window:
    """Counts held records and bytes, and computes how much more may be received."""

    def __init__(self, records_max: int = 10_000, bytes_max: int = 64 << 20) -> None:
        if records_max < 1 or bytes_max < 1:
            raise ConfigError(
                f"window={records_max} records, {bytes_max} bytes: both must be at least 1"
            )
        self.records_max = records_max
        self.bytes_max = bytes_max
        self.records = 0
        # The number of records ever received.
        self.received = 0
        self._content = 0.0  # keys and values
        self._headers = 0.0
        self._before = 0.0, 0.0  # the last chunk
        # The mean size of the records that were held last; None before the first.
        self._mean: float | None = None

    @property
    def bytes(self) -> float:
        """Return the estimated number of held bytes."""
        return self._content + self._headers

    def room(self) -> int:
        """Return how many more records may be received now.

        It is the number that fits at the mean size, and one more. Before a size is known, each is
        counted as the largest record that a broker accepts by default.
        """
        room = self.records_max - self.records
        held = self.bytes
        if held >= self.bytes_max:
            return 0
        mean = held / self.records if self.records else self._mean
        if mean is None:
            room = min(room, max(1, self.bytes_max // LARGEST))
        elif mean:
            room = min(room, int((self.bytes_max - held) / mean) + 1)
        return max(0, room)

    def spare(self) -> int:
        """Return how many settled records may be kept alive: at most a tenth of the bytes."""
        mean = self.bytes / self.records if self.records else self._mean
        if not mean:
            return self.records_max
        return int(min(self.records_max, self.bytes_max / SPARE_SHARE / mean))

    def receive(self, chunk: Chunk) -> None:
        """Count received records; their headers must not have been read before."""
        count = len(chunk.records)
        if not count:
            return
        self.records += count
        self.received += count
        self._before = self._content, self._headers
        full = self.bytes * 4 > self.bytes_max * 3
        every = 1 if full else SAMPLE_EVERY
        keys, values = chunk.keys[::every], chunk.values[::every]
        self._content += (length_of(keys) + length_of(values)) * count / len(keys)
        sample = chunk.records if full else chunk.records[::HEADERS_SAMPLE_EVERY]
        self._headers += sum(map(size_of_headers, sample)) * count / len(sample)

    def free(self, count: int) -> None:
        """Count records that are no longer held: settled, or forgotten with their partition."""
        if count:
            self._mean = self.bytes / self.records
            left = 1 - count / self.records
            self._content *= left
            self._headers *= left
            self.records -= count

    def without(self, chunk: Chunk, events: Collection[Record]) -> None:
        """Count the last received chunk again, without its client events.

        The events may be the whole sample, and do not show the size of records.
        """
        count = len(chunk.records)
        self.records -= count
        self.received -= count
        self._content, self._headers = self._before
        those = set(map(id, events))
        self.receive(Chunk([each for each in chunk.records if id(each) not in those]))

    def weigh(self, records: Sequence[Record]) -> float:
        """Return the bytes of these held records; headers are counted at their mean size."""
        headers = self._headers * len(records) / self.records if self._headers else 0.0
        return headers + length_of(column("key", records)) + length_of(column("value", records))

    def correct(self, held: Iterable[Record]) -> None:
        """Set the mean of keys and values from all unsettled records.

        Headers keep their estimate. Once a handler has read them, the client may end the process at
        the next read.
        """
        records = list(held)
        if records:
            length = length_of(column("key", records)) + length_of(column("value", records))
            self._content = length * self.records / len(records)


def length_of(contents: list[object]) -> int:
    """Return the bytes of keys or values; a handler may have replaced them by anything."""
    try:
        return sum(map(len, filter(None, contents)))  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - a value that a handler set in its record may raise anything
        return sum(len(each) for each in contents if isinstance(each, bytes | str))
