"""Reader of commit metadata, written from its description.

It shares no code with the package's reader and writer. Checkers and oracles judge with it. If they
used the package's own reader, a mistake that writer and reader share would look like agreement.
"""

from __future__ import annotations

import re
from base64 import b85decode, urlsafe_b64decode
from binascii import crc32
from collections.abc import Iterator
from typing import NamedTuple

from kafka_keyshared.model import TopicPartition

Sections = dict[str, set[int]]
"""The offsets that a text calls settled, by subscription."""


class Notes(NamedTuple):
    """Notes of a text on the lanes and records of a subscription.

    ``lanes`` are the hashes of diverted lanes. ``tried`` has the attempts of an unsettled record by
    its offset, and whether its copy is archived. ``running`` has by the offset of a running record
    how many owners in a row ran it. ``more`` is how many other records run.
    """

    lanes: set[bytes]
    tried: dict[int, tuple[int, bool]]
    running: dict[int, int]
    more: int = 0


NOTHING = Notes(set(), {}, {})


class Whose(NamedTuple):
    """A partition of a topic, and the topic's id in Kafka's form."""

    partition: TopicPartition
    topic_id: str


TEXT = re.compile(
    r"KS2(?P<length>[0-9a-f]{3})(?P<sum>.{5})(?P<body>[\x21-\x7e]*)", re.DOTALL | re.ASCII
)
RUNS, BITMAP, LANES, TRIED, RUNNING = 1, 2, 3, 4, 5
BITS = [[bit for bit in range(8) if byte >> bit & 1] for byte in range(256)]


class CommitTextError(AssertionError):
    """A text does not match the description of the commit metadata, or is of another log."""


def read_commit(text: str, position: int, whose: Whose | None = None) -> Sections:
    """Return the offsets at and after the committed position that a text calls settled.

    Raises :class:`CommitTextError` for a text that is not exactly as described. It also raises for
    a text of another position, or of another log than ``whose``, if that is given.
    """
    return {name: _settled(block, position) for name, block in _blocks(text, position, whose)}


def read_notes(text: str, position: int, whose: Whose | None = None) -> dict[str, Notes]:
    """Return the notes of a text on lanes, and on records at and after the position.

    Raises :class:`CommitTextError` as :func:`read_commit` does.
    """
    return {name: _notes(block, position) for name, block in _blocks(text, position, whose)}


def _written_for(body: bytes, position: int, whose: Whose | None) -> bytes:
    """Strip the origin, which names the log and position of a text, and check it."""
    number, body = _number(body)
    at, body = _number(body)
    name, body = body[:4], body[4:]
    id_, body = _sized(body)
    _require(len(id_) in (0, 16), "a topic id of {} bytes", len(id_))
    _require(at == position, "a text for position {} at {}", at, position)
    if whose is not None:
        (topic, partition), topic_id = whose
        _require(number == partition, "a text for partition {} at {}", number, partition)
        _require(
            int.from_bytes(name, "big") == crc32(topic.encode()), "a text of no topic {!r}", topic
        )
        wanted = urlsafe_b64decode(f"{topic_id}==")
        _require(id_ in (b"", wanted), "a text of topic id {!r}, not {!r}", id_, wanted)
    return body


def _blocks(text: str, position: int, whose: Whose | None) -> Iterator[tuple[str, bytes]]:
    if not text:
        return
    found = TEXT.fullmatch(text)
    if found is None:
        raise CommitTextError(f"no commit metadata: {text!r}")
    _require(int(found["length"], 16) == len(text), "{!r} has another length than it says", text)
    told = int.from_bytes(_bytes_of(found["sum"]), "big")
    summed = f"KS2{found['length']}{found['body']}"
    _require(told == crc32(summed.encode()), "the checksum of {!r} is wrong", text)
    seen = set()
    rest = _written_for(_bytes_of(found["body"]), position, whose)
    while rest:
        name, rest = _sized(rest)
        block, rest = _sized(rest)
        _require(name not in seen, "{!r} is in {!r} twice", name, text)
        seen.add(name)
        yield name.decode(), block


