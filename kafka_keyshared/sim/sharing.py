"""Who gets which partitions: what the leader of a group, or its coordinator, works out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.model import TopicPartition

Shares = dict[int, list[TopicPartition]]


def ranges(seats: Sequence[int], partitions: Sequence[TopicPartition]) -> Shares:
    """Give each seat, in this order, a run of partitions; the first ones get one more."""
    each, more = divmod(len(partitions), len(seats))
    shares: Shares = {}
    at = 0
    for index, seat in enumerate(seats):
        size = each + (index < more)
        shares[seat] = list(partitions[at : at + size])
        at += size
    return shares


def sticky(
    seats: Sequence[int],
    partitions: Sequence[TopicPartition],
    before: Mapping[int, Sequence[TopicPartition]],
) -> Shares:
    """Share evenly, and leave to each seat what it had before as far as that allows."""
    each, more = divmod(len(partitions), len(seats))
    left = dict.fromkeys(partitions)
    shares: Shares = {seat: [] for seat in seats}
    # Who has most may keep one more than the others.
    for seat in sorted(seats, key=lambda seat: -len(before.get(seat, ()))):
        most = each + (more > 0)
        kept = [partition for partition in before.get(seat, ()) if partition in left][:most]
        more -= len(kept) > each
        shares[seat] = kept
        for partition in kept:
            del left[partition]
    for partition in left:
        least = min(seats, key=lambda seat: len(shares[seat]))
        shares[least].append(partition)
    return shares
