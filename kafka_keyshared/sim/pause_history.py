"""What is paused and resumed by hand, as values beside those of :mod:`.history`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from kafka_keyshared.model import TopicPartition


class PauseOrdered(NamedTuple):
    """Somebody pauses or resumes topics and partitions of a member; both None: everything.

    ``number`` is one that no other order of the run has.
    """

    member: int
    number: int
    topics: Collection[str] | None
    partitions: Collection[TopicPartition] | None
    paused: bool


class PauseTaken(NamedTuple):
    """The member has answered that order: from here on it is so."""

    member: int
    number: int


class PauseRefused(NamedTuple):
    """The member's client refuses to pause or to resume these: what it does is as it was."""

    member: int
    partitions: Collection[TopicPartition]


class PauseHeard(NamedTuple):
    """The member's client has paused these, of which it had refused something."""

    member: int
    partitions: Collection[TopicPartition]


class Refusals:
    """What a client refuses to pause or to resume, until it does pause it."""

    def __init__(self, member: int, tell: Callable[[Any], None]) -> None:
        self._member = member
        self._tell = tell
        self._refused: set[TopicPartition] = set()

    def refused(self, those: Collection[TopicPartition]) -> None:
        """Tell that it has refused these."""
        self._refused.update(those)
        self._tell(PauseRefused(self._member, tuple(those)))

    def heard(self, those: list[TopicPartition]) -> list[TopicPartition]:
        """Tell of what it had refused that it is paused, and return all that is paused."""
        if heard := sorted(self._refused.intersection(those)):
            self._refused.difference_update(heard)
            self._tell(PauseHeard(self._member, tuple(heard)))
        return those
