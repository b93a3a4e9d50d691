"""Assignment of partitions, as a group leader or a coordinator computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.model import TopicPartition

Shares = dict[int, list[TopicPartition]]


def ranges(seats: Sequence[int], partitions: Sequence[TopicPartition]) -> Shares:
    """Assign each seat, in this order, a run of partitions. The first ones get one more."""
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
    """Assign evenly, and leave each seat its previous partitions as far as that allows."""
    each, more = divmod(len(partitions), len(seats))
    left = dict.fromkeys(partitions)
    shares: Shares = {seat: [] for seat in seats}
    # The seat with the most may keep one more than the others.
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
