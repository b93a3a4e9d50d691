"""A worker's share of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import InitVar, dataclass, field

from kafka_keyshared.core.lanes import Lane, lane_of
from kafka_keyshared.core.originals import Chunk, Originals, Place
from kafka_keyshared.model import Record, TopicPartition


@dataclass(slots=True, eq=False)
class Slice:
    """A worker's share of records: one lease for each, handed over together.

    ``records`` are in the order in which they will start. ``unsettled`` are those of them that came
    back without being settled (failed, set aside); ``aside`` counts those that were not run for it.
    ``dropped`` is written by the worker. ``lane_of`` names the lane of each of them, ``topic`` the
    topic of them all where that is known, and ``came`` is what they were. ``first`` are a few of
    them of which one arrived before all others. ``chunks`` are what they came in; without them
    nobody has had them yet.
    """

    subscription: str
    worker: int
    records: list[Record]
    retries: tuple[Lane, ...] = ()
    lane_of: Callable[[Record], Lane] = lane_of
    topic: str | None = None
    first: tuple[Record, ...] = ()
    unsettled: list[Record] = field(default_factory=list)
    aside: int = 0
    dropped: list[Record] = field(default_factory=list)
    stale: set[tuple[TopicPartition, int]] = field(default_factory=set)
    chunks: InitVar[Sequence[Chunk]] = ()
    came: Originals = field(init=False, repr=False)

    def __post_init__(self, chunks: Sequence[Chunk]) -> None:
        self.came = Originals(self.records, self.topic, chunks)

    def oldest(self) -> Iterator[Place]:
        """Yield where the records are of which one arrived before all others."""
        for record in self.first:
            index = self.came.index(record)
            if index is not None:  # one that was taken back is held elsewhere
                yield self.came.place_of(index)
