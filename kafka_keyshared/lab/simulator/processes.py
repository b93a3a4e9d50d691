"""Process pool in a simulation: the package's own parent, and simulated children.

The threads of the parent wait for work or for an answer. Here they are generators that continue
when the timeline says so. In between they run the code of :class:`ProcessPool`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import Recalled, Report
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.coroutines.task_frames import unmade
from kafka_keyshared.executors.failed_lanes import Lanes, own_lanes
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.processes import worker_main
from kafka_keyshared.executors.processes.pool import ProcessPool
from kafka_keyshared.executors.processes.process_batches import ENDS, ProcessCell
from kafka_keyshared.executors.processes.remote_batch import SentSlice
from kafka_keyshared.executors.processes.worker_process import (
    ProcessEndedError,
    StoppedError,
    TimedOutError,
)
from kafka_keyshared.executors.thread_state import WorkerCell, WorkerSpec
from kafka_keyshared.executors.threads.thread_lifecycle import ThreadWork, WorkerThreads
from kafka_keyshared.lab.simulator.handlers import Handlers
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.member_events import WorkerJoined
from kafka_keyshared.lab.simulator.pool import PoolHabits, WorkerObservation
from kafka_keyshared.lab.simulator.pool_probe import Place, PoolProbe
from kafka_keyshared.lab.simulator.states import States
from kafka_keyshared.lab.simulator.virtual_process import (
    ParentsEnd,
    SimThread,
    VirtualProcess,
    Within,
)
from kafka_keyshared.lab.simulator.wakeups import Turns

STARTS_WITHIN = 0.3
"""Most seconds that it takes to start a process in place of a dead one."""

NOT_MADE = 0.2
"""The share of those in which the handler cannot be made; never three in a row."""

Life: TypeAlias = Generator[None, None, None]
"""A worker's thread. It waits where it yields."""


def nothing() -> Made:
    """Stand for the function that makes the handler. Its process is simulated."""
    return Made(unmade)


class SimThreads(WorkerThreads[WorkerCell]):
    """The threads of a simulated pool. ``begin`` starts one."""

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        work: ThreadWork[WorkerCell],
        clock: Clock,
        *,
        begin: Callable[[WorkerCell], None],
    ) -> None:
        super().__init__(specs, work, clock)
        self._begin = begin

    def start_worker(self, cell: WorkerCell) -> None:
        """Start a simulated thread for a worker."""
        self._begin(cell)


