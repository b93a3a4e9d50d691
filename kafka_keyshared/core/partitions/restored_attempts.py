"""Attempt counts restored from commit metadata.

When a partition is assigned, the notes in its commit metadata are kept here. So attempts go on
counting. A note stays until its record fails again or settles. Then the record's closed lane knows
more. The next commit writes both (:func:`notes`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka_keyshared.core.offsets.lane_section import LaneNotes, Tried
from kafka_keyshared.core.offsets.positions import PartitionState, Unsettled
from kafka_keyshared.core.subscription.subscription import Subscription
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
