"""Checker I6 for state: it follows its key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOTS
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator import state_history as told_of
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.history import History, Listener


class StatePlace(NamedTuple):
    """Place of a slot's state: at a worker, or released and on its way.

    ``target`` is the worker that is to adopt it.
    """

    worker: int
    on_its_way: bool = False
    target: int | None = None

    def __str__(self) -> str:
        if not self.on_its_way:
            return f"at worker {self.worker}"
        if self.target is None:
            return f"on its way from worker {self.worker}"
        return f"on its way from worker {self.worker} to worker {self.target}"


class KeyedStateModel:
    """State of one subscription in a process: its place by slot, its counts by key."""

    def __init__(self, slot_of: Callable[[bytes], int]) -> None:
        self.slot_of = slot_of
        self.places: dict[int, StatePlace] = {}
        self.counts: dict[int, dict[bytes, int]] = defaultdict(dict)
        # Slots whose state was either lost with a worker or saved.
        self.unsure: set[int] = set()
        self.died: set[int] = set()


class KeyedState(Checker):
    """State follows its key: one worker has it, and no resize loses or doubles any.

    A record runs where the state of its slot is, and only after it has arrived. Each record raises
    the count of its key by one. State is lost with a worker that left or whose thread died. That is
    no fault. A worker that ends in order has no state left that other workers are to have.
    """

    invariant = "I6 one owner (state)"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._kept: dict[tuple[int, str], KeyedStateModel] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to state that handlers remember, release and adopt."""
        return {
            happened.Began: self._began,
            happened.Gone: self._gone,
            told_of.Remembered: self._remembered,
            told_of.StateReleased: self._released,
            told_of.StateSent: self._sent,
            told_of.StateAdopted: self._adopted,
            told_of.StateLost: self._lost,
            told_of.WorkerEnded: self._ended,
        }

    def _of(self, member: int, sub: str) -> KeyedStateModel:
        kept = self._kept.get((member, sub))
        if kept is None:
            slot_of = SLOT_FUNCTIONS[self.settings[sub].slot_function]
            kept = self._kept[member, sub] = KeyedStateModel(slot_of)
        return kept

    def _began(self, told: happened.Began) -> None:
        kept = self._kept.get((told.member, told.subscription))
        each = self.books.delivery
        if kept is None or each is None or each.lane.slot is None:
            return
        # Where everything is one lane, its keys are in many slots, and their state moves in parts.
        if self.settings[told.subscription].routing.mode == "exclusive":
            return
        slot = each.lane.slot % SLOTS
        place = kept.places.get(slot)
        if place is not None and place.on_its_way and {place.worker, place.target} & kept.died:
            self._unsure(kept, slot)  # it went with the worker, whose end is not reported yet
        elif place is not None and (place.on_its_way or place.worker != told.worker):
            self.violated(
                told.member,
                f"{each} began at worker {told.worker}; the state of its slot {slot} is {place}",
            )

    def _remembered(self, told: told_of.Remembered) -> None:
        kept = self._of(told.member, told.subscription)
        slot = kept.slot_of(told.key)
        place = kept.places.get(slot)
        here = StatePlace(told.worker)
        if place is not None and place != here:
            self.violated(
                told.member,
                f"worker {told.worker} remembers {told.key!r}; the state of its slot {slot} is "
                f"{place}",
            )
        counts = kept.counts[slot]
        expected = counts.get(told.key, 0) + 1
        if told.runs != expected and not (slot in kept.unsure and told.runs == 1):
            self.violated(
                told.member,
                f"worker {told.worker} has counted {told.runs} of {told.key!r}, and {expected} "
                "have run since its state began",
            )
        if slot in kept.unsure and told.runs == 1:
            counts.clear()
        kept.unsure.discard(slot)
        kept.places[slot] = here
        counts[told.key] = told.runs

    # --- handover ---

    def _released(self, told: told_of.StateReleased) -> None:
        kept = self._of(told.member, told.subscription)
        for slot in told.slots:
            place = kept.places.get(slot)
            if place is None:
                continue
            if place == StatePlace(told.worker):
                kept.places[slot] = StatePlace(told.worker, on_its_way=True)
            else:
                self.violated(
                    told.member,
                    f"worker {told.worker} gives up the state of slot {slot}, which is {place}",
                )

    def _sent(self, told: told_of.StateSent) -> None:
        kept = self._of(told.member, told.subscription)
        for slot in told.slots:
            place = kept.places.get(slot)
            if place is None:
                continue
            if not place.on_its_way or place.target is not None:
                self.violated(
                    told.member,
                    f"worker {told.worker} is to adopt the state of slot {slot}, which is {place}",
                )
            kept.places[slot] = place._replace(target=told.worker)

    def _adopted(self, told: told_of.StateAdopted) -> None:
        kept = self._of(told.member, told.subscription)
        for slot in told.slots:
            place = kept.places.get(slot)
            if place is None:
                continue
            if place.target != told.worker:
                self.violated(
                    told.member,
                    f"worker {told.worker} has adopted the state of slot {slot}, which is {place}",
                )
            kept.places[slot] = StatePlace(told.worker)

    # --- ends of workers ---

    def _lost(self, told: told_of.StateLost) -> None:
        kept = self._of(told.member, told.subscription)
        for slot, place in list(kept.places.items()):
            if not place.on_its_way:
                if place.worker == told.worker:
                    self._forget(kept, slot)
            elif told.for_good and told.worker in (place.worker, place.target):
                self._unsure(kept, slot)
        kept.died.add(told.worker)

    def _ended(self, told: told_of.WorkerEnded) -> None:
        kept = self._of(told.member, told.subscription)
        for slot, place in list(kept.places.items()):
            if place == StatePlace(told.worker):
                self.violated(
                    told.member,
                    f"worker {told.worker} has ended with the state of slot {slot}: "
                    f"{dict(kept.counts[slot])}",
                )
                self._forget(kept, slot)

    def _unsure(self, kept: KeyedStateModel, slot: int) -> None:
        del kept.places[slot]
        kept.unsure.add(slot)

    def _forget(self, kept: KeyedStateModel, slot: int) -> None:
        del kept.places[slot]
        kept.counts.pop(slot, None)
        kept.unsure.discard(slot)

    def _gone(self, told: happened.Gone) -> None:
        for sub in self.settings:
            self._kept.pop((told.member, sub), None)
