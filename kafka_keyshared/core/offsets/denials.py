"""Commits that the broker denies for a missing right, by partition.

A right may be missing for a moment only. A new access-control list takes time to reach every
broker, and an authorizer denies everything while it reloads. So a denied commit is sent again like
any other failed one. The denials kept here are only for people to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafka_keyshared.core.contract.events import Right
from kafka_keyshared.model import TopicPartition

AUTHORIZATION_TIMEOUT = 900.0
"""Default of ``authorization_timeout``, in seconds; an alert on failing commits comes before."""


class Denial(NamedTuple):
    """The right that a partition's commits lack, since when, and the broker's error."""

    right: Right
    since: float
    error: str


class Denials:
    """The partitions whose last commit was denied."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Denial] = {}

    def denied(
        self, right: Right, partitions: Sequence[TopicPartition], error: str, now: float
    ) -> None:
        """Note a denied commit of these partitions.

        A topic right is not noted for a commit of several topics, which does not show which one
        lacks it. Each partition is sent again alone.
        """
        if right is Right.TOPIC and len({each.topic for each in partitions}) > 1:
            return
        for partition in partitions:
            known = self.partitions.get(partition)
            since = known.since if known is not None and known.right is right else now
            self.partitions[partition] = Denial(right, since, error)

    def accepted(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the denials that an accepted commit disproves, also those of the group right."""
        self.over(partitions)
        of_group = [each for each, it in self.partitions.items() if it.right is Right.GROUP]
        self.over(of_group)

    def over(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that were accepted or are gone."""
        for partition in partitions:
            self.partitions.pop(partition, None)
