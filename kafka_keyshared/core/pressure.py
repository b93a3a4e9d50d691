"""Back-pressure on single partitions: commit metadata that fills up, lanes that stay blocked.

A partition whose settled set nears its budget starts only records below its highest settled one:
they make the set smaller, newer ones would make it larger. A partition whose blocked lanes fill a
quarter of the window is not read any further. Other partitions go on in both cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_keyshared.core.events import Command, Level, Notice, Pause, Resume
from kafka_keyshared.core.metadata import SET_BUDGET, Encoded
from kafka_keyshared.core.offsets import PartitionState, Snapshot
from kafka_keyshared.core.subscription import BLOCKED_SHARE, Subscription
from kafka_keyshared.model import TopicPartition

GATE_AT = 0.75
"""Share of the set's budget at which a partition is held back (as parallel-consumer does)."""

RELEASE_AT = 0.5


class Pressure:
    """Which partitions are not fetched from, and why."""

    def __init__(self) -> None:
        self.full: set[TopicPartition] = set()
        self.overfull: set[TopicPartition] = set()
        # The subscriptions that cannot read a key of theirs just now.
        self.unread: dict[TopicPartition, set[str]] = {}
        self._truncated: set[TopicPartition] = set()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that must not be fetched from."""
        return self.full | self.overfull | self.unread.keys()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned."""
        for kept in (self.full, self.overfull, self._truncated):
            kept.difference_update(partitions)
        for partition in partitions:
            self.unread.pop(partition, None)

    def stop_unread(self, sub: Subscription, partition: TopicPartition) -> list[Command]:
        """Stop fetching from a partition of which nothing can be routed."""
        self.unread.setdefault(partition, set()).add(sub.name)
        return [Pause([partition])]

    def read_on(self, sub: Subscription, partition: TopicPartition) -> list[Command]:
        """Fetch again from a partition whose keys this subscription can read again."""
        waiting = self.unread[partition]
        waiting.discard(sub.name)
        if waiting:
            return []
        del self.unread[partition]
        return [] if partition in self.paused() else [Resume([partition])]

    def note_encoded(self, partition: TopicPartition, encoded: Encoded) -> list[Notice]:
        """Say once when a settled set did not fit and only its lowest part was written."""
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
                "part is written, the rest would run again after a crash",
            )
        ]

    def gate(
        self,
        sub: Subscription,
        snapshots: Mapping[TopicPartition, Snapshot],
        sizes: Mapping[TopicPartition, int],
        states: Mapping[TopicPartition, PartitionState],
    ) -> list[Command]:
        """Hold back partitions near the budget, and let go those that are well below it.

        ``sizes`` are the characters that the partitions' sets have just taken. While a set that
        came with the assignment reaches beyond what was received, the records that would shrink it
        are still to be fetched, so its partition must not be held back yet.
        """
        gates = sub.restrictions.gates
        newly: list[TopicPartition] = []
        cleared: list[TopicPartition] = []
        for partition, snapshot in snapshots.items():
            runs = snapshot.runs.get(sub.name, ())
            size = sizes[partition]
            if partition not in gates:
                if runs and size >= SET_BUDGET * GATE_AT and not states[partition].restored:
                    gates[partition] = runs[-1][1] - 1
                    newly.append(partition)
            elif size < SET_BUDGET * RELEASE_AT:
                cleared.append(partition)
            else:
                self._raise_gate(sub, partition, snapshot)
        commands: list[Command] = []
        if newly:
            self.full.update(newly)
            commands += [Pause(newly), *sub.recall_all()]
            commands += [
                Notice(
                    Level.INFO,
                    f"{partition}: its commit metadata is three quarters full; until the record at "
                    f"{snapshots[partition].position} settles, only records before "
                    f"{gates[partition]} are started",
                )
                for partition in newly
            ]
        if cleared:
            commands += self._ungate(sub, cleared)
        return commands

    def _raise_gate(self, sub: Subscription, partition: TopicPartition, snapshot: Snapshot) -> None:
        """Follow the highest settled record, so that the position may always go on.

        What was running when the gate closed may have settled beyond it, and another subscription
        may be ahead: in both cases the lowest unsettled record could stand behind the gate.
        """
        ends = [runs[-1][1] for runs in snapshot.runs.values()]
        own = snapshot.runs.get(sub.name)
        highest = (own[-1][1] if own else max(ends, default=0)) - 1
        if highest > sub.restrictions.gates[partition]:
            sub.unpark(partition)
            sub.restrictions.gates[partition] = highest

    def _ungate(self, sub: Subscription, partitions: list[TopicPartition]) -> list[Command]:
        for partition in partitions:
            sub.unpark(partition)
        self.full.difference_update(partitions)
        resumed = [partition for partition in partitions if partition not in self.paused()]
        return [Resume(resumed)] if resumed else []

    def stop_overfull(self, sub: Subscription) -> list[Command]:
        """Stop fetching from partitions whose blocked lanes hold too much; name the key."""
        commands: list[Command] = []
        for partition, closed in sub.overfull.items():
            if partition in self.overfull:
                continue
            self.overfull.add(partition)
            commands.append(Pause([partition]))
            commands.append(
                Notice(
                    Level.ERROR,
                    f"{partition} is stopped: records behind blocked keys fill a quarter of the "
                    f"window; the key {closed.key!r:.80} was the last to grow. Other partitions "
                    "go on",
                )
            )
        return commands

    def release(self, sub: Subscription) -> list[Command]:
        """Fetch again from stopped partitions once blocked lanes hold little."""
        if not sub.overfull or sub.blocked_waiting * BLOCKED_SHARE * 2 >= sub.window.records_max:
            return []
        freed = [partition for partition in sub.overfull if partition in self.overfull]
        sub.overfull.clear()
        self.overfull.difference_update(freed)
        resumed = [partition for partition in freed if partition not in self.paused()]
        return [Resume(resumed)] if resumed else []
