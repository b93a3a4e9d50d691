"""Partitions as a simulated client reads them, and fetched batches."""

from __future__ import annotations

from kafka_keyshared.lab.simulator.records import SimRecord
from kafka_keyshared.model import TopicPartition


class FetchedPartition:
    """An assigned partition. ``next`` is the position to fetch from; None: by the reset policy.

    ``position`` is behind the records that the owner has taken. It is None until the owner has
    taken one since the assignment or the seek.
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
        # Which log of that name it reads, and how far its owner has come in it. Records that are
        # taken while it is loose are not used.
        self.made = -1
        # Which topic it was when its owner began.
        self.topics = -1
        self.reached = 0
        self.loose = False
        self.version = 0
        # Epoch of the last taken record, and the epoch up to which the log is known to be complete.
        self.epoch = -1
        self.checked = -1
        self.not_before = 0.0
        self.active = False
        self.misplaced = False
        self.move(place)

    def move(self, place: int | None) -> None:
        """Read on from there. Everything fetched before is void."""
        self.version += 1
        self.place = self.next = place
        self.reached = max(self.reached, place or 0)
        self.position: int | None = None
        self.eof_at = -1

    def discard(self) -> None:
        """Fetch the records again that were fetched and not taken."""
        self.version += 1
        self.next = self.place if self.position is None else self.position
        self.eof_at = -1


class FetchBatch:
    """The result of one fetch of a partition.

    ``behind`` is the position once all of it is taken and the markers after it are passed. ``told``
    is a message that follows.
    """

    __slots__ = ("at", "behind", "part", "records", "tells_place", "told", "version")

    def __init__(self, part: FetchedPartition, records: list[SimRecord]) -> None:
        self.part = part
        self.version = part.version
        self.records = records
        self.at = 0
        self.behind: int | None = None
        self.tells_place = False
        self.told: SimRecord | None = None

    def counts(self) -> bool:
        """Return whether it is still to be taken. A lost position is reported in any case."""
        return self.version == self.part.version or (self.tells_place and self.part.misplaced)

    def more(self) -> bool:
        """Return whether anything follows its records."""
        return self.behind is not None or self.told is not None
