"""Checker I6: a joining worker waits, as in Pulsar 3.x."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.records import Delivery, Stage, not_owed
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import (
    FiltersDeclared,
    WorkerJoined,
    WorkerLeft,
    WorkersResized,
)
from kafka_keyshared.model import TopicPartition

Place = tuple[int, str]
"""A member and one of its subscriptions."""


@dataclass(slots=True)
class JoinedWorker:
    """A worker that has joined and got no new record since.

    ``ends`` are the received ends by partition when it joined. ``older`` are the records that were
    unsettled then. ``may_go_on`` says that at some time no other worker was there.
    """

    since: float
    ends: Mapping[TopicPartition, int]
    older: list[Delivery]
    may_go_on: bool = False

    def left(self) -> list[Delivery]:
        """Return the older records that the worker still waits for."""
        self.older = [each for each in self.older if not not_owed(each)]
        return self.older

    def is_new(self, each: Delivery) -> bool:
        """Return whether a record arrived after the worker joined, and is no redelivery."""
        came = each.fate.offset < self.ends.get(each.assignment.partition, 0)
        return each.first > self.since and not came


class Joining(Checker):
    """I6, joining: where new workers wait, no joined worker gets a newer record too early.

    Too early means: while any record of the subscription is unsettled that its member received
    before the worker joined. The worker gets older records at once. This includes records that
    arrive again because their partition came back, and records that run again. A worker does not
    count as new if all others have gone, or may have.

    Two cases are not judged. With filters, a joining worker may be the only one that takes a record
    without a key. With one lease per key, a worker goes on with the next record of a lane at once.
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
        # Names of the workers that are certainly there, and the workers that may wait.
        self._there: dict[Place, dict[int, str]] = {}
        self._waits: dict[Place, dict[int, JoinedWorker]] = {}
        # Workers that may have gone on because no other was there, or still wait.
        self._unclear: dict[Place, set[int]] = {}
        # Places where a worker filters although none did at first.
        self._filtered: set[Place] = set()
        # Records of each member that ran and did not settle.
        self._tried: dict[int, set[Delivery]] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to workers that join and leave, and to the leases of joined workers."""
        if not any(each.new_workers_wait for each in self.settings.values()):
            return {}
        return {
            happened.Joined: self._begins,
            FiltersDeclared: self._filters_declared,
            WorkerJoined: self._joined,
            WorkerLeft: self._left,
            happened.WorkerDied: self._left,
            WorkersResized: self._resized,
            happened.HandedOver: self._handed_over,
            happened.HandlerEnded: self._ended,
            happened.Gone: self._gone,
        }

    def _begins(self, told: happened.Joined) -> None:
        for name, settings in self.settings.items():
            if settings.new_workers_wait:
                place = told.member, name
                self._there[place] = dict(enumerate(settings.workers))
                self._waits[place] = {}
                self._unclear[place] = set()

    def _joined(self, told: WorkerJoined) -> None:
        place = told.member, told.subscription
        if place in self._waits:
            member = self.books.members[told.member]
            older = list(member.unsettled(told.subscription))
            ends = {partition: each.end for partition, each in member.live.items()}
            self._waits[place][told.worker] = JoinedWorker(self.books.now, ends, older)
            self._there[place][told.worker] = told.name
            self._look_who_is_there(place)

    def _filters_declared(self, told: FiltersDeclared) -> None:
        self._filtered.add((told.member, told.subscription))

    def _left(self, told: WorkerLeft | happened.WorkerDied) -> None:
        place = told.member, told.subscription
        self._there.get(place, {}).pop(told.worker, None)
        if isinstance(told, WorkerLeft):  # a dead worker may be replaced, and waits on
            self._waits.get(place, {}).pop(told.worker, None)
        self._look_who_is_there(place)

    def _resized(self, told: WorkersResized) -> None:
        place = told.member, told.subscription
        there = self._there.get(place, {})
        self._there[place] = {each: name for each, name in there.items() if name in told.names}
        self._look_who_is_there(place)

    def _look_who_is_there(self, place: Place) -> None:
        """Release all waiting workers if every worker that is there waits."""
        there, waits = self._there.get(place, {}), self._waits.get(place, {})
        if not there.keys() <= waits.keys() | self._unclear.get(place, set()):
            return
        if all(waits[worker].left() for worker in there if worker in waits):
            for each in waits.values():
                each.may_go_on = True

    def _handed_over(self, told: happened.HandedOver) -> None:
        waits = self._waits.get((told.member, told.subscription), {})
        waiting = waits.get(told.worker)
        if waiting is None:
            return
        left = waiting.left()
        tried = self._tried.get(told.member, ())
        settings = self.settings[told.subscription]
        judged = [] if settings.one_in_flight_per_key else self.books.deliveries
        filtered = settings.routing.filters or (told.member, told.subscription) in self._filtered
        new = [
            each
            for each in judged
            if each not in tried
            and waiting.is_new(each)
            and not (filtered and each.lane.slot is None)
        ]
        if new and left and not waiting.may_go_on:
            self.violated(
                told.member,
                f"{new[0]}, received at {new[0].first:.3f}, was given to worker {told.worker}, "
                f"which joined at {waiting.since:.3f}, while {left[0]} is not settled: "
                f"{left[0].stage.value}",
            )
        if new or not left:
            del waits[told.worker]
        if new and left:
            self._unclear[told.member, told.subscription].add(told.worker)

    def _ended(self, told: happened.HandlerEnded) -> None:
        each = self.books.delivery
        if each is not None and each.stage is not Stage.SETTLED:
            self._tried.setdefault(told.member, set()).add(each)

    def _gone(self, told: happened.Gone) -> None:
        self._tried.pop(told.member, None)
        for name in self.settings:
            self._there.pop((told.member, name), None)
            self._waits.pop((told.member, name), None)
            self._unclear.pop((told.member, name), None)
