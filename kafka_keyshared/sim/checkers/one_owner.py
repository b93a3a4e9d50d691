"""I6: a slot is at one worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.records import Delivery
from kafka_keyshared.sim.history import History, Listener
from kafka_keyshared.sim.range_history import RangeAssigned

Slots = dict[int, tuple[int, int]]
"""By slot the worker that has records of it, and how many."""


class OneOwner(Checker):
    """I6, one owner: the records of a slot that are in hand in a process are at one worker.

    In hand is what was handed over and has neither ended nor come back. Another worker gets none of
    the slot before the last of them; no record is in hand twice; what begins, ends or comes back
    was in hand there. A worker gets what was declared for it, and nothing else.
    """

    invariant = "I6 one owner"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._hands: dict[int, dict[str, Slots]] = defaultdict(lambda: defaultdict(dict))
        # What was assigned since a process began, the latest last.
        self._assigned: dict[tuple[int, str], list[RangeAssigned]] = defaultdict(list)

    def listeners(self) -> Mapping[type, Listener]:
        """It looks at all that a worker gets or gives back."""
        return {
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.Began: self._began,
            happened.Ended: self._ended,
            happened.Gone: self._gone,
            RangeAssigned: self._range_assigned,
        }

    def _handed_over(self, told: happened.HandedOver) -> None:
        worker = told.worker
        for each, other in self.books.doubled:
            self.violated(
                told.member, f"{each} was given to worker {worker}; worker {other} has it"
            )
        slots = self._hands[told.member][told.subscription]
        names = self.settings[told.subscription].workers
        for each in self.books.deliveries:
            # One that has joined since is no worker of the settings.
            if worker < len(names) and names[worker] not in self._takers(told, each):
                self.violated(
                    told.member, f"{each} was given to {names[worker]}, which does not take it"
                )
            slot = each.lane.slot
            if slot is None:
                continue
            holder, count = slots.get(slot, (worker, 0))
            if holder != worker:
                self.violated(
                    told.member,
                    f"{each} (slot {slot}) was given to worker {worker} while worker {holder} has "
                    f"{count} of that slot",
                )
            slots[slot] = worker, count + 1

    def _takers(self, told: happened.HandedOver, each: Delivery) -> AbstractSet[str]:
        """Return who takes a record in a process: as declared, or as was assigned there since."""
        slot = each.lane.slot
        for order in reversed(self._assigned.get((told.member, told.subscription), ())):
            if slot is not None and order.first <= slot % SLOTS <= order.last:
                return set() if order.worker is None else {order.worker}
        return self.books.declared[told.subscription].takers(each.lane.key)

    def _range_assigned(self, told: RangeAssigned) -> None:
        self._assigned[told.member, told.subscription].append(told)

    def _taken_back(self, told: happened.TakenBack) -> None:
        slots = self._hands[told.member][told.subscription]
        for each in self.books.deliveries:
            self._let_go(slots, each, told.member, told.worker)

    def _began(self, told: happened.Began) -> None:
        each = self.books.delivery
        if each is not None and each.worker != told.worker:
            has = "nobody" if each.worker is None else f"worker {each.worker}"
            self.violated(told.member, f"{each} began at worker {told.worker}; {has} has it")

    def _ended(self, told: happened.Ended) -> None:
        if self.books.delivery is not None:
            slots = self._hands[told.member][told.subscription]
            self._let_go(slots, self.books.delivery, told.member, told.worker)

    def _let_go(self, slots: Slots, each: Delivery, member: int, worker: int) -> None:
        slot = each.lane.slot
        if slot is None:
            return
        holder, count = slots.get(slot, (None, 0))
        if holder != worker:
            self.violated(member, f"{each} came from worker {worker}, which has none of its slot")
        elif count == 1:
            del slots[slot]
        else:
            slots[slot] = worker, count - 1

    def _gone(self, told: happened.Gone) -> None:
        self._hands.pop(told.member, None)
        for sub in self.settings:
            self._assigned.pop((told.member, sub), None)
