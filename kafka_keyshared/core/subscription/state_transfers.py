"""Book of slots that wait for the state of their keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from kafka_keyshared.core.routing.slots import Run, Slots
from kafka_keyshared.core.workers.worker import Worker


@dataclass(frozen=True, slots=True)
class HandOver:
    """Slots whose state was requested from ``worker``, and the ``target`` worker that adopts it."""

    worker: int
    target: int
    slots: Slots


@dataclass(frozen=True, slots=True)
class ReleasedState:
    """The state of slots, as their worker released it."""

    slots: Slots
    state: object


class HandOvers:
    """Hand-overs by progress; their slots are closed, except for those in ``kept``.

    ``out`` has the releases that were requested, by number. ``waiting`` has the slots whose release
    is due, by the worker that has the state. ``behind`` has slots whose release becomes due when
    the one lane that contains them has drained. ``back`` is the state of slots that have a worker
    again. ``kept`` is the state of slots that no worker owns now.

    :mod:`kafka_keyshared.core.worker_changes.state_transfer` decides when a release is requested.
    """

    def __init__(self) -> None:
        self.out: dict[int, HandOver] = {}
        self.waiting: dict[int, list[Run]] = {}
        self.behind: dict[int, list[Run]] = {}
        self.back: list[ReleasedState] = []
        self.kept: list[ReleasedState] = []
        self._numbers = itertools.count()

    def begin(self, hand_over: HandOver) -> int:
        """Note that a release is requested; return the number that the answer will carry."""
        number = next(self._numbers)
        self.out[number] = hand_over
        return number

    def wait(self, worker: int, runs: Iterable[Run]) -> None:
        """Note that these slots, and those in ``behind``, are to be requested from a worker."""
        self.waiting.setdefault(worker, []).extend(chain(runs, self.behind.pop(worker, ())))

    def slots(self) -> Slots:
        """Return the slots that are closed until their state has arrived."""
        shut: list[HandOver | ReleasedState] = [*self.out.values(), *self.back]
        later = chain(self.waiting.values(), self.behind.values())
        return Slots(chain(*(each.slots.runs for each in shut), *later))

    def asked(self, worker: Worker) -> bool:
        """Return whether a worker has state yet to release."""
        return (
            worker.id in self.waiting
            or worker.id in self.behind
            or any(each.worker == worker.id for each in self.out.values())
        )
