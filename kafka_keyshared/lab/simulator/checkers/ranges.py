"""Owners of slot ranges in each process, by its orders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set as AbstractSet

from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.declared import Declared
from kafka_keyshared.lab.simulator.checkers.records import Lane
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.range_history import RangeAssigned


class OrderedRanges:
    """Owners of slot ranges: as declared at first, then by the latest order."""

    def __init__(self, history: History, declared: dict[str, Declared]) -> None:
        self._declared = declared
        # Ranges assigned since each process began, the latest last.
        self._assigned: dict[int, dict[str, list[RangeAssigned]]] = defaultdict(
            lambda: defaultdict(list)
        )
        history.listen(RangeAssigned, self._range_assigned)
        history.listen(happened.Gone, self._gone)

    def takers(self, member: int, sub: str, lane: Lane) -> AbstractSet[str]:
        """Return the workers that take a record of this lane in that process."""
        if member in self._assigned and lane.slot is not None:
            for order in reversed(self._assigned[member][sub]):
                if order.first <= lane.slot % SLOTS <= order.last:
                    return set() if order.worker is None else {order.worker}
        return self._declared[sub].takers(lane.key)

    def _range_assigned(self, told: RangeAssigned) -> None:
        self._assigned[told.member][told.subscription].append(told)

    def _gone(self, told: happened.Gone) -> None:
        self._assigned.pop(told.member, None)
