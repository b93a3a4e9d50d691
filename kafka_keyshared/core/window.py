"""The bound on everything received and not yet settled, in records and in bytes.

Records are counted one by one. Bytes are the lengths of keys, values and headers, sampled: keys and
values of every 16th record and headers of every 64th while the window is less than three quarters
full, all of them above that. What is freed takes the mean away, and each commit, which walks all
unsettled records anyway, puts the exact mean of keys and values in its place. Not their sum: what
has settled in a slice that still runs counts to the window until the slice is reported as ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kafka_keyshared.core.originals import Chunk, column
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.headers import size_of_headers
from kafka_keyshared.model import Record

SAMPLE_EVERY = 16

HEADERS_SAMPLE_EVERY = 64
"""The client converts headers when they are first asked for, which costs about a microsecond."""

LARGEST = 1 << 20
"""Bytes of the largest record that a broker takes unless told; any of the first may be such."""


SPARE_SHARE = 10
"""What has settled and is not let go of yet may take one part in so many of the bytes."""


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
        # How many were received ever.
        self.received = 0
        self._content = 0.0  # keys and values
        self._headers = 0.0
        self._before = 0.0, 0.0  # the last chunk
        # Of the records that were held last; None until there were any.
        self._mean: float | None = None

    @property
    def bytes(self) -> float:
        """Return how many bytes are held, as far as is known."""
        return self._content + self._headers

    def room(self) -> int:
        """Return how many more records may be received now.

        As many as fit when they are of the mean size, and one more. Before a size is known it is as
        many as would fit if each were as large as a broker takes by default.
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
        """Return how many settled records may be kept alive: a tenth of the bytes, no more."""
        mean = self.bytes / self.records if self.records else self._mean
        if not mean:
            return self.records_max
        return int(min(self.records_max, self.bytes_max / SPARE_SHARE / mean))

    def receive(self, chunk: Chunk) -> None:
        """Count records that were taken in, of which nobody has asked for headers before."""
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
        """Count the chunk that was received last anew, without the client events that were in it.

        They may be all that was sampled of it, and say nothing of how large records are.
        """
        count = len(chunk.records)
        self.records -= count
        self.received -= count
        self._content, self._headers = self._before
        those = set(map(id, events))
        self.receive(Chunk([each for each in chunk.records if id(each) not in those]))

    def weigh(self, records: Sequence[Record]) -> float:
        """Return the bytes of these, which are held; of headers those of as many mean ones."""
        headers = self._headers * len(records) / self.records if self._headers else 0.0
        return headers + length_of(column("key", records)) + length_of(column("value", records))

    def correct(self, held: Iterable[Record]) -> None:
        """Take the mean of keys and values from all records that are not settled.

        Not their headers: once a handler has asked for those, the client may end the process at the
        next who does. Their estimate stays.
        """
        records = list(held)
        if records:
            length = length_of(column("key", records)) + length_of(column("value", records))
            self._content = length * self.records / len(records)


def length_of(contents: list[object]) -> int:
    """Return the bytes of keys or values; what a handler has set in their place may be anything."""
    try:
        return sum(map(len, filter(None, contents)))  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 - what a handler has set in its record may raise anything
        return sum(len(each) for each in contents if isinstance(each, bytes | str))
