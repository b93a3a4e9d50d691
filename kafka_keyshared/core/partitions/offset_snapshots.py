"""Snapshots of the position, settled sets and attempt counts of every partition.

Attempt counts come from the commit metadata when a partition is assigned, so attempts go on
counting. A note stays until its record fails again or settles. Then the record's closed lane knows
more. The next commit writes both (:func:`notes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import TypeAlias

from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.offsets.commit import encode
from kafka_keyshared.core.offsets.commit_metadata import Encoded
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, RunningNote, Tried
from kafka_keyshared.core.offsets.positions import (
    Derived,
    OffsetSnapshot,
    PartitionState,
    Unsettled,
    derive,
    look,
)
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.core.partitions.careful_starts import CarefulStarts
from kafka_keyshared.core.partitions.offset_ceilings import Ceilings
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.telemetry.meters import Arrivals
from kafka_keyshared.model import TopicPartition


def notes(
    subs: Mapping[str, Subscription],
    held: Mapping[str, Unsettled],
    states: Mapping[TopicPartition, PartitionState],
) -> dict[TopicPartition, dict[str, LaneNotes]]:
    """Return the notes on lanes and records that the next commit has to write, if any.

    ``held`` has the held records of each subscription; a settled record needs no note.
    """
    found: dict[TopicPartition, dict[str, LaneNotes]] = {}
    for name, sub in subs.items():
        if not (sub.closed.lanes or sub.carried or sub.diverted):
            continue
        tried = _tried(sub, held.get(name, {}), states)
        for partition in states:
            diverted = sub.diverted.hashes(partition)
            if diverted or partition in tried:
                each = LaneNotes(diverted, tried.get(partition, {}))
                found.setdefault(partition, {})[name] = each
    return found


def _tried(
    sub: Subscription, held: Unsettled, states: Mapping[TopicPartition, PartitionState]
) -> dict[TopicPartition, dict[int, Tried]]:
    for partition, known in list(sub.carried.items()):
        end = states[partition].received_end or 0
        there: Collection[int] = held.get(partition, {})
        kept = {at: each for at, each in known.items() if at >= end or at in there}
        if kept:
            sub.carried[partition] = kept
        else:
            del sub.carried[partition]
    found = {partition: dict(known) for partition, known in sub.carried.items()}
    for closed in sub.closed.lanes.values():
        head, partition = closed.head, closed.partition
        if head is None or not (closed.failures or closed.archived):
            continue
        if (offset := head.offset()) in held.get(partition, {}):
            each = Tried(closed.failures, closed.archived)
            found.setdefault(partition, {})[offset] = each
    return found


RunningRecords: TypeAlias = dict[TopicPartition, dict[str, RunningNote]]
NameRunning: TypeAlias = Callable[[Mapping[str, Unsettled], Progress], RunningRecords]


class Snapshots:
    """Takes snapshots and keeps the last results for the status; it decides nothing."""

    def __init__(
        self,
        states: Mapping[TopicPartition, PartitionState],
        ceilings: Ceilings,
        arrivals: Arrivals,
        careful: CarefulStarts,
    ) -> None:
        self._states = states
        self._ceilings = ceilings
        self._careful = careful
        self._arrivals = arrivals
        self.derived: dict[TopicPartition, Derived] = {}
        self.derived_at = float("-inf")

    def take(
        self, progress: Progress, now: float, running: NameRunning | None = None
    ) -> dict[TopicPartition, OffsetSnapshot]:
        """Return position and settled sets of every partition that has received records.

        The result is empty if no subscription is at-least-once, because then no position is safe.
        ``running`` returns the running records among the held ones; without it none are named.
        """
        by_sub = self._ceilings.look(progress, now)
        noted = notes(self._ceilings.subs, by_sub, self._states)
        snapshots: dict[TopicPartition, OffsetSnapshot] = {}
        if not by_sub:
            return snapshots  # no subscription is at-least-once
        run = running(by_sub, progress) if running is not None else {}
        for partition, state in self._states.items():
            if state.received_end is None:
                continue
            held = {name: found.get(partition, {}) for name, found in by_sub.items()}
            ceilings = self._ceilings.of(partition)
            snapshot = derive(state.received_end, held, state.restored, ceilings)
            if partition in noted:
                snapshot = snapshot._replace(notes=noted[partition])
            if partition in run:
                snapshot = snapshot._replace(running=run[partition])
            snapshots[partition] = snapshot
            self.derived[partition] = look(snapshot, held, self.derived.get(partition), now)
            self._arrivals.settled(partition, snapshot.position)
        self.derived_at = now
        return snapshots

    def entries(
        self,
        progress: Progress,
        only: Collection[TopicPartition] | None,
        now: float,
        *,
        final: bool = True,
        limit: TextLimit | None = None,
    ) -> tuple[dict[TopicPartition, CommitEntry], dict[TopicPartition, Encoded]]:
        """Return the commit entries of these partitions, or of all, and their encoded sets.

        Unless ``final``, a commit also names the records that start after it. Without a ``limit``
        the entries are as long as the brokers accept.
        """

        def running(held: Mapping[str, Unsettled], progress: Progress) -> RunningRecords:
            if final:
                return self._careful.running(held, progress, final=True)
            return self._careful.name(held, progress, now)

        found = self.take(progress, now, running)
        found = {each: found[each] for each in found if only is None or each in only}
        return encode(found, self._states, limit or self._ceilings.text_limit)

    def keep(self, partitions: Container[TopicPartition]) -> None:
        """Drop the last results of all other partitions."""
        self.derived = {each: kept for each, kept in self.derived.items() if each in partitions}
