"""Protocols of the simulated brokers, for clients and coordinators.

A cluster has a group, commits, rights and clients. Each of them needs more of the cluster than
itself. These protocols say which parts, and stand below all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.lab.simulator import connection
from kafka_keyshared.lab.simulator.fault_rates import FaultRates, GroupSettings
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.logs import SimulatedLog
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.model import TopicPartition


class StoredCommits(Protocol):
    """The commits stored for the group."""

    stored: dict[TopicPartition, CommittedOffset]


class GrantedRights(Protocol):
    """The rights that brokers refuse. ``group`` says that every request of the group is refused."""

    group: bool
    commits: dict[str, None]

    def may_read(self, topic: str) -> bool:
        """Return whether a topic may be fetched from."""


class Brokers(connection.LinkedBrokers, Protocol):
    """Topics with their logs, and the parts that all clients share."""

    chance: Chance
    history: History
    settings: GroupSettings
    faults: FaultRates
    topics: dict[str, list[SimulatedLog]]
    leaders_away: dict[TopicPartition, None]
    metadata_max: int

    @property
    def rights(self) -> GrantedRights:
        """The rights that are refused now."""

    @property
    def commits(self) -> StoredCommits:
        """The commits stored for the group."""

    def log(self, partition: TopicPartition) -> SimulatedLog:
        """Return the log of a partition."""

    def topic_id(self, topic: str) -> str:
        """Return the id of the current topic of that name."""

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return the partitions of these topics."""

    def next_assignment(self) -> int:
        """Return a number that no assignment of any member has had."""
