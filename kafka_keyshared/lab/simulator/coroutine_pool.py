"""The package's own coroutine pool, on a loop in simulated time.

Many records run at once and end in any order. Recalled records come back when the loop gets to
them. Only the handlers and their loop are simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Adopt, Recall, StartWorker, TimeOut
from kafka_keyshared.core.contract.events import Recalled, Report
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.coroutines.task_frames import unmade
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.lab.simulator.handlers import Ending, Handlers
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.keys import key_by
from kafka_keyshared.lab.simulator.member_events import ReleaseFailed, WorkerJoined
from kafka_keyshared.lab.simulator.pool import PoolHabits, WorkerObservation, outcome_of
from kafka_keyshared.lab.simulator.pool_probe import Place, PoolProbe
from kafka_keyshared.lab.simulator.states import States
from kafka_keyshared.lab.simulator.virtual_loop import SimHost
from kafka_keyshared.model import DeadLetter, Drop, Record, Retry

HEEDS = 0.7
"""The share of cancelled handlers that end."""


class SimulatedError(Exception):
    """Raised by a handler."""


@dataclass(frozen=True)
class SimSpec(WorkerSpec):
    """Specification of a worker that knows its own place, even as a copy of another one's."""

    of: SimTasks | None = None

    def __post_init__(self) -> None:
        if self.of is not None:
            make = partial(self.of.made, (self.subscription, self.index))
            object.__setattr__(self, "make", make)


