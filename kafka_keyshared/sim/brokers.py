"""The simulated brokers, as clients and the coordinator of a group see them.

A cluster has a group, commits, rights and clients. Each of them asks the cluster for more than it
is itself; these protocols say for what, and stand below all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.sim import link
from kafka_keyshared.sim.chance import Chance
from kafka_keyshared.sim.faults import Faults, GroupSettings
from kafka_keyshared.sim.history import History
from kafka_keyshared.sim.logs import Log


class StoredCommits(Protocol):
    """What is stored for the group."""

    stored: dict[TopicPartition, CommittedOffset]


class GrantedRights(Protocol):
    """What brokers refuse: ``group`` says that it is everything of the group."""

    group: bool
    commits: dict[str, None]

    def may_read(self, topic: str) -> bool:
        """Say whether a topic may be fetched from."""


class Brokers(link.Brokers, Protocol):
    """Topics with their logs, and what is common to all clients."""

    chance: Chance
    history: History
    settings: GroupSettings
    faults: Faults
    topics: dict[str, list[Log]]
    leaders_away: dict[TopicPartition, None]
    metadata_max: int

    @property
    def rights(self) -> GrantedRights:
        """What is refused now."""

    @property
    def commits(self) -> StoredCommits:
        """What is stored for the group."""

    def log(self, partition: TopicPartition) -> Log:
        """Return the log of a partition."""

    def topic_id(self, topic: str) -> str:
        """Return which of the topics of that name there is."""

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return the partitions of these topics."""

    def next_assignment(self) -> int:
        """Return a number that no assignment of any member has had."""
