"""A partition as a simulated client reads it, and what one fetch brings of it."""

from __future__ import annotations

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim.records import SimRecord


class Part:
    """A partition that is assigned. ``next`` is where it is fetched from, None: as is the policy.

    ``position`` is behind what the owner has taken, None until it has taken anything since the
    partition was assigned or sought.
    """

    __slots__ = (
        "active",
        "assignment",
        "checked",
        "eof_at",
        "epoch",
        "loose",
        "made",
        "misplaced",
        "next",
        "not_before",
        "partition",
        "place",
        "position",
        "reached",
        "topics",
        "version",
    )

    def __init__(self, partition: TopicPartition, place: int | None, assignment: int) -> None:
        self.partition = partition
        self.assignment = assignment
        # Which log of that name it reads, and how far into it its owner has come; nothing of what
        # is taken while it is loose is used.
        self.made = -1
        # Which topic it was when its owner began.
        self.topics = -1
        self.reached = 0
        self.loose = False
        self.version = 0
        # Of the last record that was taken, and up to which the log is known not to have been cut.
        self.epoch = -1
        self.checked = -1
        self.not_before = 0.0
        self.active = False
        self.misplaced = False
        self.move(place)

    def move(self, place: int | None) -> None:
        """Read on there; what was fetched before is worth nothing."""
        self.version += 1
        self.place = self.next = place
        self.reached = max(self.reached, place or 0)
        self.position: int | None = None
        self.eof_at = -1

    def discard(self) -> None:
        """Fetch again what was fetched and not taken."""
        self.version += 1
        self.next = self.place if self.position is None else self.position
        self.eof_at = -1


class Batch:
    """What one fetch brought of a partition.

    ``behind`` is where the position goes when all of it is taken and the markers after it are
    passed, ``told`` a message that follows.
    """

    __slots__ = ("at", "behind", "part", "records", "tells_place", "told", "version")

    def __init__(self, part: Part, records: list[SimRecord]) -> None:
        self.part = part
        self.version = part.version
        self.records = records
        self.at = 0
        self.behind: int | None = None
        self.tells_place = False
        self.told: SimRecord | None = None

    def counts(self) -> bool:
        """Say whether it is still to be taken: a lost place is told whatever has come between."""
        return self.version == self.part.version or (self.tells_place and self.part.misplaced)

    def more(self) -> bool:
        """Say whether anything follows its records."""
        return self.behind is not None or self.told is not None
