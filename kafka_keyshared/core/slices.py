"""A worker's share of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from kafka_keyshared.core.lanes import Lane, lane_of
from kafka_keyshared.core.originals import Chunk, Originals, Place
from kafka_keyshared.model import Record


@dataclass(slots=True, eq=False)
class Slice:
    """A worker's share of records: one lease for each, handed over together.

    ``records`` are in the order in which they will start. ``unsettled`` are those of them that came
    back without being settled (failed, set aside); ``aside`` counts those that were not run for it.
    ``dropped`` is written by the worker. ``stale`` are the places of those whose partition has
    gone, ``in_time`` those of them that had ended by its last commit. ``lane_of`` names the lane of
    each of them, ``topic`` the topic of them all where that is known, and ``came`` is what they
    were. ``first`` are a few of them of which one arrived before all others. ``chunks`` are what
    they came in; without them nobody has had them yet. ``claimed`` are their lanes where each may
    have one lease only: those that wait for the end of these.
    """

    subscription: str
    worker: int
    records: list[Record]
    retries: tuple[Lane, ...] = ()
    lane_of: Callable[[Record], Lane] = lane_of
    topic: str | None = None
    first: tuple[Record, ...] = ()
    claimed: Sequence[Lane] = ()
    unsettled: list[Record] = field(default_factory=list)
    aside: int = 0
    dropped: list[Record] = field(default_factory=list)
    stale: set[Place] = field(default_factory=set)
    in_time: frozenset[Place] = frozenset()
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

    def ended(self, progress: Mapping[Slice, int]) -> int:
        """Return how many of its records, the first ones, had ended when progress was read.

        ``progress`` says for each outstanding slice how many of its records had not started; the
        one before them counts as running.
        """
        return max(0, len(self.records) - progress.get(self, len(self.records)) - 1)
