"""Notes on lanes and failed records that travel in the commit metadata.

The next owner of a partition reads them. A diverted lane stays diverted. A record that was tried
three times gets its fourth attempt. A record whose copy is in the dead-letter topic gets no second
copy. In the commit metadata (:mod:`.commit_metadata`) the notes are two sections of a
subscription's block. Readers that do not know these sections skip them::

    kind 3  = base hash*              diverted lanes, 16 bytes each, ascending
    kind 4  = base (gap number)*      records by offset: attempts doubled, plus 1 if archived

Bases and gaps are as in a settled set (:mod:`.settled_set_codec`). The first gap counts from the
base, each other one from behind the previous offset.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_keyshared.core.offsets.running_section import NONE_RUNNING, RunningNote
from kafka_keyshared.core.offsets.settled_set_codec import (
    MAX_OFFSET,
    ByteReader,
    MalformedError,
    put_varint,
    varint_size,
)
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.hashing import lane_hash

KIND_LANES = 3
KIND_TRIED = 4

LANES_MOST = 32
"""Lanes of a partition that may be diverted, so that their hashes fit in the commit metadata."""

HASH_BYTES = 16

ATTEMPTS_MOST = (1 << 31) - 1
"""Upper bound of the attempts in a note; a larger number in a text is read as this one."""


class Tried(NamedTuple):
    """Attempts of a record that is not settled, and whether its copy is archived."""

    attempts: int
    archived: bool = False


@dataclass(frozen=True, slots=True)
class LaneNotes:
    """Notes of one partition and subscription.

    ``diverted`` has the hashes of diverted lanes (:func:`hash_of`). ``tried`` has the attempts of
    records that failed and are not settled, by offset. ``running`` has the records that run.
    """

    diverted: frozenset[bytes] = frozenset()
    tried: Mapping[int, Tried] = field(default_factory=dict)
    running: RunningNote = NONE_RUNNING

    def __bool__(self) -> bool:
        return bool(self.diverted or self.tried or self.running)


def hash_of(lane: Lane) -> bytes:
    """Return the 16-byte hash of a lane: the same in every process and release.

    It is the lane hash of topic, partition and key identity, with their lengths.
    """
    topic, partition, identity, _ = lane
    name = topic.encode("utf-8", "surrogatepass")
    return lane_hash(b"%d:%b%d:%b" % (len(name), name, partition, identity))


def pack_lanes(position: int, hashes: Collection[bytes], room: int) -> bytes:
    """Return the section of diverted lanes, as many of them as ``room`` bytes have space for."""
    base = bytearray()
    put_varint(base, position)
    fits = max(0, room - 1 - varint_size(max(0, room)) - len(base)) // HASH_BYTES
    kept = sorted(hashes)[:fits]
    return _section(KIND_LANES, bytes(base) + b"".join(kept)) if kept else b""


def lanes_fit(room: int) -> int:
    """Return how many diverted lanes fit in ``room`` bytes at any position."""
    top = varint_size(MAX_OFFSET)
    return max(0, room - 1 - varint_size(max(0, room)) - top) // HASH_BYTES


def pack_tried(position: int, tried: Mapping[int, Tried], room: int) -> bytes:
    """Return the section of attempts that fits in ``room`` bytes.

    Archived records come first, because a second copy cannot be taken back; then the lowest
    offsets.
    """
    base = bytearray()
    put_varint(base, position)
    left = room - 1 - varint_size(max(0, room)) - len(base)
    kept = []
    for offset in sorted(tried, key=lambda each: (not tried[each].archived, each)):
        # Its gap is no larger than the distance to the position, with any offsets in between.
        left -= varint_size(offset - position) + varint_size(_number(tried[offset]))
        if left < 0:
            break
        kept.append(offset)
    if not kept:
        return b""
    at = position
    for offset in sorted(kept):
        put_varint(base, offset - at)
        put_varint(base, _number(tried[offset]))
        at = offset + 1
    return _section(KIND_TRIED, bytes(base))


def unpack_lanes(payload: bytes, position: int) -> frozenset[bytes]:
    """Return the hashes of a section; raise :class:`MalformedError` for a malformed one."""
    reader = _open(payload, position)
    hashes = []
    while reader.more():
        hashes.append(reader.take(HASH_BYTES))
        if hashes[-2:-1] >= hashes[-1:]:
            raise MalformedError("its diverted lanes are not in order")
    if len(hashes) > LANES_MOST:
        raise MalformedError(f"it has {len(hashes)} diverted lanes, and {LANES_MOST} are the most")
    return frozenset(hashes)


def unpack_tried(payload: bytes, position: int) -> dict[int, Tried]:
    """Return the attempts in a section for records at and after ``position``.

    Raises :class:`MalformedError` for bytes that :func:`pack_tried` does not make.
    """
    reader = ByteReader(payload)
    at = _base(reader, position)
    tried = {}
    while reader.more():
        at += reader.varint()
        number = reader.varint()
        if at >= MAX_OFFSET:
            raise MalformedError("an offset in it is larger than Kafka's offsets can be")
        if at >= position:
            tried[at] = Tried(min(number >> 1, ATTEMPTS_MOST), bool(number & 1))
        at += 1
    return tried


def merged(one: LaneNotes, later: LaneNotes) -> LaneNotes:
    """Merge two notes of one living member; ``later`` is the more recent one.

    The later note decides which lanes are diverted. The higher number of attempts counts. The
    member is alive, so no record that it ran is a suspect.
    """
    tried = dict(one.tried)
    for offset, each in later.tried.items():
        before = tried.get(offset, Tried(0))
        attempts = max(before.attempts, each.attempts)
        tried[offset] = Tried(attempts, before.archived or each.archived)
    return LaneNotes(later.diverted, tried)


def from_position(notes: LaneNotes, position: int) -> LaneNotes:
    """Return the notes without records below the position, which have settled."""
    tried = {offset: each for offset, each in notes.tried.items() if offset >= position}
    return LaneNotes(notes.diverted, tried)


def _number(tried: Tried) -> int:
    return 2 * min(tried.attempts, ATTEMPTS_MOST) + tried.archived


def _section(kind: int, payload: bytes) -> bytes:
    out = bytearray((kind,))
    put_varint(out, len(payload))
    return bytes(out) + payload


def _open(payload: bytes, position: int) -> ByteReader:
    reader = ByteReader(payload)
    _base(reader, position)
    return reader


def _base(reader: ByteReader, position: int) -> int:
    base = reader.varint()
    if base > position:
        raise MalformedError(f"it was written for position {base}, not for {position}")
    return base
