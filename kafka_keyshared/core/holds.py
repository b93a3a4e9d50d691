"""The ledger of holds: from which partitions nothing is fetched just now, and why.

Whoever wants a partition held back says so here, with a reason, and lets go of it here; several may
want it, each for a reason of its own. What the client is told to pause and to resume, what the
status shows and what the log names are all read from this.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from kafka_keyshared.model import TopicPartition


class Reason(enum.StrEnum):
    """Why nothing is fetched from a partition, in the words of the status and the log."""

    UNSTARTED = "where it starts is not known yet"
    RESEEK = "its place in the log is being found"
    CLOSING = "it is being given up"
    SET_FULL = "its settled set has no room for more in the commit metadata"
    BLOCKED = "records behind its blocked keys fill too much of the window"
    DLQ_LIMIT = "too many of its records went to the dead-letter topic"
    WAITING = "records of it that cannot run yet fill too much of the window"
    UNREAD = "a key of it cannot be read yet"
    WINDOW = "the window is full"
    SHARE = "it holds more than its share of the window, and others go without"
    BY_HAND = "it is paused by hand"
    STOPPING = "the instance stops"


NOT_PAUSED = frozenset({Reason.RESEEK, Reason.CLOSING})
"""For these the client is told no pause: what it brings before it is sought is not used, and it
unassigns what is given up by itself, when the callback that says so returns."""


class Holds:
    """Which partitions are held back, each with its reasons. It belongs to the owner.

    ``whose`` tells apart who holds a partition back for the same reason (two subscriptions, say):
    it is free of that reason when all of them have let go. ``version`` changes with every change.
    """

    def __init__(self) -> None:
        self.version = 0
        # For these every partition is held back, whichever are assigned.
        self.everywhere: set[Reason] = set()
        self._by_reason: dict[Reason, dict[TopicPartition, set[str]]] = {
            each: {} for each in Reason
        }
        self._pausing = [self._by_reason[each] for each in Reason if each not in NOT_PAUSED]

    # --- who holds back ---

    def hold_back(
        self, reason: Reason, partitions: Iterable[TopicPartition], whose: str = ""
    ) -> None:
        """Hold the partitions back for one more reason."""
        back = self._by_reason[reason]
        for partition in partitions:
            if partition not in back:
                back[partition] = set()
                self.version += 1
            back[partition].add(whose)

    def let_go(self, reason: Reason, partitions: Iterable[TopicPartition], whose: str = "") -> None:
        """Hold them back for this reason no more; what was not held back is left as it is."""
        back = self._by_reason[reason]
        for partition in list(partitions):
            who = back.get(partition, set())
            who.discard(whose)
            if not who and back.pop(partition, None) is not None:
                self.version += 1

    def only(self, reason: Reason, partitions: AbstractSet[TopicPartition]) -> None:
        """Hold back these for the reason, and no others."""
        self.let_go(reason, self.held_back(reason) - partitions)
        self.hold_back(reason, partitions)

    def hold_all_back(self, reason: Reason) -> None:
        """Hold every partition back, also what is assigned later."""
        if reason not in self.everywhere:
            self.everywhere.add(reason)
            self.version += 1

    def let_go_all(self, reason: Reason) -> None:
        """End what :meth:`hold_all_back` began."""
        if reason in self.everywhere:
            self.everywhere.discard(reason)
            self.version += 1

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop every reason of partitions that have gone."""
        for partition in partitions:
            for back in self._by_reason.values():
                if back.pop(partition, None) is not None:
                    self.version += 1

    # --- who asks ---

    def held_back(self, reason: Reason) -> AbstractSet[TopicPartition]:
        """Return the partitions held back for the reason one by one; it changes with them."""
        return self._by_reason[reason].keys()

    def assigned(self, started: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions of this member: those that have started, and those yet to start."""
        return {*started, *self._by_reason[Reason.UNSTARTED]}

    def held_back_by(self, reason: Reason, whose: str) -> list[TopicPartition]:
        """Return the partitions that this one holds back for the reason."""
        return [each for each, who in self._by_reason[reason].items() if whose in who]

    def reasons(self, partition: TopicPartition) -> tuple[Reason, ...]:
        """Return every reason for which nothing is fetched from the partition."""
        return tuple(
            reason
            for reason, back in self._by_reason.items()
            if partition in back or reason in self.everywhere
        )

    def paused(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those of the partitions that the client is not to fetch from."""
        if self.everywhere:
            return set(partitions)
        return {each for each in partitions if any(each in back for back in self._pausing)}
