"""The plan of a replay: its dead letters and their order.

Dead letters of one lane (a key of a source topic) are sent by source partition, then by source
offset. The dead-letter topic may have another order. It is partitioned differently, and a dead
letter that was refused once comes late. Therefore the plan sorts all of them first, by 52 bytes
each. With all its data a dead letter takes less than :data:`BYTES_PER_LETTER` of memory.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby
from typing import Literal, Self, TypeAlias

from kafka_keyshared.dlq.letter import Letter, LetterForm, LetterPlace
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import lane_hash

Order: TypeAlias = Literal["key", "partition"]

BYTES_PER_LETTER = 200

NO_LANE = 0
KEYS_NAMED = 1_000
EXAMPLES = 10

# Lane, source topic, partition and offset, digest, place in the dead-letter topic, mark. All are
# unsigned and big-endian, so that sorting the bytes sorts the numbers.
_ROW = struct.Struct(">QIIQQIQQ")
_LANE = slice(0, 8)
_LANE_OF = slice(0, 12)
_RECORD = slice(0, 32)


class State(IntEnum):
    """The state of a dead letter in the plan."""

    PENDING = 0
    HELD = 1
    SENT = 2
    ACKED = 3
    GONE = 4
    FAILED = 5
    BEHIND = 6
    """It is behind a failed dead letter of its lane."""


PASSED = (State.ACKED, State.GONE)
STOPPED = (State.FAILED, State.BEHIND)


def digest_of(letter: Letter) -> int:
    """Return 64 bits that are equal for two dead letters of one record, wherever they are."""
    told = letter.told
    hashed = hashlib.blake2b(digest_size=8)
    hashed.update(repr((told and (told.source, told.timestamp), letter.key)).encode())
    hashed.update(b"-" if letter.value is None else b"+" + letter.value)
    return int.from_bytes(hashed.digest(), "big")


def mark_of(letter: Letter, digest: int) -> int:
    """Return 64 bits that identify a dead letter at its place.

    A recreated topic has other dead letters at the same places, so none of them counts as replayed.
    """
    text = repr((letter.at.partition, letter.at.offset, letter.written, digest))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def is_replayed(letter: Letter, done: Collection[int]) -> bool:
    """Return whether a dead letter was replayed; ``done`` has the marks of the replayed ones."""
    return bool(len(done)) and mark_of(letter, digest_of(letter)) in done


@dataclass(slots=True)
class RefusedLetters:
    """Counts of the records that are not replayed, with some places as examples."""

    guarded: int = 0
    foreign: int = 0
    unreadable: int = 0
    already: int = 0
    copies: int = 0
    examples: dict[str, list[LetterPlace]] = field(default_factory=dict)

    def example(self, why: str, at: LetterPlace) -> None:
        """Store a place as an example while there are few."""
        places = self.examples.setdefault(why, [])
        if len(places) < EXAMPLES:
            places.append(at)


class ReplayPlan:
    """The dead letters to be sent, collected by :meth:`add` and sorted by :meth:`close`.

    ``max_replays`` is the loop guard: a record with that many earlier replays is refused. ``order``
    defines a lane: the records of a key, or all of a source partition. Raises :class:`ConfigError`
    for more than ``max_letters``.
    """

    def __init__(self, max_replays: int, order: Order, max_letters: int) -> None:
        self._max_replays = max_replays
        self._order = order
        self._max_letters = max_letters
        self._topics: dict[str, int] = {}
        self._names: dict[int, bytes] = {}
        self._done: set[bytes] = set()
        self._places: dict[int, tuple[array[int], array[int]]] = {}
        self._copies: dict[int, list[bytes]] = {}
        self._copies_of_done: list[bytes] = []
        self.refused = RefusedLetters()
        self.letters = 0
        self.rows: list[bytes] = []
        self.state = bytearray()

    # --- collecting ---

    def add(self, letter: Letter, done: Container[int]) -> None:
        """Add a dead letter to the plan; ``done`` has the marks of the replayed ones."""
        told = letter.told
        if told is None:
            foreign = letter.kind is LetterForm.FOREIGN
            self.refused.foreign += foreign
            self.refused.unreadable += not foreign
            self.refused.example(letter.kind.value, letter.at)
            return
        self.letters += 1
        digest = digest_of(letter)
        mark = mark_of(letter, digest)
        already = mark in done
        if told.replays >= self._max_replays and not already:
            self.refused.guarded += 1
            self.refused.example("guarded", letter.at)
            return
        if len(self.rows) >= self._max_letters:
            raise ConfigError(
                f"more than {self._max_letters:,} letters: choose fewer with --source-topic, "
                "--since or --partition, or give this process more memory and raise --max-letters"
            )
        topic = self._topics.setdefault(told.source.topic, len(self._topics))
        lane = self._lane(letter)
        _, partition, offset = told.source
        row = _ROW.pack(lane, topic, partition, offset, digest, *letter.at, mark)
        self.rows.append(row)
        if already:
            self._done.add(row)

    def filled(self, letters: Iterable[Letter], done: Container[int]) -> Self:
        """Add all of these to the plan, and close it."""
        for letter in letters:
            self.add(letter, done)
        self.close()
        return self

    def _lane(self, letter: Letter) -> int:
        if letter.told is None or (self._order == "key" and letter.key is None):
            return NO_LANE
        source = letter.told.source
        name = repr(source.topic).encode() + b"\0"
        name += letter.key or b"" if self._order == "key" else b"%d" % source.partition
        lane = int.from_bytes(lane_hash(name)[:8], "big") or 1
        if len(self._names) < KEYS_NAMED and letter.key is not None:
            self._names.setdefault(lane, letter.key[:64])
        return lane

    def close(self) -> None:
        """Sort the dead letters, and drop all but one of each record."""
        self.rows.sort()
        kept: list[bytes] = []
        for _, group in groupby(self.rows, key=lambda row: row[_RECORD]):
            copies = list(group)
            if self._done and not self._done.isdisjoint(copies):
                already = sum(row in self._done for row in copies)
                self.refused.already += already
                self.refused.copies += len(copies) - already
                self._copies_of_done += (row for row in copies if row not in self._done)
                continue
            self.refused.copies += len(copies) - 1
            if len(copies) > 1:
                self._copies[len(kept)] = copies[1:]
            kept.append(copies[0])
        self.rows = kept
        self._done.clear()
        self.state = bytearray(len(kept))
        found: dict[int, list[tuple[int, int]]] = {}
        for index, row in enumerate(kept):
            (partition, offset), _ = _placed(row)
            found.setdefault(partition, []).append((offset, index))
        for partition, pairs in found.items():
            pairs.sort()
            self._places[partition] = (
                array("q", (offset for offset, _ in pairs)),
                array("q", (index for _, index in pairs)),
            )

    # --- contents ---

    def targets(self) -> Counter[str]:
        """Return the number of dead letters from each source topic."""
        names = list(self._topics)
        return Counter(names[_ROW.unpack(row)[1]] for row in self.rows)

    def keys(self) -> tuple[int, list[tuple[bytes, int]]]:
        """Return the number of lanes, and the largest lanes whose key is known."""
        sizes = Counter(int.from_bytes(row[_LANE], "big") for row in self.rows)
        sizes.pop(NO_LANE, None)
        most = [
            (self._names[lane], size)
            for lane, size in sizes.most_common(EXAMPLES)
            if lane in self._names
        ]
        return len(sizes), most

    def keyless(self) -> Counter[str]:
        """Return the number of dead letters without a lane, by source topic."""
        names = list(self._topics)
        alone = (row for row in self.rows if row[_LANE] == bytes(8))
        return Counter(names[_ROW.unpack(row)[1]] for row in alone)

    def lanes(self) -> Counter[str]:
        """Return the number of lanes of each source topic."""
        names = list(self._topics)
        found = (row[_LANE_OF] for row in self.rows if row[_LANE] != bytes(8))
        return Counter(names[int.from_bytes(lane[8:], "big")] for lane, _ in groupby(found))

    def highest_partitions(self) -> dict[str, int]:
        """Return the highest source partition of each source topic."""
        names, highest = list(self._topics), dict[str, int]()
        for row in self.rows:
            _, topic, partition, *_ = _ROW.unpack(row)
            highest[names[topic]] = max(partition, highest.get(names[topic], 0))
        return highest

    # --- during the replay ---

    def find(self, partition: int, offset: int) -> int | None:
        """Return the number of the dead letter at a place, None if the plan has none there."""
        offsets, indexes = self._places.get(partition, (None, None))
        if offsets is None or indexes is None:
            return None
        at = bisect_left(offsets, offset)
        return indexes[at] if at < len(offsets) and offsets[at] == offset else None

    def is_of(self, index: int, letter: Letter) -> bool:
        """Return whether this is the dead letter that was at its place at planning time."""
        return mark_of(letter, digest_of(letter)) == _placed(self.rows[index])[1]

    def before(self, index: int) -> int | None:
        """Return the number of the dead letter that this one must wait for."""
        if index == 0 or not self._same_lane(index - 1, index):
            return None
        return index - 1

    def behind(self, index: int) -> int | None:
        """Return the number of the dead letter that waits for this one."""
        if index + 1 == len(self.rows) or not self._same_lane(index, index + 1):
            return None
        return index + 1

    def _same_lane(self, one: int, other: int) -> bool:
        lane = self.rows[one][_LANE]
        return lane == self.rows[other][_LANE] and lane != bytes(8)

    def place(self, index: int) -> LetterPlace:
        """Return the place of a dead letter."""
        return _placed(self.rows[index])[0]

    def settled_with(self, index: int) -> list[tuple[LetterPlace, int]]:
        """Return place and mark of all dead letters that are done once this one is replayed."""
        return [_placed(row) for row in (self.rows[index], *self._copies.get(index, ()))]

    def settled_before(self) -> list[tuple[LetterPlace, int]]:
        """Return place and mark of unmarked copies of already replayed dead letters."""
        return [_placed(row) for row in self._copies_of_done]

    def count(self, state: State) -> int:
        """Return the number of dead letters in a state."""
        return self.state.count(state)


def _placed(row: bytes) -> tuple[LetterPlace, int]:
    """Return the place of a dead letter, and its mark."""
    *_, partition, offset, mark = _ROW.unpack(row)
    return LetterPlace(partition, offset), mark