def _require(right: bool, words: str, *what: object) -> None:
    if not right:
        raise CommitTextError(words.format(*what))


def _bytes_of(text: str) -> bytes:
    try:
        return b85decode(text)
    except ValueError:
        raise CommitTextError(f"{text!r} is not base 85") from None


def _number(data: bytes) -> tuple[int, bytes]:
    """Strip a number: seven bits a byte, low end first, the last byte below 128."""
    if data and data[0] < 128:
        return data[0], data[1:]
    size = next((at for at, byte in enumerate(data) if byte < 128), -1) + 1
    _require(size > 0, "a number without its end: {!r}", data)
    digits = (byte % 128 * 128**place for place, byte in enumerate(data[:size]))
    return sum(digits), data[size:]


def _sized(data: bytes) -> tuple[bytes, bytes]:
    """Strip bytes that follow their length."""
    size, rest = _number(data)
    _require(size <= len(rest), "a part claims more bytes than there are")
    return rest[:size], rest[size:]


def _sections(block: bytes, position: int) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, base and payload of each section of a block."""
    seen = set()
    while block:
        kind, (payload, block) = block[0], _sized(block[1:])
        _require(kind in (RUNS, BITMAP, LANES, TRIED, RUNNING), "a section of kind {}", kind)
        what = RUNS if kind == BITMAP else kind
        _require(what not in seen, "two sections of kind {}", kind)
        seen.add(what)
        base, payload = _number(payload)
        _require(base <= position, "a section from {} beside the position {}", base, position)
        yield kind, base, payload


def _settled(block: bytes, position: int) -> set[int]:
    found: set[int] = set()
    for kind, base, payload in _sections(block, position):
        if kind == RUNS:
            found.update(*_runs(base, payload))
        elif kind == BITMAP:
            found.update(_bits(base, payload))
        if base < position:
            found = {offset for offset in found if offset >= position}
    return found


def _notes(block: bytes, position: int) -> Notes:
    lanes: set[bytes] = set()
    tried: dict[int, tuple[int, bool]] = {}
    running: dict[int, int] = {}
    more = 0
    for kind, base, payload in _sections(block, position):
        if kind == LANES:
            _require(len(payload) % 16 == 0, "{} bytes of lanes", len(payload))
            lanes = {payload[at : at + 16] for at in range(0, len(payload), 16)}
        elif kind == TRIED:
            every = _tried(base, payload)
            tried = {offset: each for offset, each in every if offset >= position}
        elif kind == RUNNING:
            more, numbers = _number(payload)
            running = dict(_running(base, numbers))
    return Notes(lanes, tried, running, more)


def _tried(at: int, numbers: bytes) -> Iterator[tuple[int, tuple[int, bool]]]:
    while numbers:
        gap, numbers = _number(numbers)
        number, numbers = _number(numbers)
        yield at + gap, (number // 2, number % 2 == 1)
        at += gap + 1


def _running(at: int, numbers: bytes) -> Iterator[tuple[int, int]]:
    while numbers:
        gap, numbers = _number(numbers)
        number, numbers = _number(numbers)
        _require(number <= 100, "a running record with the number {}", number)
        yield at + gap, number
        at += gap + 1


def _runs(at: int, numbers: bytes) -> Iterator[range]:
    first = True
    while numbers:
        gap, numbers = _number(numbers)
        length, numbers = _number(numbers)
        # The least gap between two runs and the least length of a run is 1, which is not counted.
        start = at + gap if first else at + gap + 1
        at, first = start + length + 1, False
        yield range(start, at)


def _bits(base: int, payload: bytes) -> Iterator[int]:
    skip, bits = _number(payload)
    for start, byte in enumerate(bits):
        for bit in BITS[byte]:
            yield base + skip + 8 * start + bit
