"""The envelope of commit metadata: ASCII text with a length and checksum.

A reader of metadata may get any text. It may come from another program or a later release, be cut
off, be changed, or end in junk. None of that is taken for ours.
"""

from __future__ import annotations

import base64
import zlib

from kafka_keyshared.core.offsets.settled_set_codec import MalformedError

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
