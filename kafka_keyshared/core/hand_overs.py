"""Which slots wait for the state of their keys: what workers were asked for and still have."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from kafka_keyshared.core.routing.slots import Run, Slots
from kafka_keyshared.core.workers import Worker


@dataclass(frozen=True, slots=True)
class HandOver:
    """Slots whose state a worker was asked for, and the worker that is to have it."""

    worker: int
    target: int
    slots: Slots


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of slots, as their worker has released it."""

    slots: Slots
    state: object


class HandOvers:
    """``out`` is under way, by number; ``waiting`` is to be asked for, by the worker that has it;
    ``behind`` is to be asked for once the lane has drained that all of these slots are in;
    ``back`` is the state of slots that have a worker again.

    All of these slots are shut. When which of them is asked for, :mod:`.hand_over` decides.

    ``kept`` is the state of slots that are no worker's just now.
    """

    def __init__(self) -> None:
        self.out: dict[int, HandOver] = {}
        self.waiting: dict[int, list[Run]] = {}
        self.behind: dict[int, list[Run]] = {}
        self.back: list[Kept] = []
        self.kept: list[Kept] = []
        self._numbers = itertools.count()

    def begin(self, hand_over: HandOver) -> int:
        """Note that a worker is asked; return the number that its answer will have."""
        number = next(self._numbers)
        self.out[number] = hand_over
        return number

    def wait(self, worker: int, runs: Iterable[Run]) -> None:
        """Note that a worker is to be asked for these, with those that were behind them."""
        self.waiting.setdefault(worker, []).extend(chain(runs, self.behind.pop(worker, ())))

    def slots(self) -> Slots:
        """Return the slots that are shut until their state has come."""
        shut: list[HandOver | Kept] = [*self.out.values(), *self.back]
        later = chain(self.waiting.values(), self.behind.values())
        return Slots(chain(*(each.slots.runs for each in shut), *later))

    def asked(self, worker: Worker) -> bool:
        """Say whether a worker has yet to release something."""
        return (
            worker.id in self.waiting
            or worker.id in self.behind
            or any(each.worker == worker.id for each in self.out.values())
        )
