"""The counts that ``dlq ls`` shows of a topic."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from kafka_keyshared.dlq.letter import Letter, LetterForm, LetterPlace

MOST_GROUPS = 1_000
"""Maximum number of groups, because error types and names come from outside; others are merged."""

OTHERS = "(others)"

NO_LETTERS = frozenset(f"({kind.value})" for kind in (LetterForm.FOREIGN, LetterForm.UNREADABLE))
"""Group names in place of a source topic, for records that are no readable dead letters."""


@dataclass(slots=True)
class Count:
    """Dead letters of one source topic and group with one type of error.

    Times are in milliseconds since 1970. ``replayed`` counts the dead letters that a replay has
    sent. ``replays`` is the highest replay count among their records.
    """

    letters: int = 0
    replayed: int = 0
    first: int | None = None
    last: int | None = None
    replays: int = 0

    def add(self, letter: Letter, *, replayed: bool) -> None:
        """Count a dead letter."""
        self.letters += 1
        self.replayed += replayed
        if letter.written is not None:
            self.first = letter.written if self.first is None else min(self.first, letter.written)
            self.last = letter.written if self.last is None else max(self.last, letter.written)
        if letter.told is not None:
            self.replays = max(self.replays, letter.told.replays)


@dataclass(slots=True)
class Summary:
    """Counts by source topic, group and type of error, and the newest ``limit`` dead letters."""

    limit: int
    counts: dict[tuple[str, str, str], Count] = field(default_factory=dict)
    kinds: dict[LetterForm, int] = field(default_factory=lambda: dict.fromkeys(LetterForm, 0))
    _newest: list[tuple[int, LetterPlace, Letter, bool]] = field(default_factory=list)

    def add(self, letter: Letter, *, replayed: bool = False) -> None:
        """Count a dead letter, and keep it while it is among the newest."""
        self.kinds[letter.kind] += 1
        told = letter.told
        kind = (f"({letter.kind.value})", "", "")
        if told is not None:
            kind = (told.source.topic, told.group or "", told.error_type)
        if kind not in self.counts and len(self.counts) >= MOST_GROUPS:
            kind = (OTHERS, OTHERS, OTHERS)
        self.counts.setdefault(kind, Count()).add(letter, replayed=replayed)
        if self.limit < 1:
            return
        # Places are unique, so the dead letters themselves are never compared.
        entry = (letter.written or 0, letter.at, letter, replayed)
        if len(self._newest) < self.limit:
            heapq.heappush(self._newest, entry)
        else:
            heapq.heappushpop(self._newest, entry)

    @property
    def letters(self) -> int:
        """The number of readable dead letters."""
        return self.kinds[LetterForm.HEADERS] + self.kinds[LetterForm.AVRO]

    @property
    def replayed(self) -> int:
        """The number of dead letters that a replay has sent."""
        return sum(count.replayed for count in self.counts.values())

    def newest(self) -> list[tuple[Letter, bool]]:
        """Return the newest dead letters and whether each was replayed, the newest first."""
        return [(letter, done) for *_, letter, done in sorted(self._newest, reverse=True)]
