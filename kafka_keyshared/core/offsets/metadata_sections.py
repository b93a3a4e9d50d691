"""Sections of commit metadata: envelope, origin, lanes and running records.

:mod:`.commit_metadata` puts them together; settled sets are in :mod:`.settled_set_codec`. Readers
that do not know a section skip it.

**Envelope.** Metadata is ASCII text with a length and checksum. A reader may get any text. It may
come from another program or a later release, be cut off, be changed, or end in junk. None of that
is taken for ours.

**Origin.** Kafka copies the text of a commit wherever it copies the commit. MirrorMaker 2
translates the position into the offsets of another cluster and stores the text unchanged beside it.
Tools copy offsets to other topics. A topic is restored from a backup under the same name. In all
these cases the offsets in the text belong to another log. A reader that took them for its own would
skip records that never ran. So each text begins with its origin, and :func:`read_origin` refuses
any other::

    origin  = partition position name size id
    name    = CRC-32 of the topic's name in UTF-8, 4 bytes
    size    = 16, or 0 if the id of the topic was not known
    id      = the id of the topic (KIP-516), raw

Partition, position and size are varints.

**Notes on lanes and failed records.** The next owner of a partition reads them. A diverted lane
stays diverted. A record that was tried three times gets its fourth attempt. A record whose copy is
in the dead-letter topic gets no second copy::

    kind 3  = base hash*              diverted lanes, 16 bytes each, ascending
    kind 4  = base (gap number)*      records by offset: attempts doubled, plus 1 if archived

Bases and gaps are as in a settled set. The first gap counts from the base, each other one from
behind the previous offset.

**Running records.** A commit that is made while records run names the lowest of them. A clean stop
leaves no names, nor does a revoke during which all records ended. Names at an assignment therefore
mean that the last owner ended without a clean stop. One of the named records may have caused it::

    kind 5  = base more (gap number)*   running records, by offset

``more`` is the number of other running records. The number of a record counts consecutive owners
that named it as running and may have been ended by it. It is at most :data:`COUNTED_MOST`. It is
:data:`WAITING` for a record that is about to start for the first time. It is :data:`STARTED` if
only this owner ran it. A suspect that waits keeps its restored number.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_keyshared.core.offsets.settled_set_codec import (
    MAX_OFFSET,
    ByteReader,
    MalformedError,
    put_varint,
    varint_size,
)
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.hashing import lane_hash
from kafka_keyshared.model import TopicPartition

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


_NAME_BYTES = 4
_ID_BYTES = 16

ORIGIN_BYTES = 5 + 9 + _NAME_BYTES + 1 + _ID_BYTES
"""The largest size of an origin: a partition of 31 bits, an offset of 63."""


class LogPosition(NamedTuple):
    """A position in one log. ``topic_id`` is None if the id of the topic is not known."""

    partition: TopicPartition
    offset: int
    topic_id: str | None = None


def pack_origin(at: LogPosition) -> bytes:
    """Return the origin of a text that is committed at this position."""
    out = bytearray()
    put_varint(out, at.partition.partition)
    put_varint(out, at.offset)
    out += _name_bytes(at.partition.topic)
    id_ = b"" if at.topic_id is None else _id_bytes(at.topic_id)
    put_varint(out, len(id_))
    return bytes(out) + id_


def read_origin(reader: ByteReader, at: LogPosition) -> None:
    """Take the origin off a text that was found at ``at``.

    Raises :class:`MalformedError` unless the text was written for that log and that position. Ids
    are compared if both are known. A text with an id is refused if the reader does not know the id
    of the topic. Only the id distinguishes a mirrored topic of the same name.
    """
    partition, offset = reader.varint(), reader.varint()
    name = reader.take(_NAME_BYTES)
    id_ = reader.take(reader.varint())
    if len(id_) not in (0, _ID_BYTES):
        raise MalformedError("its topic id has another length than a topic id")
    here, differs = at.partition, []
    if name != _name_bytes(here.topic):
        differs.append(f"another topic than {here.topic}")
    if partition != here.partition:
        differs.append(f"partition {partition}")
    if offset != at.offset:
        differs.append(f"position {offset}")
    if id_ and at.topic_id is not None and id_ != _id_bytes(at.topic_id):
        differs.append(f"topic id {_id_text(id_)} (this topic has {at.topic_id})")
    if differs:
        raise MalformedError(
            f"it was written for {', '.join(differs)}, and is committed at position {at.offset}; "
            "commits that a tool mirrors, copies or restores carry the offsets of another log"
        )
    if id_ and at.topic_id is None:
        raise MalformedError(
            f"it was written for topic id {_id_text(id_)}, and no broker tells the id of this topic"
        )


def topic_id_in(text: str | None) -> str | None:
    """Return the topic id in a text; None if there is none or the text is not in our format.

    Only a reader that knows the id of the topic accepts a text with an id.
    """
    if not text:
        return None
    try:
        reader = ByteReader(unseal(text))
        reader.varint(), reader.varint(), reader.take(_NAME_BYTES)
        id_ = reader.take(reader.varint())
    except MalformedError:
        return None
    return _id_text(id_) if id_ else None


def _name_bytes(topic: str) -> bytes:
    return zlib.crc32(topic.encode("utf-8", "surrogatepass")).to_bytes(_NAME_BYTES, "big")


def _id_bytes(topic_id: str) -> bytes:
    """Return the 16 bytes of an id: Kafka writes them in base 64. Another form is hashed."""
    try:
        raw = base64.b64decode(topic_id + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    return raw if len(raw) == _ID_BYTES else lane_hash(topic_id.encode("utf-8", "surrogatepass"))


def _id_text(id_: bytes) -> str:
    return base64.urlsafe_b64encode(id_).decode("ascii").rstrip("=")


TEXT_LIMIT = 4095
"""Most characters of the whole text: the broker's default limit less the binding's NUL.