class SimTasks(TaskPool):
    """The workers of one process."""

    leaves = False
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
        clock: Clock,
    ) -> None:
        self._member, self._process, self._history = site
        self._handlers = handlers
        self._chance = chance
        self._habits = habits
        self._telling = PoolProbe(site, post)
        self._loops = 0  # how many there have been
        self._gone: set[Place] = set()
        self.replaceable = True
        """Not used: a loop can always be started."""
        settings = [sub.settings for sub in core.subscriptions.values()]
        self._settings = {each.name: each for each in settings}
        self._states = States(site, settings)
        self._virtual = SimHost(
            self._process,
            lambda: chance.expovariate(1 / habits.wakes),
            lambda: chance.random() < 0.2,
        )
        specs: list[WorkerSpec] = [
            SimSpec(name, worker.id, worker.name, lambda: Made(unmade), of=self)
            for name, sub in core.subscriptions.items()
            for worker in sub.workers.values()
        ]
        mailbox: Any = SimpleNamespace(put=self._tell_owner)
        make = partial(TaskWorker, told_within=0.0)  # ended records are reported in the next turn
        host = self._virtual
        super().__init__(specs, mailbox, clock, limit=habits.at_once, host=host, make=make)

    def made(self, place: Place) -> Made:
        """Return the handler of a worker, with its functions to release and adopt state."""
        return Made(
            partial(self._handle, place),
            None,
            partial(self._release, place),
            partial(self._states.adopt, *place),
        )

    # --- the port, in addition to the pool ---

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        self._telling.handed_over(slice_)
        super().submit(slice_)

    def recall(self, recall: Recall) -> None:
        """Make the worker give back its unstarted records."""
        self._telling.recalling((recall.subscription, recall.worker))
        super().recall(recall)

    def time_out(self, past: TimeOut) -> None:
        """Cancel these records."""
        self._telling.recalling((past.subscription, past.worker))
        super().time_out(past)

    def adopt(self, adopt: Adopt) -> None:
        """Make the worker adopt the state of slots."""
        self._states.sent(adopt.subscription, adopt.worker, adopt.slots)
        super().adopt(adopt)

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""
        super().add(worker)
        place = worker.subscription, worker.worker
        self._history.tell(WorkerJoined(self._member, *place, worker.name))

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Give a worker up; with ``settle`` its unstarted records count as done."""
        if settle:
            self._telling.written_off((subscription, worker))
        self._telling.given_up((subscription, worker))
        super().abandon(subscription, worker, settle=settle)
        self._gone.add((subscription, worker))
        self._states.lost(subscription, worker, for_good=True)

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left."""
        super().end(subscription, worker)
        self._gone.add((subscription, worker))
        self._states.ended(subscription, worker)

    # --- actions on the timeline ---

    def seen(self) -> dict[Place, WorkerObservation]:
        """Return the workers as seen from outside."""
        found = {}
        for place in self.workers:
            runs = self._telling.runs.get(place)
            there = self._virtual.alive and place not in self._gone
            found[place] = WorkerObservation(
                there, runs[0] if runs else None, place in self._gone, False
            )
        return found

    def kill(self, subscription: str, worker: int) -> None:
        """End the loop and every record on it: a worker never dies alone."""
        del subscription, worker
        if self.ended or not self._virtual.alive:
            return
        self._loops += 1
        self._virtual.die()
        for place, runs in self._telling.runs.items():
            for record in list(runs):
                self._telling.comes_out(place, record, "died")
        for place in self.workers:
            if place not in self._gone:
                self._telling.died(place)
                self._states.lost(*place, for_good=False)

    def dismiss(self, subscription: str, worker: int) -> None:
        """Do nothing: no worker leaves by itself."""

    @property
    def ended(self) -> bool:
        """Whether the process has gone. Nothing of it is reported then."""
        return self._telling.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        if ended and not self.ended:
            self._telling.ended = True
            self._loops += 1
            for worker in self.workers.values():
                worker.close()
            self._virtual.bury()

    # --- the handlers ---

    async def _handle(self, place: Place, record: Record) -> None:
        """Run for as long as the seed says, and end as it says."""
        loops, partition, offset = self._loops, record.partition(), record.offset()
        self._telling.began(place, record)
        call = self._handlers.call(partition, offset)
        if call.seconds:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._process.timeline.after(call.seconds, partial(self._let_end, over))
            await self._until(over, place, record, loops)
        ending = self._handlers.ending(partition, offset, hung=call.hangs)
        self._comes_out(place, record, outcome_of(ending))
        if ending is not None:
            raise_as(ending)

    async def _until(
        self, over: asyncio.Future[None], place: Place, record: Record, loops: int
    ) -> None:
        """Wait for the end, unless the handler is cancelled before and heeds that."""
        while not over.done():
            try:
                await asyncio.shield(over)
            except asyncio.CancelledError:
                if loops != self._loops:
                    raise  # with its loop, which reports nothing
                if self._chance.random() < HEEDS:
                    self._comes_out(place, record, "failed")
                    raise

    def _let_end(self, over: asyncio.Future[None]) -> None:
        def end() -> None:
            if not over.done():
                over.set_result(None)

        self._virtual.tell(end)

    def _comes_out(self, place: Place, record: Record, outcome: str) -> None:
        self._telling.comes_out(place, record, outcome)
        if outcome == "done":
            key = key_by(self._settings[place[0]], record.key())
            self._states.ran(*place, key)

    def _release(self, place: Place, slots: Any) -> object:
        if self._chance.random() < self._habits.release_fails:
            self._history.tell(ReleaseFailed(self._member, *place))
            self._states.lost(*place, for_good=False)
            raise SimulatedError("on purpose")
        return self._states.release(*place, slots)

    def _tell_owner(self, report: Report | Recalled) -> None:
        self._telling.put(report)


def raise_as(ending: Ending) -> NoReturn:
    """Raise the exception of a handler with that outcome."""
    if isinstance(ending, Drop):
        raise ending
    disposition = Disposition.ERROR if ending is None else ending.disposition
    after = None if ending is None else ending.after
    if disposition is Disposition.RETRY:
        raise Retry(after)
    if disposition is Disposition.PUT_OFF:
        raise Retry(after, attempt=False)
    if disposition is Disposition.DEAD_LETTER:
        raise DeadLetter("as the seed has it")
    raise SimulatedError("as the seed has it")
