"""What a soak leaves behind for its judge: ledgers, and when what was done to whom.

All times are ``time.monotonic_ns()``, as in the ledgers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from tests.chaos.soak_schedule import Scenario, Step, What
from tests.support.commits import Stored

NS = 1_000_000_000
NEVER = 1 << 62


@dataclass
class Fault:
    """What was done, from when to when; ``end`` is NEVER while it is not over.

    ``who`` is a member or a broker. ``partitions`` are those that nobody can read meanwhile, None
    for all of them.
    """

    what: What
    who: str
    start: int
    end: int = NEVER
    partitions: frozenset[TopicPartition] | None = None

    @property
    def outage(self) -> bool:
        """Whether a broker was away."""
        return self.what in ("freeze broker", "kill broker", "stop in outage")


@dataclass
class Life:
    """A member's process: what it read, when it began, was asked to stop, and ended."""

    name: str
    topic: str
    workers: int
    start: int
    asked: int | None = None
    killed: bool = False
    end: int = NEVER
    status: int | None = None
    last_words: str = ""
    memory: list[tuple[int, float]] = field(default_factory=list)
    """Resident memory in MiB over time."""


@dataclass
class Evidence:
    """Everything that is judged. ``producer`` is the ledger of what was written.

    ``written`` says for each partition, rising, up to which offset (exclusive) it was written when.
    """

    scenario: Scenario
    producer: MemoryLedger
    ledgers: list[MemoryLedger]
    written: dict[TopicPartition, list[tuple[int, int]]]
    lives: list[Life]
    faults: list[Fault]
    start: int
    drain: int
    """When writing ended, and everybody was to hurry."""
    end: int
    """When everything was done, or it was given up."""
    drained: bool
    letters: MemoryLedger | None = None
    stored: list[Stored] = field(default_factory=list)
    dry: float = 0.0
    """For how many seconds there was next to nothing to do before the drain."""
    logs: dict[str, str] = field(default_factory=dict)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    """What was done when; a step waits for the fault before it."""

    def seconds(self, at: int) -> float:
        """Return how many seconds into the soak that was."""
        return (at - self.start) / NS

    def life(self, name: str) -> Life | None:
        """Return the life of an incarnation; None for the producer."""
        return next((each for each in self.lives if each.name == name), None)


Spans = list[tuple[int, int]]


def united(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return the spans in order, those that touch as one."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def outside(start: int, end: int, spans: Spans) -> int:
    """Return how much of a time lies in none of the spans, which do not overlap."""
    covered = sum(max(0, min(end, last) - max(start, first)) for first, last in spans)
    return max(0, end - start - covered)