It is also the largest length that the three digits of the text can state.
"""

_MAGIC = "KS2"
_HEAD_CHARS = 6  # magic and length
ENVELOPE_CHARS = 11  # and the checksum
_HEX = frozenset("0123456789abcdef")


def seal(body: bytes) -> str:
    """Return the text of a body, empty for an empty one."""
    if not body:
        return ""
    coded = base64.b85encode(body).decode("ascii")
    head = f"{_MAGIC}{ENVELOPE_CHARS + len(coded):03x}"
    return head + _checksum(head, coded) + coded


def _checksum(head: str, coded: str) -> str:
    crc = zlib.crc32((head + coded).encode("ascii"))
    return base64.b85encode(crc.to_bytes(4, "big")).decode("ascii")


def chars(size: int) -> int:
    """Return how many characters ``size`` bytes take in base 85."""
    return (size * 5 + 3) // 4


def bytes_in(chars: int) -> int:
    """Return the most bytes that fit in ``chars`` characters of base 85."""
    return max(chars, 0) * 4 // 5


def unseal(text: str) -> bytes:
    """Return the body of a text, or raise :class:`MalformedError` with the cause."""
    head = text[:_HEAD_CHARS]
    digits = head[len(_MAGIC) :]
    if not head.startswith(_MAGIC[:2]):
        raise MalformedError(f"another program wrote it (it starts with {head!a})")
    if not head.startswith(_MAGIC):
        raise MalformedError(
            f"it is of version {head[2:3]!a}, and this release reads version {_MAGIC[2:]!a}, which "
            "says of which log a text is"
        )
    if len(digits) < 3 or not _HEX.issuperset(digits):
        raise MalformedError(f"its length is not a number ({digits!a})")
    length = int(digits, 16)
    if not ENVELOPE_CHARS <= length <= len(text):
        raise MalformedError(f"it has {len(text)} characters and says that it has {length}")
    coded = text[ENVELOPE_CHARS:length]
    if not coded.isascii() or text[_HEAD_CHARS:ENVELOPE_CHARS] != _checksum(head, coded):
        raise MalformedError("its checksum is wrong")
    try:
        return base64.b85decode(coded)
    except ValueError:
        raise MalformedError("its body is not base 85") from None
