"""Settled sets as runs of offsets, and their two byte forms.

A set beyond a position usually has long runs of settled offsets around a few outstanding ones.
Behind a window with one slow lane in four it is nearly noise. Run lengths are short for the first,
a bitmap for the second. :func:`pack` takes the form that holds more in the available bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kafka_keyshared.errors import InvariantError

Runs = tuple[tuple[int, int], ...]
"""Settled offsets as half-open (start, end) pairs: sorted, disjoint and not adjacent."""

MAX_OFFSET = (1 << 63) - 1
"""Kafka's offsets are signed 64-bit numbers."""

KIND_RUNS = 1
"""Run lengths: the base, then a gap and a length for each run, all varints."""

KIND_BITMAP = 2
"""A bitmap: the base and the distance to the first offset, both varints, then the bits."""

_BASE_BYTES = 9  # the size of a 63-bit offset
_ONES = re.compile("1+")


class MalformedError(Exception):
    """Bytes that no version-1 writer makes. It never leaves the codec."""


class Packed(NamedTuple):
    """A settled set in bytes, and whether they hold all of it."""

    kind: int
    payload: bytes
    complete: bool


def settled_runs(
    position: int,
    end: int,
    unsettled: Sequence[int],
    restored: Sequence[tuple[int, int]] = (),
) -> Runs:
    """Return the settled runs at and after ``position``, computed from the outstanding offsets.

    ``end`` is the received end and ``unsettled`` lists, ascending, every unsettled offset in
    [position, end). All others there are settled. That includes offsets that were never received
    (compacted, or transaction markers), because none will come. ``restored`` are the runs of the
    metadata that this assignment started from. Only their part at or beyond ``end`` is used; below
    it, the received records count.

    Raises :class:`~kafka_keyshared.errors.InvariantError` for an unsettled offset outside
    [position, end) or out of order. A commit of such runs could pass an unsettled record.
    """
    runs: list[tuple[int, int]] = []
    start = position
    for offset in unsettled:
        if offset > start:
            runs.append((start, offset))
        elif offset < start:
            raise InvariantError(
                f"unsettled offset {offset} is below the position {position} or out of order "
                f"(expected {start} or higher): a commit would pass it"
            )
        start = offset + 1
    if unsettled and start > end:
        raise InvariantError(
            f"unsettled offset {start - 1} is not below the received end {end}: "
            "position, end and outstanding records are not from one snapshot"
        )
    if end > start:
        runs.append((start, end))
    for low, high in clip(restored, max(start, end)):
        if runs and runs[-1][1] == low:
            runs[-1] = (runs[-1][0], high)
        else:
            runs.append((low, high))
    return tuple(runs)


def clip(runs: Sequence[tuple[int, int]], low: int, high: int = MAX_OFFSET) -> Runs:
    """Return the part of ``runs``, which are in order, within [low, high).

    Metadata may claim offsets that the log does not have (yet), by malice or because the topic was
    recreated. A caller that knows the log end cuts them off here, so that new records are
    delivered.
    """
    if not runs or (low <= runs[0][0] and runs[-1][1] <= high):
        return tuple(runs)
    clipped = ((max(start, low), min(end, high)) for start, end in runs)
    return tuple(run for run in clipped if run[0] < run[1])


def union(one: Runs, other: Runs) -> Runs:
    """Return the offsets of both."""
    runs: list[tuple[int, int]] = []
    for start, end in sorted((*one, *other)):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return tuple(runs)


def check_runs(subscription: str, position: int, runs: Runs) -> None:
    """Raise :class:`~kafka_keyshared.errors.InvariantError` unless ``runs`` can be written.

    The first may start at the position; each later one leaves a gap to the one before.
    """
    floor = position
    for start, end in runs:
        if not floor <= start < end <= MAX_OFFSET:
            raise InvariantError(
                f"settled run ({start}, {end}) of subscription {subscription!r} is empty, starts "
                f"below {floor} or ends beyond Kafka's offsets: the runs do not belong to "
                f"position {position}"
            )
        floor = end + 1


def payload_bound(span: int, runs: int) -> int:
    """Return an upper bound of the bytes that :func:`pack` needs for a complete set.

    ``span`` is at least the distance from the position to the end of the last run. ``runs`` is at
    least the number of runs.
    """
    # Each run is two numbers, and the sum of all numbers is at most the span. So at most span / 128
    # of them need a second byte, span / 16,384 a third, and so on.
    numbers = 2 * runs
    as_runs = numbers
    rest = span >> 7
    while rest:
        as_runs += min(numbers, rest)
        rest >>= 7
    as_bitmap = varint_size(span) + (span + 7) // 8
    return _BASE_BYTES + min(as_runs, as_bitmap)


def bitmap_span(room: int) -> int:
    """Return the span beyond its position in which any set fits ``room`` bytes.

    The bound is that of a bitmap: one bit per offset, after the base and the distance to the first.
    """
    return 8 * max(0, room - _BASE_BYTES - varint_size(8 * max(0, room)))


