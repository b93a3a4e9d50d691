"""Text form of slot ranges: ``0-10000,20001-30000``, both ends included."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS

_WRITTEN = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", re.ASCII)
_GIVE = f"give inclusive ranges of slots such as 0-10000,20001-30000; 0-{SLOTS - 1} is all of them"


class SlotRange(NamedTuple):
    """The slots from ``first`` to ``last``, both included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def parse_ranges(text: str) -> tuple[SlotRange, ...]:
    """Return the ranges of a comma-separated text; ``7`` means ``7-7``.

    Raises :class:`ConfigError` for a malformed range and for ranges that :func:`check_ranges`
    refuses.
    """
    found = []
    for piece in text.split(","):
        match = _WRITTEN.fullmatch(piece)
        if match is None:
            what = (
                f"{piece.strip()!r} is no range of slots" if piece.strip() else "a range is empty"
            )
            where = "" if piece == text else f" in {text!r}"
            raise ConfigError(f"{what}{where}: {_GIVE}")
        first, last = match[1], match[2] or match[1]
        # Python refuses to read a number of thousands of digits, which is no slot anyway.
        found.append((int(first[:10]), int(last[:10])))
    return check_ranges(found)


def check_ranges(ranges: Iterable[Any]) -> tuple[SlotRange, ...]:
    """Return pairs of first and last slot as ranges, ascending.

    Raises :class:`ConfigError` for no range at all and for a value that is no pair of whole
    numbers. Also for a range that is inverted, goes beyond the existing slots, or overlaps another.
    """
    given = [_checked(each) for each in ranges]
    if not given:
        raise ConfigError(f"no range of slots is given: {_GIVE}")
    found = sorted(given)
    for before, after in itertools.pairwise(found):
        if after.first <= before.last:
            shared = SlotRange(after.first, min(before.last, after.last))
            raise ConfigError(
                f"the ranges {before} and {after} overlap in {shared}: a slot may be in one range"
            )
    return tuple(found)


def _checked(pair: Any) -> SlotRange:
    if (
        not isinstance(pair, Sequence)
        or len(pair) != 2
        or not all(type(each) is int for each in pair)
    ):
        raise ConfigError(f"{pair!r} is no range of slots: give its first and its last slot")
    found = SlotRange(*pair)
    if not (0 <= found.first < SLOTS and 0 <= found.last < SLOTS):
        raise ConfigError(f"the range {found} is out of bounds: slots go from 0 to {SLOTS - 1}")
    if found.first > found.last:
        raise ConfigError(
            f"the range {found} is inverted: write {found.last}-{found.first} if that is meant"
        )
    return found


def membership(ranges: Iterable[SlotRange]) -> bytes:
    """Return for each slot 1 if it is in one of the ranges, else 0."""
    table = bytearray(SLOTS)
    for first, last in ranges:
        table[first : last + 1] = b"\1" * (last + 1 - first)
    return bytes(table)
