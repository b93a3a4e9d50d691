"""Events of pauses and resumes by hand, beside those of :mod:`.history`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from kafka_keyshared.model import TopicPartition


class PauseOrdered(NamedTuple):
    """An order pauses or resumes topics and partitions of a member; both None: everything.

    ``number`` is one that no other order of the run has.
    """

    member: int
    number: int
    topics: Collection[str] | None
    partitions: Collection[TopicPartition] | None
    paused: bool


class PauseTaken(NamedTuple):
    """The member has answered that order. From here on it is in effect."""

    member: int
    number: int


class PauseRefused(NamedTuple):
    """The member's client refuses to pause or to resume these. Their state is unchanged."""

    member: int
    partitions: Collection[TopicPartition]


class PauseHeard(NamedTuple):
    """The member's client has paused these after an earlier refusal."""

    member: int
    partitions: Collection[TopicPartition]


class Refusals:
    """Partitions that a client refuses to pause or to resume, until it pauses them."""

    def __init__(self, member: int, tell: Callable[[Any], None]) -> None:
        self._member = member
        self._tell = tell
        self._refused: set[TopicPartition] = set()

    def refused(self, those: Collection[TopicPartition]) -> None:
        """Report that it has refused these."""
        self._refused.update(those)
        self._tell(PauseRefused(self._member, tuple(those)))

    def heard(self, those: list[TopicPartition]) -> list[TopicPartition]:
        """Report the partitions that it had refused and has paused, and return all paused ones."""
        if heard := sorted(self._refused.intersection(those)):
            self._refused.difference_update(heard)
            self._tell(PauseHeard(self._member, tuple(heard)))
        return those
