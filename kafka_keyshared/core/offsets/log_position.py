"""The log and the position that a commit text was written for.

Kafka copies the text of a commit wherever it copies the commit. MirrorMaker 2 translates the
position into the offsets of another cluster and stores the text unchanged beside it. Tools copy
offsets to other topics. A topic is restored from a backup under the same name. In all these cases
the offsets in the text belong to another log. A reader that took them for its own would skip
records that never ran. So each text begins with its origin, and :func:`read_origin` refuses any
other::

    origin  = partition position name size id
    name    = CRC-32 of the topic's name in UTF-8, 4 bytes
    size    = 16, or 0 if the id of the topic was not known
    id      = the id of the topic (KIP-516), raw

Partition, position and size are varints.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import NamedTuple

from kafka_keyshared.core.offsets.framing import unseal
from kafka_keyshared.core.offsets.settled_set_codec import ByteReader, MalformedError, put_varint
from kafka_keyshared.hashing import lane_hash
from kafka_keyshared.model import TopicPartition

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