def runs_size(position: int, runs: Runs, top: int) -> int:
    """Return how many bytes a set takes as runs, with a base of up to ``top``."""
    size = varint_size(top)
    before = position
    for start, end in runs:
        size += varint_size(start - before) + varint_size(end - start - 1)
        before = end + 1
    return size


def pack(position: int, runs: Runs, room: int) -> Packed:
    """Return the form of ``runs`` (not empty) that holds the most offsets within ``room`` bytes.

    If the set does not fit, the result is its longest prefix that does, lowest offsets first. The
    payload is empty if not one offset fits.
    """
    base = bytearray()
    put_varint(base, position)
    room -= len(base)
    as_runs, unwritten = _run_lengths(position, runs, room)
    first, last = runs[0][0], runs[-1][1]
    skip = bytearray()
    put_varint(skip, first - position)
    bitmap_bytes = min(room - len(skip), (last - first + 7) // 8)
    cut = min(first + 8 * bitmap_bytes, last)
    if unwritten is None:
        bitmap_says_more = cut == last and len(skip) + bitmap_bytes < len(as_runs)
    else:
        bitmap_says_more = cut > unwritten
    if bitmap_says_more:
        payload = bytes(base + skip) + _bits(clip(runs, first, cut))
        return Packed(KIND_BITMAP, payload, cut == last)
    payload = bytes(base + as_runs) if as_runs else b""
    return Packed(KIND_RUNS, payload, unwritten is None)


def unpack(kind: int, payload: bytes, position: int) -> Runs:
    """Return the runs of a packed set at and after ``position``.

    Raises :class:`MalformedError` for bytes that :func:`pack` does not make, and for a base above
    ``position``. In that case an operator has reset the group to an earlier offset, so these
    records must run again.
    """
    reader = ByteReader(payload)
    base = reader.varint()
    if base > position:
        raise MalformedError(f"it was written for position {base}, not for {position}")
    parse = _parse_runs if kind == KIND_RUNS else _parse_bits
    return clip(parse(reader, base), position)


def put_varint(out: bytearray, value: int) -> None:
    """Append ``value`` (not negative), 7 bits a byte, low end first."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def varint_size(value: int) -> int:
    """Return how many bytes :func:`put_varint` appends."""
    return max(1, (value.bit_length() + 6) // 7)


class ByteReader:
    """Reads bytes front to back, never past their end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        """Return whether any bytes are left."""
        return self._at < len(self._data)

    def varint(self) -> int:
        """Return the next number, of at most 63 bits."""
        value = shift = 0
        while True:
            if not self.more() or shift > 56:
                raise MalformedError("a number in it is cut off or too large")
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size > len(self._data) - self._at:
            raise MalformedError("a part of it claims more bytes than there are")
        self._at += size
        return self._data[self._at - size : self._at]

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return self.take(len(self._data) - self._at)


def _run_lengths(position: int, runs: Runs, room: int) -> tuple[bytearray, int | None]:
    """Return the numbers of the longest prefix within ``room`` bytes, and its end.

    The second value is the first settled offset that was not written, None when all are.
    """
    out = bytearray()
    before = position
    for start, end in runs:
        mark = len(out)
        # A gap and a run have at least one offset each; that one is not counted.
        gap, length = start - before, end - start - 1
        if gap < 128 and length < 128:
            out.append(gap)
            out.append(length)
        else:
            put_varint(out, gap)
            put_varint(out, length)
        if len(out) > room:
            del out[mark:]
            spare = room - mark - varint_size(gap)
            if spare < 1:
                return out, start
            # A shorter run has a shorter length: write as much of it as the remaining bytes hold.
            part = min(length + 1, 1 << 7 * spare)
            put_varint(out, gap)
            put_varint(out, part - 1)
            return out, start + part
        before = end + 1
    return out, None


def _bits(runs: Runs) -> bytes:
    """Return one bit for each offset from the start of the first run to the end of the last."""
    at = runs[0][0]
    parts = []
    for start, end in runs:
        parts.append("0" * (start - at))
        parts.append("1" * (end - start))
        at = end
    # Python parses binary digits in linear time; setting the bits run by run is not linear.
    digits = "".join(parts)
    return int(digits[::-1], 2).to_bytes((len(digits) + 7) // 8, "little")


def _parse_runs(reader: ByteReader, base: int) -> list[tuple[int, int]]:
    runs = []
    start = base
    while reader.more():
        start += reader.varint()
        end = start + reader.varint() + 1
        if end > MAX_OFFSET:
            raise MalformedError("an offset in it is larger than Kafka's offsets can be")
        runs.append((start, end))
        start = end + 1
    return runs


def _parse_bits(reader: ByteReader, base: int) -> list[tuple[int, int]]:
    first = base + reader.varint()
    bits = int.from_bytes(reader.rest(), "little")
    spans = (ones.span() for ones in _ONES.finditer(f"{bits:b}"[::-1]))
    return [(first + start, first + end) for start, end in spans]
