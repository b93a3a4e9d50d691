"""Ledger of the partitions that are not fetched from, and the reasons.

A component holds a partition back here with a reason, and releases it here. Several components may
hold the same partition, each for its own reason. Client pauses and resumes, the status, and the log
are all derived from this ledger.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from kafka_keyshared.model import TopicPartition


class Reason(enum.StrEnum):
    """Reason why a partition is not fetched from, as the status and the log show it."""

    UNSTARTED = "where it starts is not known yet"
    RESEEK = "its place in the log is being found"
    CLOSING = "it is being given up"
    SET_FULL = "its settled set has no room for more in the commit metadata"
    BLOCKED = "records behind its blocked keys fill too much of the window"
    DEPENDENCY = "it waits for a dependency of the handler"
    DLQ_LIMIT = "too many of its records went to the dead-letter topic"
    WAITING = "records of it that cannot run yet fill too much of the window"
    UNREAD = "a key of it cannot be read yet"
    WINDOW = "the window is full"
    SHARE = "it holds more than its share of the window, and others go without"
    BY_HAND = "it is paused by hand"
    STOPPING = "the instance stops"


NOT_PAUSED = frozenset({Reason.RESEEK, Reason.CLOSING})
"""Reasons for which the client is not paused.

After a seek, records fetched before it are not used. A partition that is being given up is
unassigned by the client itself when the rebalance callback returns.
"""


class Holds:
    """Partitions that are held back, each with its reasons; only the owner thread uses it.

    ``whose`` identifies the holder when several (two subscriptions, for example) hold a partition
    for the same reason. The reason ends when all of them have let go. ``version`` changes with
    every change.
    """

    def __init__(self) -> None:
        self.version = 0
        # These reasons hold back every partition, with any assignment.
        self.everywhere: set[Reason] = set()
        self._by_reason: dict[Reason, dict[TopicPartition, set[str]]] = {
            each: {} for each in Reason
        }
        self._pausing = [self._by_reason[each] for each in Reason if each not in NOT_PAUSED]

    # --- changes ---

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
        """End this hold; partitions that were not held back are left as they are."""
        back = self._by_reason[reason]
        for partition in list(partitions):
            who = back.get(partition, set())
            who.discard(whose)
            if not who and back.pop(partition, None) is not None:
                self.version += 1

    def only(self, reason: Reason, partitions: AbstractSet[TopicPartition]) -> None:
        """Hold back exactly these partitions for the reason."""
        self.let_go(reason, self.held_back(reason) - partitions)
        self.hold_back(reason, partitions)

    def hold_all_back(self, reason: Reason) -> None:
        """Hold every partition back, including those assigned later."""
        if reason not in self.everywhere:
            self.everywhere.add(reason)
            self.version += 1

    def let_go_all(self, reason: Reason) -> None:
        """End a hold set by :meth:`hold_all_back`."""
        if reason in self.everywhere:
            self.everywhere.discard(reason)
            self.version += 1

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop every reason of partitions that are no longer assigned."""
        for partition in partitions:
            for back in self._by_reason.values():
                if back.pop(partition, None) is not None:
                    self.version += 1

    # --- queries ---

    def held_back(self, reason: Reason) -> AbstractSet[TopicPartition]:
        """Return the partitions held back individually for the reason, as a live view."""
        return self._by_reason[reason].keys()

    def assigned(self, started: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions of this member: those that have started, and those yet to start."""
        return {*started, *self._by_reason[Reason.UNSTARTED]}

    def held_back_by(self, reason: Reason, whose: str) -> list[TopicPartition]:
        """Return the partitions that this holder holds back for the reason."""
        return [each for each, who in self._by_reason[reason].items() if whose in who]

    def reasons(self, partition: TopicPartition) -> tuple[Reason, ...]:
        """Return every reason for which nothing is fetched from the partition."""
        return tuple(
            reason
            for reason, back in self._by_reason.items()
            if partition in back or reason in self.everywhere
        )

    def paused(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return those of the partitions that the client must not fetch from."""
        if self.everywhere:
            return set(partitions)
        return {each for each in partitions if any(each in back for back in self._pausing)}
