"""I6, of the rule of Pulsar 3.x: who joins waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.records import Delivery, not_owed
from kafka_keyshared.sim.happenings import Resized, WorkerJoined, WorkerLeft
from kafka_keyshared.sim.history import History, Listener

Place = tuple[int, str]
"""A member, and a subscription there."""


class Joining(Checker):
    """I6, joining: where new workers wait, one gets nothing that came after it joined too early.

    Too early is while anything is unsettled in its subscription that its member had received
    before. What came before it joined it may get at once. Where everybody else has gone, or may
    have, it is no new one.
    """

    invariant = "I6 who joins waits"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        # The names of the workers that are certainly there; and what those who have joined wait
        # for, and since when.
        self._there: dict[Place, dict[int, str]] = {}
        self._waits: dict[Place, dict[int, tuple[float, list[Delivery]]]] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """It looks at who joins and goes, and at what those are given who have joined."""
        if not any(each.new_workers_wait for each in self.settings.values()):
            return {}
        return {
            happened.Joined: self._begins,
            WorkerJoined: self._joined,
            WorkerLeft: self._left,
            happened.WorkerDied: self._left,
            Resized: self._resized,
            happened.HandedOver: self._handed_over,
            happened.Gone: self._gone,
        }

    def _begins(self, told: happened.Joined) -> None:
        for name, settings in self.settings.items():
            if settings.new_workers_wait:
                place = told.member, name
                self._there[place] = dict(enumerate(settings.workers))
                self._waits[place] = {}

    def _joined(self, told: WorkerJoined) -> None:
        place = told.member, told.subscription
        if place in self._waits:
            older = list(self.books.members[told.member].unsettled(told.subscription))
            self._waits[place][told.worker] = self.books.now, older
            self._there[place][told.worker] = told.name

    def _left(self, told: WorkerLeft | happened.WorkerDied) -> None:
        self._there.get((told.member, told.subscription), {}).pop(told.worker, None)

    def _resized(self, told: Resized) -> None:
        place = told.member, told.subscription
        there = self._there.get(place, {})
        self._there[place] = {each: name for each, name in there.items() if name in told.names}

    def _handed_over(self, told: happened.HandedOver) -> None:
        place = told.member, told.subscription
        waits = self._waits.get(place, {})
        if told.worker not in waits:
            return
        since, older = waits[told.worker]
        left = [each for each in older if not not_owed(each)]
        if not left:
            del waits[told.worker]
            return
        waits[told.worker] = since, left
        if self._there[place].keys() <= waits.keys():
            return
        for each in self.books.deliveries:
            if each.first > since:
                self.violated(
                    told.member,
                    f"{each}, received at {each.first:.3f}, was given to worker {told.worker}, "
                    f"which joined at {since:.3f}, while {left[0]} is not settled: "
                    f"{left[0].stage.value}",
                )

    def _gone(self, told: happened.Gone) -> None:
        for name in self.settings:
            self._there.pop((told.member, name), None)
            self._waits.pop((told.member, name), None)
