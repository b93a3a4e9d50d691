"""Partitions paused by hand at each member, derived from its orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.records import MemberModel
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.pause_history import (
    PauseHeard,
    PauseOrdered,
    PauseRefused,
    PauseTaken,
)
from kafka_keyshared.model import TopicPartition


class PausedByHand:
    """Orders to pause or resume, the latest last.

    The last order that names a partition counts. ``lifted`` lists the partitions that a member
    resumes by the current order.
    """

    def __init__(self, history: History, members: Mapping[int, MemberModel]) -> None:
        self._members = members
        self._orders: dict[int, list[PauseOrdered]] = defaultdict(list)
        # Numbers of the orders that took effect.
        self._taken: set[int] = set()
        self._refused: dict[int, set[TopicPartition]] = defaultdict(set)
        self.lifted: list[TopicPartition] = []
        history.listen(PauseOrdered, self._ordered)
        history.listen(PauseTaken, self._taken_up)
        history.listen(PauseRefused, self._has_refused)
        history.listen(PauseHeard, self._heard)
        history.listen(happened.Gone, self._gone)

    def wanted(self, member: int, partition: TopicPartition) -> bool:
        """Return whether an order stops the member from fetching the partition."""
        last = self._last(member, partition)
        return last is not None and last.paused

    def holds(self, member: int, partition: TopicPartition) -> bool:
        """Return whether the pause took effect and the client did not refuse it."""
        last = self._last(member, partition)
        if last is None or not last.paused or last.number not in self._taken:
            return False
        return partition not in self._refused[member]

    def _last(self, member: int, partition: TopicPartition) -> PauseOrdered | None:
        orders = self._orders.get(member, ())
        return next((each for each in reversed(orders) if _names(each, partition)), None)

    def _ordered(self, told: PauseOrdered) -> None:
        live = self._members[told.member].live
        before = [each for each in live if self.holds(told.member, each)]
        if told.topics is None and told.partitions is None:
            self._orders[told.member].clear()
        self._orders[told.member].append(told)
        self.lifted = [each for each in before if not self.wanted(told.member, each)]

    def _taken_up(self, told: PauseTaken) -> None:
        self._taken.add(told.number)

    def _has_refused(self, told: PauseRefused) -> None:
        self._refused[told.member].update(told.partitions)

    def _heard(self, told: PauseHeard) -> None:
        self._refused[told.member].difference_update(told.partitions)

    def _gone(self, told: happened.Gone) -> None:
        self._orders.pop(told.member, None)
        self._refused.pop(told.member, None)


def _names(order: PauseOrdered, partition: TopicPartition) -> bool:
    if order.topics is None and order.partitions is None:
        return True
    return partition.topic in (order.topics or ()) or partition in (order.partitions or ())
