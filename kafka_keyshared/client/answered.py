"""Which commit the client's answer is for: it names the offsets, and no request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.core.commands import Commit


def commit_of(partitions: Sequence[ClientPartition], in_flight: Iterable[Commit]) -> Commit | None:
    """Return the commit whose answer names these, the oldest where several cannot be told apart.

    The client answers one that it had to repeat behind a later one, and that may have the same
    positions with another set.
    """
    sent = {(each.topic, each.partition): each.offset for each in partitions}
    found = [
        commit
        for commit in in_flight
        if {tuple(each): entry.position for each, entry in commit.entries.items()} == sent
    ]
    if len(found) > 1:
        sets = {(each.topic, each.partition): each.metadata or "" for each in partitions}
        for commit in found:
            if {tuple(each): entry.metadata for each, entry in commit.entries.items()} == sets:
                return commit
    return found[0] if found else None