class SimProcesses(ProcessPool):
    """The workers of one process, and their processes."""

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
        self._chance = chance
        self._habits = habits
        self.replaceable = True
        """Whether a process can be started in place of one that has ended."""
        self._started = False
        self._lives: dict[Place, Life] = {}
        self._gone: set[Place] = set()
        settings = [sub.settings for sub in core.subscriptions.values()]
        self._states = States(site, settings)
        self._telling = PoolProbe(site, post)
        by_name = {each.name: each for each in settings}
        self._turns = Turns(self._process, self._telling, chance, habits, self._turn)
        told = self._telling, self._states, by_name, chance, habits.release_fails
        self._within = Within(site, handlers, *told, self._turns.soon)
        specs = [
            WorkerSpec(name, worker.id, worker.name, nothing)
            for name, sub in core.subscriptions.items()
            for worker in sub.workers.values()
        ]
        mailbox: Any = SimpleNamespace(put=self._tell_owner)
        super().__init__(specs, mailbox, clock, threads=partial(SimThreads, begin=self._begin))

    # --- the port, in addition to the pool ---

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start the workers at once."""
        super().start(lanes)
        self._started = True

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        self._telling.handed_over(slice_)
        super().submit(slice_)
        self._turns.wake((slice_.subscription, slice_.worker))

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        super().fence(fence)
        self._turns.wake((fence.subscription, fence.worker))

    def recall(self, recall: Recall) -> Recalled:
        """Take back the records that the worker has not started."""
        answer = super().recall(recall)
        self._telling.taken_back(answer)
        return answer

    def time_out(self, past: TimeOut) -> None:
        """Kill the process that runs the record, and start another one."""
        place = past.subscription, past.worker
        self._telling.recalling(place)
        super().time_out(past)
        self._turns.wake(place)

    def release(self, release: Release) -> None:
        """Make the worker release the state of slots."""
        super().release(release)
        self._turns.wake((release.subscription, release.worker))

    def adopt(self, adopt: Adopt) -> None:
        """Make the worker adopt the state of slots."""
        self._states.sent(adopt.subscription, adopt.worker, adopt.slots)
        super().adopt(adopt)
        self._turns.wake((adopt.subscription, adopt.worker))

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""
        super().add(worker)
        told = WorkerJoined(self._member, worker.subscription, worker.worker, worker.name)
        self._history.tell(told)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Give a worker up; with ``settle`` its unstarted records count as done."""
        place = subscription, worker
        if settle:
            self._telling.written_off(place)
        self._telling.given_up(place)
        super().abandon(subscription, worker, settle=settle)
        self._gone.add(place)
        self._states.lost(*place, for_good=True)

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left."""
        super().end(subscription, worker)
        self._gone.add((subscription, worker))
        self._states.ended(subscription, worker)
        self._turns.wake((subscription, worker))

    def send_off(self, cell: WorkerCell) -> None:
        """Take back unstarted records, and end the thread after the started ones."""
        super().send_off(cell)
        self._turns.wake(_place(cell))

    def carry_out(self, cell: WorkerCell, made: Made, item: Fence | Release | Adopt) -> bool:
        """Handle an item other than a slice. A dead process loses state to release or adopt."""
        goes_on = super().carry_out(cell, made, item)
        if not isinstance(item, Fence) and not _end(cell).lives():
            self._states.lost(*_place(cell), for_good=False)
        return goes_on

    # --- actions on the timeline ---

    def dismiss(self, subscription: str, worker: int) -> None:
        """Do nothing: no worker leaves by itself."""

    @property
    def workers(self) -> dict[Place, WorkerCell]:
        """Return the existing workers."""
        return self.cells

    def seen(self) -> dict[Place, WorkerObservation]:
        """Return the workers as seen from outside."""
        found = {}
        for place, cell in self.cells.items():
            runs = self._telling.runs[place]
            gone = place in self._gone
            there = not gone and cell.lives() and _end(cell).lives()
            found[place] = WorkerObservation(there, runs[0] if runs else None, gone, gone=False)
        return found

    def kill(self, subscription: str, worker: int) -> None:
        """Kill the process of a worker in the middle of its work."""
        there = _end(self.cells[subscription, worker]).there
        if not self.ended and there is not None:
            there.kill()

    @property
    def ended(self) -> bool:
        """Whether the process has gone. Nothing of it is reported then."""
        return self._telling.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        self._telling.ended = ended
        self._lives.clear()

    # --- the threads ---

    def make_cell(self, spec: WorkerSpec) -> WorkerCell:
        """Return the cell of a worker with a simulated process."""
        place = spec.subscription, spec.index
        return ProcessCell(spec, process=ParentsEnd(spec, partial(self._spawn, place)))

    def _begin(self, cell: WorkerCell) -> None:
        """Give a worker a thread, and with it a process."""
        place = _place(cell)
        cell.thread = thread = SimThread(self._process, cell.spec.thread)
        self._lives[place] = self._live_as(cast(ProcessCell, cell), thread)
        if self._started:
            seconds = self._chance.random() * STARTS_WITHIN
            self._process.timeline.after(seconds, partial(self._turns.take, place))
        else:
            self._turns.take(place)

    def _spawn(self, place: Place, end: ParentsEnd) -> VirtualProcess:
        """Start a process. A replacement may fail to start, or to make its handler."""
        said: worker_main.Ready | worker_main.Raised = worker_main.Ready(
            ("close", "release", "adopt")
        )
        if end.there is not None:
            if not self.replaceable:
                raise OSError("as the seed has it")
            if len(end.not_made) < 2 and self._chance.random() < NOT_MADE:
                said = worker_main.Raised("SimulatedError: as the seed has it", "")
        return VirtualProcess(
            self._within, place, end.board, said, partial(self._turns.wake, place)
        )

    def _turn(self, place: Place) -> None:
        """Let the worker's thread continue, if it can."""
        if (life := self._lives.get(place)) is not None:
            next(life, None)

    def _live_as(self, cell: ProcessCell, thread: SimThread) -> Life:
        """Act as the thread of a worker: make the handler, work until the end, and close it."""
        try:
            made = cell.make()
        except (OSError, KeySharedError) as error:
            cell.broken = error
            self._over(cell, thread)
            return
        finally:
            cell.made.set()
        cell.revived = True
        try:
            yield from self._work(cell, made)
        except (ProcessEndedError, TimedOutError):
            self._over(cell, thread)
            return
        except StoppedError:
            thread.lives = False
            return
        if made.close is not None:
            with suppress(KeySharedError):
                made.close()
        thread.lives = False

    def _over(self, cell: ProcessCell, thread: SimThread) -> None:
        thread.lives = False
        if self._started:
            self._telling.died(_place(cell))

    def _work(self, cell: ProcessCell, made: Made) -> Life:
        if cell.current is not None:
            yield from self._through(cell, cell.current)
        while True:
            while cell.inbox.empty():
                yield
            item = cell.inbox.get_nowait()
            if item is None:
                return
            if isinstance(item, Handover):
                yield from self._through(cell, item)
            else:
                self.carry_out(cell, made, item)

    def _through(self, cell: ProcessCell, handover: Handover) -> Life:
        """Run a slice, and report its end."""
        began, end = self.begin(cell, handover), _end(cell)
        batches = self.batches.exchange(cell, cast(SentSlice, handover))
        asked = next(batches, None)
        while asked is not None:
            try:
                cell.process.send(asked)
                while not end.readable():
                    yield
                ran = cell.process.ran()
            except ENDS as error:
                batches.throw(error)
                raise
            try:
                asked = batches.send(ran)
            except StopIteration:
                break
        self.through(cell, handover, began)

    def _tell_owner(self, report: Report | Recalled) -> None:
        self._telling.put(report)


def _place(cell: WorkerCell) -> Place:
    return cell.spec.subscription, cell.spec.index


def _end(cell: WorkerCell) -> ParentsEnd:
    return cast(ParentsEnd, cast(ProcessCell, cell).process)
