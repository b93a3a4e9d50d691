"""Checker I6: a slot is at one worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Delivery, Lane
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import FiltersDeclared, WorkerJoined

Place = int | tuple[int, bytes | None] | Lane
"""A slot; with later filters, a slot and a key; where workers share all records, a lane."""

Slots = dict[Place, tuple[int, int]]
"""By place: the worker that has records of it, and how many."""


class OneOwner(Checker):
    """I6, one owner: the leased records of a slot in a process are at one worker.

    A record is leased until it has ended or come back. Another worker gets no record of the slot
    before the last of them. No record is leased twice. A record that begins, ends or comes back was
    leased there. A worker gets only the records that were declared for it. Once a filtering worker
    has joined, a slot may have several workers and each of its keys has one. Where workers share
    records, each lane has one worker.
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
        # The filters of workers that filter since, and the names of joined workers.
        self._filters: dict[tuple[int, str], dict[str, list[str]]] = defaultdict(dict)
        self._names: dict[tuple[int, str], dict[int, str]] = defaultdict(dict)

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to every lease that starts or ends."""
        return {
            happened.HandedOver: self._handed_over,
            happened.TakenBack: self._taken_back,
            happened.Began: self._began,
            happened.HandlerEnded: self._ended,
            happened.Gone: self._gone,
            FiltersDeclared: self._filters_declared,
            WorkerJoined: self._joined,
        }

    def _handed_over(self, told: happened.HandedOver) -> None:
        worker = told.worker
        for each, other in self.books.doubled:
            self.violated(
                told.member, f"{each} was given to worker {worker}; worker {other} has it"
            )
        slots = self._hands[told.member][told.subscription]
        names = self.settings[told.subscription].workers
        filtering = self._filters.get((told.member, told.subscription))
        name = self._names[told.member, told.subscription].get(worker, "")
        filters = filtering.get(name) if filtering else None
        for each in self.books.deliveries:
            # A worker that joined later is not in the settings.
            takers = self.books.ranges.takers(told.member, told.subscription, each.lane)
            if worker < len(names) and names[worker] not in takers:
                self.violated(
                    told.member, f"{each} was given to {names[worker]}, which does not take it"
                )
            slot = each.lane.slot
            if filters is not None and not _takes(filters, each):
                self.violated(told.member, f"{each} was given to {name}, which does not take it")
            if slot is None:
                continue
            place = self._place_of(told.member, each, slot)
            holder, count = slots.get(place, (worker, 0))
            if holder != worker:
                self.violated(
                    told.member,
                    f"{each} (slot {slot}) was given to worker {worker} while worker {holder} has "
                    f"{count} of that slot",
                )
            slots[place] = worker, count + 1

    def _joined(self, told: WorkerJoined) -> None:
        self._names[told.member, told.subscription][told.worker] = told.name

    def _filters_declared(self, told: FiltersDeclared) -> None:
        """Track places by key from now on, including the records that workers already have."""
        place = told.member, told.subscription
        if place not in self._filters:
            hands: Slots = {}
            for assignment in self.books.assignments.values():
                if assignment.member.number == told.member:
                    _gather(hands, assignment.deliveries[told.subscription].values())
            self._hands[told.member][told.subscription] = hands
        self._filters[place][told.name] = [str(each) for each in told.patterns]

    def _taken_back(self, told: happened.TakenBack) -> None:
        slots = self._hands[told.member][told.subscription]
        for each in self.books.deliveries:
            self._let_go(slots, each, told.member, told.worker)

    def _began(self, told: happened.Began) -> None:
        each = self.books.delivery
        if each is not None and each.worker != told.worker:
            has = "no worker" if each.worker is None else f"worker {each.worker}"
            self.violated(told.member, f"{each} began at worker {told.worker}; {has} has it")

    def _ended(self, told: happened.HandlerEnded) -> None:
        if self.books.delivery is not None:
            slots = self._hands[told.member][told.subscription]
            self._let_go(slots, self.books.delivery, told.member, told.worker)

    def _let_go(self, slots: Slots, each: Delivery, member: int, worker: int) -> None:
        if each.lane.slot is None:
            return
        slot = self._place_of(member, each, each.lane.slot)
        holder, count = slots.get(slot, (None, 0))
        if holder != worker:
            self.violated(member, f"{each} came from worker {worker}, which has none of its slot")
        elif count == 1:
            del slots[slot]
        else:
            slots[slot] = worker, count - 1

    def _place_of(self, member: int, each: Delivery, slot: int) -> Place:
        """Return the unit that one worker has: a slot, or a key or lane of it."""
        sub = each.fate.sub
        if self.settings[sub].shares:
            return each.lane
        return (slot, each.lane.key) if (member, sub) in self._filters else slot

    def _gone(self, told: happened.Gone) -> None:
        self._hands.pop(told.member, None)
        for sub in self.settings:
            self._filters.pop((told.member, sub), None)
            self._names.pop((told.member, sub), None)


def _takes(patterns: Sequence[str], each: Delivery) -> bool:
    """Return whether a filtering worker takes a record. It never takes one without a key."""
    if each.lane.slot is None:
        return False
    return any(fnmatchcase((each.lane.key or b"").decode(), pattern) for pattern in patterns)


def _gather(hands: Slots, deliveries: Iterable[Delivery]) -> None:
    """Count the records of workers by key."""
    for each in deliveries:
        if each.worker is not None and each.lane.slot is not None:
            place = each.lane.slot, each.lane.key
            hands[place] = each.worker, hands.get(place, (0, 0))[1] + 1
