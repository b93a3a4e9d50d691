"""The commit-metadata section that names running records.

A commit that is made while records run names the lowest of them. A clean stop leaves no names, nor
does a revoke during which all records ended. Names at an assignment therefore mean that the last
owner ended without a clean stop. One of the named records may have caused it. In the commit
metadata (:mod:`.commit_metadata`) this is one more section of a subscription's block. Readers that
do not know it skip it::

    kind 5  = base more (gap number)*   running records, by offset

``more`` is the number of other running records. Bases and gaps are those of the attempts
(:mod:`.lane_section`). The number of a record counts consecutive owners that named it as running
and may have been ended by it. It is at most :data:`COUNTED_MOST`. It is :data:`WAITING` for a
record that is about to start for the first time. It is :data:`STARTED` if only this owner ran it. A
suspect that waits keeps its restored number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka_keyshared.core.offsets.settled_set_codec import (
    MAX_OFFSET,
    ByteReader,
    MalformedError,
    put_varint,
    varint_size,
)

KIND_RUNNING = 5

WAITING = 0
"""The number of a record that is about to start and that no earlier owner ran."""

STARTED = 1
"""The number of a record that was seen running, by one owner."""

COUNTED_MOST = 100
"""The highest number, so that each takes one byte."""

RUNNING_BUDGET = 120
"""Maximum characters for running records of all subscriptions; settled sets take precedence."""


NO_NUMBERS: Mapping[int, int] = {}
"""A plain dict, because Spark's tasks send notes by pickle."""


class RunningNote(NamedTuple):
    """Running records of one partition and subscription.

    ``numbers`` maps an offset to the number of consecutive owners that ran the record, in order of
    priority. ``more`` is the number of other running records.
    """

    numbers: Mapping[int, int] = NO_NUMBERS
    more: int = 0

    def __bool__(self) -> bool:
        return bool(self.numbers or self.more)


NONE_RUNNING = RunningNote()


def first_of(running: RunningNote, position: int, room: int) -> RunningNote:
    """Return the first of the running records, as many as fit in ``room`` bytes."""
    most = room - 2 - 2 * varint_size(MAX_OFFSET)
    kept: dict[int, int] = {}
    for offset, number in running.numbers.items():
        # The encoded gap is never longer than the distance to the position.
        most -= varint_size(max(0, offset - position)) + 1
        if most < 0:
            break
        kept[offset] = number
    return RunningNote(kept, running.more + len(running.numbers) - len(kept))


def pack_running(position: int, running: RunningNote, room: int) -> bytes:
    """Return the section that names as many running records as ``room`` bytes have space for."""
    kept = first_of(running, position, room)
    if not kept.numbers:
        return b""
    payload = bytearray()
    put_varint(payload, position)
    put_varint(payload, kept.more)
    at = position
    for offset, number in sorted(kept.numbers.items()):
        put_varint(payload, offset - at)
        put_varint(payload, number)
        at = offset + 1
    out = bytearray((KIND_RUNNING,))
    put_varint(out, len(payload))
    return bytes(out + payload)


def unpack_running(payload: bytes, position: int) -> RunningNote:
    """Return the running records at and after ``position`` that a section names.

    Raises :class:`MalformedError` for bytes that :func:`pack_running` does not make.
    """
    reader = ByteReader(payload)
    at = reader.varint()
    if at > position:
        raise MalformedError(f"it was written for position {at}, not for {position}")
    more = reader.varint()
    numbers: dict[int, int] = {}
    while reader.more():
        at += reader.varint()
        number = reader.varint()
        if at >= MAX_OFFSET:
            raise MalformedError("an offset in it is larger than Kafka's offsets can be")
        if at >= position:
            numbers[at] = min(number, COUNTED_MOST)
        at += 1
    return RunningNote(numbers, more if numbers else 0)
