"""Which commit the client's answer is for: it names the offsets, and no request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.core.commands import Commit
from kafka_keyshared.model import TopicPartition


def commit_of(partitions: Sequence[ClientPartition], in_flight: Iterable[Commit]) -> Commit | None:
    """Return the commit whose answer names these, the oldest where several cannot be told apart.

    The client answers one that it had to repeat behind a later one, and that may have the same
    positions with another set.
    """
    told = [(TopicPartition(each.topic, each.partition), each) for each in partitions]
    first: Commit | None = None
    for commit in in_flight:
        entries = commit.entries
        if len(entries) != len(told) or any(
            each not in entries or entries[each].position != answer.offset for each, answer in told
        ):
            continue
        if all(entries[each].metadata == (answer.metadata or "") for each, answer in told):
            return commit
        first = first or commit
    return first
