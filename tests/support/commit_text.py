"""Reads commit metadata by its description, and by none of the code that writes or reads it.

The oracle judges with it: were it to ask the package's own reader, a mistake that writer and reader
share would look like agreement.
"""

from __future__ import annotations

import re
from base64 import b85decode
from binascii import crc32
from collections.abc import Iterator

Sections = dict[str, set[int]]
"""By subscription the offsets that a text calls settled."""

TEXT = re.compile(
    r"KS1(?P<length>[0-9a-f]{3})(?P<sum>.{5})(?P<body>[\x21-\x7e]*)", re.DOTALL | re.ASCII
)
RUNS, BITMAP = 1, 2


def read_commit(text: str, position: int) -> Sections:
    """Return what a text says about the offsets at and after the position committed with it.

    A text that is not exactly as described fails the test.
    """
    if not text:
        return {}
    found = TEXT.fullmatch(text)
    assert found is not None, f"no commit metadata: {text!r}"
    assert int(found["length"], 16) == len(text), f"{text!r} has {len(text)} characters"
    told = int.from_bytes(b85decode(found["sum"]), "big")
    summed = f"KS1{found['length']}{found['body']}"
    assert told == crc32(summed.encode()), f"the checksum of {text!r} is wrong"
    sections: Sections = {}
    rest = b85decode(found["body"])
    while rest:
        name, rest = _sized(rest)
        block, rest = _sized(rest)
        assert name.decode() not in sections, f"{name!r} is in {text!r} twice"
        sections[name.decode()] = set(_settled(block, position))
    return sections


def _number(data: bytes) -> tuple[int, bytes]:
    """Take a number off: seven bits a byte, low end first, the last byte below 128."""
    size = next(at for at, byte in enumerate(data) if byte < 128) + 1
    digits = (byte % 128 * 128**place for place, byte in enumerate(data[:size]))
    return sum(digits), data[size:]


def _sized(data: bytes) -> tuple[bytes, bytes]:
    """Take bytes off that stand behind their number."""
    size, rest = _number(data)
    assert size <= len(rest), "a part claims more bytes than there are"
    return rest[:size], rest[size:]


def _settled(block: bytes, position: int) -> Iterator[int]:
    while block:
        kind, (payload, block) = block[0], _sized(block[1:])
        assert kind in (RUNS, BITMAP), f"a section of kind {kind}"
        base, payload = _number(payload)
        assert base <= position, f"a set from {base} beside the position {position}"
        offsets = _runs(base, payload) if kind == RUNS else _bits(base, payload)
        yield from (offset for offset in offsets if offset >= position)


def _runs(at: int, numbers: bytes) -> Iterator[int]:
    first = True
    while numbers:
        gap, numbers = _number(numbers)
        length, numbers = _number(numbers)
        # The one offset that is between two runs at least, and in a run, is not counted.
        start = at + gap if first else at + gap + 1
        at, first = start + length + 1, False
        yield from range(start, at)


def _bits(base: int, payload: bytes) -> Iterator[int]:
    skip, bits = _number(payload)
    for place, byte in enumerate(bits):
        for bit in range(8):
            if byte >> bit & 1:
                yield base + skip + 8 * place + bit
