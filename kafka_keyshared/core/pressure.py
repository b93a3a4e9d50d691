"""Back-pressure on single partitions: which are not fetched from just now, and why.

Every hold has one reason and one subscription; a partition is fetched from again when the last of
its holds has gone. Other partitions go on all the while.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from kafka_keyshared.core.burst import Line
from kafka_keyshared.core.events import Command, Level, Notice, Pause, Resume
from kafka_keyshared.core.metadata import Encoded
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.model import TopicPartition

PARKED_SHARE = 8
"""Parked records of a partition may fill one part in this many of the window."""


class Reason(enum.Enum):
    """Why a partition is not fetched from."""

    SET_FULL = "its settled set has no room for more in the commit metadata"
    BLOCKED = "records behind its blocked keys fill too much of the window"
    UNREAD = "a key of it cannot be read yet"


class Pressure:
    """The holds on each partition."""

    def __init__(self) -> None:
        self.holds: dict[TopicPartition, set[tuple[Reason, str]]] = {}
        self._truncated: set[TopicPartition] = set()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that must not be fetched from."""
        return set(self.holds)

    def holding(self, reason: Reason, sub: Subscription) -> list[TopicPartition]:
        """Return the partitions that the subscription holds for this reason."""
        return [each for each, holds in self.holds.items() if (reason, sub.name) in holds]

    def hold(self, partition: TopicPartition, reason: Reason, sub: Subscription) -> list[Command]:
        """Stop fetching from a partition for one more reason."""
        holds = self.holds.setdefault(partition, set())
        first = not holds
        holds.add((reason, sub.name))
        return [Pause([partition])] if first else []

    def let_go(self, partition: TopicPartition, reason: Reason, sub: Subscription) -> list[Command]:
        """Fetch from a partition again, unless there is another reason not to."""
        holds = self.holds.get(partition)
        if holds is None:
            return []
        holds.discard((reason, sub.name))
        if holds:
            return []
        del self.holds[partition]
        return [Resume([partition])]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned."""
        self._truncated.difference_update(partitions)
        for partition in partitions:
            self.holds.pop(partition, None)

    # --- commit metadata ---

    def note_encoded(self, partition: TopicPartition, encoded: Encoded) -> list[Notice]:
        """Say once when a settled set did not fit and only its lowest part was written.

        It was written under a larger budget then, by another release or another configuration.
        """
        if not encoded.truncated:
            self._truncated.discard(partition)
            return []
        if partition in self._truncated:
            return []
        self._truncated.add(partition)
        return [
            Notice(
                Level.WARNING,
                f"{partition}: the settled set does not fit in the commit metadata; its lowest "
                "part is written, the rest would run again at the next start",
            )
        ]

    def weigh_parked(self, sub: Subscription, now: float) -> list[Command]:
        """Stop fetching where much is parked, and go on where little is left of it."""
        commands: list[Command] = []
        parking = sub.parking
        most = max(1, sub.window.records_max // PARKED_SHARE)
        held = self.holding(Reason.SET_FULL, sub)
        for partition in held:
            if len(parking.parked.get(partition, ())) * 2 < most:
                commands += self.let_go(partition, Reason.SET_FULL, sub)
        for partition, waiting in parking.parked.items():
            if len(waiting) < most or partition in held or partition in sub.closing:
                continue
            commands += self.hold(partition, Reason.SET_FULL, sub)
            text = (
                f"{partition}: its settled set has no room for more in the commit metadata; until "
                f"older records settle, only those before {parking.ceilings.get(partition)} start"
            )
            commands += sub.bursts.held_back.add(Line(text), now)
        return commands

    # --- blocked lanes ---

    def stop_overfull(self, sub: Subscription, assigned: int) -> list[Command]:
        """Stop fetching from partitions whose blocked lanes hold too much; name the key."""
        commands: list[Command] = []
        for partition, closed in sub.blocked.take_overfull(assigned).items():
            if (Reason.BLOCKED, sub.name) in self.holds.get(partition, ()):
                continue
            commands += self.hold(partition, Reason.BLOCKED, sub)
            commands.append(
                Notice(
                    Level.ERROR,
                    f"{partition} is stopped: records behind blocked keys fill a quarter of the "
                    f"window; the key {closed.key!r:.80} was the last to grow. Other partitions "
                    "go on",
                )
            )
        return commands

    def release(self, sub: Subscription, assigned: int) -> list[Command]:
        """Fetch again from stopped partitions once blocked lanes hold little."""
        commands: list[Command] = []
        for partition in self.holding(Reason.BLOCKED, sub):
            if sub.blocked.holds_little(partition, assigned):
                commands += self.let_go(partition, Reason.BLOCKED, sub)
        return commands
