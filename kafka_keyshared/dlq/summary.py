"""What ``dlq ls`` tells of a topic, counted as the letters go by."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from kafka_keyshared.dlq.letter import Kind, Letter, Place

MOST_GROUPS = 1_000
"""Error types and topics come from outside: so many pairs are told apart, the rest is one."""

OTHERS = "(others)"


@dataclass(slots=True)
class Count:
    """Letters of one source topic with one type of error; times in milliseconds since 1970."""

    letters: int = 0
    first: int | None = None
    last: int | None = None
    replays: int = 0

    def add(self, letter: Letter) -> None:
        """Count a letter."""
        self.letters += 1
        if letter.written is not None:
            self.first = letter.written if self.first is None else min(self.first, letter.written)
            self.last = letter.written if self.last is None else max(self.last, letter.written)
        if letter.told is not None:
            self.replays = max(self.replays, letter.told.replays)


@dataclass(slots=True)
class Summary:
    """Counts by source topic and type of error, and the newest ``limit`` letters."""

    limit: int
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    kinds: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    _newest: list[tuple[int, Place, Letter]] = field(default_factory=list)

    def add(self, letter: Letter) -> None:
        """Count a letter, and keep it while it is among the newest."""
        self.kinds[letter.kind] += 1
        told = letter.told
        group = (told.source.topic, told.error_type) if told else (f"({letter.kind.value})", "")
        if group not in self.counts and len(self.counts) >= MOST_GROUPS:
            group = (OTHERS, OTHERS)
        self.counts.setdefault(group, Count()).add(letter)
        if self.limit < 1:
            return
        # No two letters stand at one place, so letters themselves are never compared.
        entry = (letter.written or 0, letter.at, letter)
        if len(self._newest) < self.limit:
            heapq.heappush(self._newest, entry)
        else:
            heapq.heappushpop(self._newest, entry)

    def newest(self) -> list[Letter]:
        """Return the newest letters, the newest first."""
        return [letter for *_, letter in sorted(self._newest, reverse=True)]
