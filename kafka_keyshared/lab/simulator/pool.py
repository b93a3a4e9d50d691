"""Simulated workers, serial as threads are, whose time passes on the timeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple, cast

from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import Recalled, Report, SetAside, SliceEnded
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.lab.simulator import history as was
from kafka_keyshared.lab.simulator.handlers import Ending, Handlers
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.keys import key_by
from kafka_keyshared.lab.simulator.member_events import ReleaseFailed, WorkerJoined, WorkerLeft
from kafka_keyshared.lab.simulator.records import SimRecord
from kafka_keyshared.lab.simulator.states import States
from kafka_keyshared.lab.simulator.stepped import PoolKind, SteppedPool, SteppedWorker
from kafka_keyshared.model import Drop, Record, TopicPartition

AT_ONCE_MOST = 20
"""Records that take no time and run in a row before others have a turn."""


@dataclass(frozen=True, slots=True)
class PoolHabits:
    """Behaviour of the workers of a pool.

    ``wakes`` is how many seconds a worker takes to begin. ``later`` is the share of recalls that a
    worker answers itself, when it gets to it. ``kind`` says how the pool ends records that run for
    too long. ``release_fails`` is the share of slots' states that cannot be released. With ``loop``
    the workers are the package's own coroutines (:mod:`.coroutine_pool`), with at most ``at_once``
    records each. With ``own`` they are its own processes or members, by their ``kind``
    (:mod:`.processes`, :mod:`.pulling`).
    """

    wakes: float = 0.0001
    later: float = 0.2
    kind: PoolKind = "thread"
    release_fails: float = 0.0
    loop: bool = False
    at_once: int = 20
    own: bool = False


class WorkerObservation(NamedTuple):
    """A worker as seen from outside: whether it takes records, and its running record.

    It also says whether the worker was given up or has left.
    """

    there: bool
    running: Record | None
    abandoned: bool
    gone: bool


class SimPool(SteppedPool):
    """The workers of one process."""

    leaves = True
    """Whether a worker may leave by itself."""

    def __init__(
        self,
        site: Site,
        core: Dispatcher,
        handlers: Handlers,
        chance: Random,
        habits: PoolHabits,
        *,
        post: Callable[[Report | Recalled], None],
    ) -> None:
        self._member, self._process, self._history = site
        self._handlers = handlers
        self._chance = chance
        self._habits = habits
        self._scheduled: set[tuple[str, int]] = set()
        self._slices: dict[int, Slice] = {}
        self._died_in: dict[tuple[str, int], Record] = {}
        self.ended = False
        """Whether the process has gone. Nothing of it is reported then."""
        super().__init__(core, self._tell)
        self._mail = post
        self.answers_later = lambda: chance.random() < habits.later
        self.hesitates = lambda: chance.random() < 0.5
        self.kind = habits.kind
        self.heeds = lambda: chance.random() < 0.7
        self.release_fails = self._release_fails
        self.on_start = self._began
        self.on_end = self._ended
        self._settings = {sub.name: sub.settings for sub in core.subscriptions.values()}
        self._states = states = States(site, self._settings.values())
        self.on_release, self.on_adopt = states.release, states.adopt

    # --- the port, in addition to a stepped pool ---

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker, and wake it."""
        super().submit(slice_)
        self._slices[slice_.id] = slice_
        records = [where_from(record) for record in slice_.records]
        self._history.tell(
            was.HandedOver(self._member, slice_.subscription, slice_.worker, records)
        )
        self._wake(slice_.subscription, slice_.worker)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        super().fence(fence)
        self._wake(fence.subscription, fence.worker)

    def recall(self, recall: Recall) -> Recalled | None:
        """Take back every unstarted record of the worker, or have the worker do it."""
        answer = super().recall(recall)
        if answer is not None:
            self._returned(answer)
        else:
            self._history.tell(was.Recalling(self._member, recall.subscription, recall.worker))
        self._wake(recall.subscription, recall.worker)
        return answer

    def release(self, release: Release) -> None:
        """Make the worker release the state of slots."""
        super().release(release)
        self._wake(release.subscription, release.worker)

    def adopt(self, adopt: Adopt) -> None:
        """Make the worker adopt the state of slots."""
        self._states.sent(adopt.subscription, adopt.worker, adopt.slots)
        super().adopt(adopt)
        self._wake(adopt.subscription, adopt.worker)

    def time_out(self, past: TimeOut) -> None:
        """Handle the record that a worker runs past its ack timeout, as this kind of pool does."""
        place = past.subscription, past.worker
        worker = self.workers[place]
        before = len(worker.apart)
        self._history.tell(was.Recalling(self._member, *place))
        super().time_out(past)
        for apart in worker.apart[before:]:
            where = where_from(apart.record)
            self._history.tell(was.WentOn(self._member, past.subscription, past.worker, *where))
        self._wake(*place)

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""
        super().add(worker)
        place = worker.subscription, worker.worker
        self._history.tell(WorkerJoined(self._member, *place, worker.name))

    def replace(self, subscription: str, worker: int) -> None:
        """Continue where the dead thread ended. The record that it ran counts as failed."""
        super().replace(subscription, worker)
        self._wake(subscription, worker)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Give a worker up; with ``settle`` its unstarted records count as done."""
        if settle:
            self._write_off(subscription, worker)
        super().abandon(subscription, worker, settle=settle)
        self._states.lost(subscription, worker, for_good=True)

    def _write_off(self, subscription: str, worker: int) -> None:
        left = [
            where_from(record)
            for given in self.workers[subscription, worker].given.values()
            for record in given.unstarted()
        ]
        if left:
            told = was.TakenBack(self._member, subscription, worker, left, written_off=True)
            self._history.tell(told)

    # --- actions on the timeline ---

    def seen(self) -> dict[tuple[str, int], WorkerObservation]:
        """Return the workers as seen from outside."""
        return {
            place: WorkerObservation(worker.there, worker.running, worker.abandoned, worker.gone)
            for place, worker in self.workers.items()
        }

    def kill(self, subscription: str, worker: int) -> None:
        """End a worker's thread in the middle of its work."""
        if self.ended:
            return
        found = self.workers[subscription, worker]
        found.die()
        if found.running is not None:
            self._died_in[subscription, worker] = found.running
            self._tell_end(subscription, worker, found.running, "died")
        self._history.tell(was.WorkerDied(self._member, subscription, worker))
        self._states.lost(subscription, worker, for_good=False)

    def dismiss(self, subscription: str, worker: int) -> None:
        """Make a worker leave for good once its record has ended."""
        if not self.ended:
            self.workers[subscription, worker].leave()
            self._states.left(subscription, worker)
            self._history.tell(WorkerLeft(self._member, subscription, worker))

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left."""
        super().end(subscription, worker)
        self._states.ended(subscription, worker)

    def _wake(self, subscription: str, worker: int) -> None:
        place = subscription, worker
        if place in self._scheduled:
            return
        self._scheduled.add(place)
        seconds = self._chance.expovariate(1 / self._habits.wakes)
        self._process.timeline.after(seconds, lambda: self._turn(place))

    def _turn(self, place: tuple[str, int]) -> None:
        self._scheduled.discard(place)
        worker = self.workers[place]
        for _ in range(AT_ONCE_MOST):
            if self.ended or not self._process.alive:
                return
            record = worker.start()
            if record is None:
                return
            call = self._handlers.call(record.partition(), record.offset())
            if call.seconds:
                ended = partial(self._finish, place, record, worker.run, hung=call.hangs)
                self._process.timeline.after(call.seconds, ended)
                return
            self._end(worker, record)
        self._wake(*place)

    def _finish(self, place: tuple[str, int], record: Record, run: int, *, hung: bool) -> None:
        worker = self.workers[place]
        if self.ended or not self._process.alive:
            return
        if any(each.run == run for each in worker.apart):
            worker.finish_apart(record, self._ending(record, hung=hung))
        # Another thread may have taken over, or that run may be over.
        elif worker.alive and worker.running is record and worker.run == run:
            self._end(worker, record, hung=hung)
            self._turn(place)

    def _end(self, worker: SteppedWorker, record: Record, *, hung: bool = False) -> None:
        worker.finish(self._ending(record, hung=hung))

    def _ending(self, record: Record, *, hung: bool) -> Ending:
        return self._handlers.ending(record.partition(), record.offset(), hung=hung)

    # --- reports ---

    def _tell(self, report: Report | Recalled) -> None:
        if isinstance(report, SetAside):
            slice_ = self._slices[report.slice]
            back = [where_from(slice_.records[report.index])]
            self._history.tell(
                was.TakenBack(self._member, slice_.subscription, slice_.worker, back)
            )
        elif isinstance(report, SliceEnded):
            del self._slices[report.slice]
        elif isinstance(report, Recalled):
            self._returned(report)
            self._history.tell(was.RecallAnswered(self._member, report.subscription, report.worker))
        self._mail(report)

    def _release_fails(self, subscription: str, worker: int) -> bool:
        fails = self._chance.random() < self._habits.release_fails
        if fails:
            self._history.tell(ReleaseFailed(self._member, subscription, worker))
            # The handler also loses its state of other slots: one that raises there starts without
            # any.
            self._states.lost(subscription, worker, for_good=False)
        return fails

    def _returned(self, answer: Recalled) -> None:
        given = self.workers[answer.subscription, answer.worker].given
        records = [
            where_from(given[id_].slice.records[index])
            for id_, indices in answer.slices
            for index in indices
        ]
        if records:
            self._history.tell(
                was.TakenBack(self._member, answer.subscription, answer.worker, records)
            )

    def _began(self, subscription: str, worker: int, record: Record) -> None:
        self._history.tell(was.Began(self._member, subscription, worker, *where_from(record)))

    def _ended(self, subscription: str, worker: int, record: Record, ending: Ending) -> None:
        place = subscription, worker
        if self._died_in.get(place) is record:
            del self._died_in[place]  # reported when it died; the record beside it is another one
        else:
            outcome = outcome_of(ending)
            self._tell_end(subscription, worker, record, outcome)
            if outcome == "done":
                key = key_by(self._settings[subscription], record.key())
                self._states.ran(subscription, worker, key)

    def _tell_end(self, subscription: str, worker: int, record: Record, outcome: str) -> None:
        self._history.tell(
            was.HandlerEnded(self._member, subscription, worker, *where_from(record), outcome)
        )


def outcome_of(ending: Ending) -> str:
    """Return the word for the outcome of a handler in the history."""
    if ending is None:
        return "done"
    if isinstance(ending, Drop):
        return "dropped"
    return "failed" if ending.disposition is Disposition.ERROR else ending.disposition.value


def where_from(record: Record) -> tuple[TopicPartition, int, int]:
    """Return where the record is from, even if its handler has changed it."""
    return cast("SimRecord", record).came
