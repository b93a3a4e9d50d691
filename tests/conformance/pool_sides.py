"""Every kind of pool with one worker whose steps are the test's to choose, watched by the rules.

A *side* is a pool and whoever works in it: the thread and its handler, the fake's worker, or the
member that receives and settles. What happens at it, :class:`~.pool_rules.Rules` hear.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from unittest import mock

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Lapse,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import FencePassed, Recalled, Released, Report
from kafka_keyshared.core.contract.slices import Progress, Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.executors.batches.pool import BatchPool
from kafka_keyshared.executors.coroutines.asyncio_batch_worker import CallWorker
from kafka_keyshared.executors.coroutines.asyncio_pool import MakeWorker, TaskPool
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import DIED, PoolKind, SteppedPool
from kafka_keyshared.model import Drop, Record, partition_of
from tests.conformance.pool_rules import Fate, Rules
from tests.support.records import failure
from tests.support.slices import slice_of

WAIT = 30.0
WORKER = ("default", 0)


class Side(ABC):
    """A pool of one worker, which is stepped.

    ``serial``, ``in_order`` and ``by_key`` are those of :class:`~.pool_rules.Rules`; ``kind`` says
    what becomes of a record that runs past its time.
    """

    serial: ClassVar[bool] = True
    in_order: ClassVar[bool] = True
    by_key: ClassVar[bool] = True
    kind: ClassVar[PoolKind] = "thread"
    knows_where: ClassVar[bool] = False
    """Whether it can tell where in the user's program a record is."""
    mortal: ClassVar[bool] = False
    """Whether its worker can go without a word, in a record, and be replaced."""
    timed: ClassVar[bool] = True
    """Whether what runs past its time can be looked at while it runs."""
    pool: Any

    def __init__(self) -> None:
        self.rules = self.new_rules()
        self.refused: list[Record] = []
        """What was settled or failed too late, where whoever does so is told."""
        self.whose = WORKER
        self.is_lost = False
        self.workers = 1
        self.heeds = True
        """Whether a task that is cancelled ends."""
        self.adopted: list[tuple[list[int], Any]] = []
        """What the worker's handler was given to take over: slots, and their state."""
        self._cancelled: list[Record] = []
        self._posted = 0

    def new_rules(self) -> Rules:
        """Return what hears what happens from now on."""
        return Rules(serial=self.serial, in_order=self.in_order, by_key=self.by_key)

    # --- what the owner does ---

    def add(self, index: int) -> None:
        """Add a worker; from now on this is about that one."""
        self.workers += 1
        self.pool.add(StartWorker("default", index, f"worker-{index}"))
        self.whose = ("default", index)

    def submit(self, *records: Record) -> list[Slice]:
        """Give the worker records, each in a slice of its own."""
        slices = [slice_of(each, worker=self.whose[1]) for each in records]
        for each in slices:
            self.give(each)
        return slices

    def together(self, *records: Record) -> Slice:
        """Give the worker records in one slice."""
        slice_ = slice_of(*records, worker=self.whose[1])
        self.give(slice_)
        return slice_

    def give(self, slice_: Slice) -> None:
        """Give the worker a slice."""
        self.rules.given(slice_)
        self.pool.submit(slice_)

    def fence(self, *records: Record) -> None:
        """Put a fence for the lanes of these records behind what the worker has."""
        self.put(Fence(*self.whose, tuple(lane_of(each) for each in records)))

    def put(self, fence: Fence) -> None:
        """Put a fence behind what the worker has."""
        self.rules.fenced(fence)
        self.pool.fence(fence)

    def ask(self, only: Mapping[int, Sequence[int]] | None = None) -> Recalled | None:
        """Ask for what has not started; return the answer where it is given at once."""
        # What was posted before may stand in the mailbox when the answer comes at once.
        self.hear()
        recall = Recall(*self.whose, only)
        self.rules.recalling(recall)
        answer: Recalled | None = self.pool.recall(recall)
        if answer is not None:
            self.rules.answered(answer)
        return answer

    def answer(self) -> None:
        """Let the worker come to what it was asked."""
        assert not self.rules.asked, "it has not answered at once"

    def recall(self, only: Mapping[int, Sequence[int]] | None = None) -> dict[int, list[int]]:
        """Ask, and have the answer: what came back, without the slices of which nothing did."""
        answers = len(self.rules.answers)
        self.ask(only)
        self.answer()
        self.hear()
        (answer,) = self.rules.answers[answers:]
        return {id_: list(back) for id_, back in answer.slices if len(back)}

    def lapse(self, slices: Iterable[Slice]) -> None:
        """Say that leases are over."""
        of = list(slices)
        gone = frozenset(partition_of(record) for each in of for record in each.records)
        self.pool.lapse(Lapse(*self.whose, tuple(each.id for each in of), gone))

    def time_out(self, *records: Record) -> Fate:
        """Have the pool end these, which run or have; return what has to become of them."""
        self.hear()
        fate = self._fate(records)
        past = TimeOut(*self.whose, tuple(self.rules.name_of(each) for each in records))
        self.rules.timing_out(past, fate)
        self.pool.time_out(past)
        self.hear()
        return fate

    def _fate(self, records: Sequence[Record]) -> Fate:
        """Say what ``executors/port.py`` has a pool of this kind make of records past their
        time."""
        if self.kind == "instance":
            return Fate.WAITED_FOR
        if self.kind == "thread":
            # No more threads hang than there are workers.
            return Fate.BESIDE if len(self.rules.beside()) < self.workers else Fate.WAITED_FOR
        if self.kind == "task" and records[0] in self._cancelled:
            return Fate.BESIDE
        if self.kind == "task" and not self.heeds:
            self._cancelled += [each for each in records if each in self.rules.running()]
            return Fate.RUNS_ON
        return Fate.ENDS

    def evict(self, *, settle: bool) -> None:
        """Give up a worker that is lost, as the core does by either rule."""
        if not settle:
            self.recall()
        self.rules.abandoned(settle=settle)
        self.pool.abandon(*self.whose, settle=settle)
        self.hear()

    def release(self, *slots: int) -> None:
        """Ask the worker for the state of slots, behind all that it has."""
        self.pool.release(Release(*self.whose, sum(slots), slots))

    def adopt(self, state: object, *slots: int) -> None:
        """Give the worker the state of slots, before all that it gets from now on."""
        self.pool.adopt(Adopt(*self.whose, slots, state))

    def released(self) -> list[Released]:
        """Return what it has answered so far to those that ask for state."""
        self.hear()
        return [each for each in self.rules.posted if isinstance(each, Released)]

    def dismiss(self) -> None:
        """End a worker that has nothing left; the one before it is the one again."""
        self.pool.end(*self.whose)
        self.workers -= 1

    def progress(self) -> Progress:
        """Return how far the pool says that it has got."""
        found: Progress = self.pool.progress()
        return found

    def stop(self, timeout: float = 0.01) -> list[str]:
        """Stop the pool; return who still runs."""
        self.rules.stopped()
        found: list[str] = self.pool.stop(timeout)
        return found

    # --- what the worker does ---

    @abstractmethod
    def start(self) -> Any:
        """Let the worker go on until a record starts; None where nothing may start."""

    @abstractmethod
    def end(self, ending: Ending = None, record: Record | None = None) -> None:
        """End the record that runs; the one, where several do."""

    def end_beside(self, record: Record, ending: Ending = None, *, dies: bool = False) -> None:
        """End a stuck record beside which the worker goes on; or its thread in it."""
        raise AssertionError(f"nobody goes on beside {record}, nor {ending} or {dies}")

    def fail_to_replace(self) -> None:
        """Have the pool try to replace the worker, where nobody can be started."""
        raise AssertionError("this is for workers that the pool starts")

    @abstractmethod
    def lose(self) -> None:
        """Have the worker go for good: its thread ends in a record, or it leaves."""

    @abstractmethod
    def lost(self) -> list[tuple[str, int]]:
        """Return whom the pool names as gone."""

    @abstractmethod
    def hear(self) -> None:
        """Have the rules hear what was posted and has not been heard."""

    def heard(self) -> list[Any]:
        """Return what was posted since this was last asked."""
        self.hear()
        posted, self._posted = self._posted, len(self.rules.posted)
        return self.rules.posted[posted:]

    def replaced(self) -> None:
        """Have the pool put another one in the place of a worker that is lost."""
        self.is_lost = False
        self.pool.replace(*self.whose)

    def work(self, plan: Callable[[Any], Ending] = lambda record: None) -> list[int]:
        """Run until nothing may start; return the offsets, in order, of what started."""
        ran = []
        while (record := self.start()) is not None:
            ran.append(record.offset())
            self.end(plan(record), record)
        return ran

    def close(self) -> None:
        """End it; see that nothing is left to be heard."""
        for record in self.rules.beside():
            self.end_beside(record)
        for record in self.rules.running():
            self.end(None, record)
        if not self.is_lost:
            self.work()
        assert self.stop(WAIT) == []

    # --- inside ---

    def _note_end(self, ending: Ending, record: Record | None) -> Any:
        item = record if record is not None else self.rules.running()[0]
        dropped = isinstance(ending, Drop)
        self.rules.ended(item, failed=ending is not None and not dropped, dropped=dropped)
        return item


class Started(NamedTuple):
    """Stands in the mailbox where a record started."""

    record: Any


FAILING = 13
"""The slot whose state cannot be given up."""


def state_of(slots: Sequence[int]) -> object:
    """Give up the state of slots, as a handler class does."""
    if FAILING in slots:
        raise HandlerError
    return {"of": list(slots)}


class HandlerError(Exception):
    """What the handler raises where a test says that it fails."""


class Raising(NamedTuple):
    """As an ending: the handler raises what this makes, in the thread or process that runs it."""

    make: Callable[[], BaseException]


class Returning(NamedTuple):
    """As an ending: the handler returns what this makes."""

    make: Callable[[], object]


def come_to(ending: Any) -> object:
    """Come out of a handler with that ending."""
    if isinstance(ending, Returning):
        return ending.make()
    if isinstance(ending, Raising):
        raise ending.make()
    if isinstance(ending, Drop):
        raise ending
    if ending is not None:
        raise HandlerError
    return None


class Threads(Side):
    """A real thread. It goes on by itself up to its next handler, and waits in there."""

    knows_where = True
    mortal = True

    def __init__(self) -> None:
        super().__init__()
        self._stream: SimpleQueue[Any] = SimpleQueue()
        # By the record: a stuck one waits in its handler beside others.
        self._endings: dict[int, SimpleQueue[Ending]] = {}
        self._ahead: deque[Any] = deque()
        self._marks = 0
        self._stopped = False
        self._deadly = False
        one = self.kind == "instance"
        spec = WorkerSpec(*WORKER, "worker-0", self.made, one_thread=one)
        self.pool = self.make_pool(spec)
        self.pool.start()

    def made(self) -> Made:
        """Return the handler, with what gives up and takes over state."""
        return Made(self.handle, None, state_of, self._adopt)

    def _adopt(self, slots: Sequence[int], state: object) -> None:
        self.adopted.append((list(slots), state))

    def make_pool(self, spec: WorkerSpec) -> Any:
        """Return the pool of this one worker."""
        return ThreadPool([spec], self._stream, Clock(wall=self._wall))

    def give(self, slice_: Slice) -> None:
        for each in slice_.records:
            self._endings[id(each)] = SimpleQueue()
        super().give(slice_)

    def handle(self, record: Any) -> object:
        """Stand in for the user's handler."""
        self._stream.put(Started(record))
        return come_to(self._endings[id(record)].get(timeout=WAIT))

    def stop(self, timeout: float = 0.01) -> list[str]:
        self._stopped = True
        return super().stop(timeout)

    def start(self) -> Any:
        assert not self.rules.running(), "it runs something"
        try:
            return self._start()
        except AssertionError:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Let the worker end all that it may still run: what it does is not heard any more."""
        self.is_lost = True
        for each in self._endings.values():
            each.put(None)

    def _start(self) -> Any:
        if self._stopped:
            self._await_end()
            self.hear()
            return None
        self._marks += 1
        mark = ("", -1, b"mark", self._marks)
        self.pool.fence(Fence(*self.whose, (mark,)))
        while True:
            item = self._next()
            if isinstance(item, Started):
                self.rules.started(item.record)
                self.rules.at_rest(self.progress())
                return item.record
            if not _is_mark(item):
                self.rules.heard(item)
            elif item.lanes == (mark,):
                self.rules.at_rest(self.progress())
                return None

    def end(self, ending: Ending = None, record: Record | None = None) -> None:
        self._endings[id(self._note_end(ending, record))].put(ending)

    def end_beside(self, record: Record, ending: Ending = None, *, dies: bool = False) -> None:
        id_ = self.rules.slice_of(record).id
        (cell,) = [each for each in self.pool.beside if each.is_in(id_)]
        self._deadly = dies
        self.end(failure() if dies else ending, record)
        cell.thread.join(WAIT)
        assert not cell.thread.is_alive()
        self.pool.beat()
        self.hear()

    def fail_to_replace(self) -> None:
        none = RuntimeError("can't start new thread")
        with mock.patch.object(threading.Thread, "start", side_effect=none):
            self.pool.replace(*self.whose)
        self.hear()

    def lose(self) -> None:
        self.is_lost = True
        self._deadly = True
        self.end(failure())
        self._await_end()

    def lost(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = self.pool.dead()
        return found

    def hear(self) -> None:
        """Up to a record that has started: only ``start`` goes on from there."""
        while True:
            try:
                self._ahead.append(self._stream.get_nowait())
            except Empty:
                break
        while self._ahead and not isinstance(self._ahead[0], Started):
            if not _is_mark(item := self._ahead.popleft()):
                self.rules.heard(item)

    def _wall(self) -> float:
        """The time of a failure, which can end the thread that asks for it."""
        if self._deadly:
            self._deadly = False
            raise SystemExit
        return 0.0

    def _next(self) -> Any:
        """Return what is posted next, or fail where nobody is there to post it."""
        for _ in range(int(WAIT)):
            try:
                return self._ahead.popleft() if self._ahead else self._stream.get(timeout=1.0)
            except Empty:
                assert self._lives(), "the thread has ended"
        raise AssertionError("the worker comes to no end")

    def _lives(self) -> bool:
        return bool(self.pool.cells[self.whose].thread.is_alive())

    def _await_end(self) -> None:
        thread = self.pool.cells[self.whose].thread
        assert thread is not None
        thread.join(WAIT)
        assert not thread.is_alive()


def _is_mark(item: Any) -> bool:
    return isinstance(item, FencePassed) and item.lanes[0][2] == b"mark"


class Batches(Threads):
    """A thread whose handler takes several records, called with one at a time."""

    serial = False
    _releases = 0

    def make_pool(self, spec: WorkerSpec) -> Any:
        made = self.made()._replace(handle=lambda records: self.handle(records[0]))
        taking = replace(spec, make=lambda: made)
        return BatchPool([taking], self._stream, Clock(wall=self._wall), BatchRule(1))

    def release(self, *slots: int) -> None:
        self._releases += 1
        super().release(*slots)

    def start(self) -> Any:
        return None if self.rules.running() else super().start()

    def _start(self) -> Any:
        if self._stopped:
            return super()._start()
        while True:
            cell = self.pool.cells[self.whose]
            with cell.bell:
                waits = any(not each.started for each in cell.given.values())
                quiet = not (cell.running or waits or self._owes_state())
                # It may have started what it has not told of yet.
                told = not any(
                    each.started and self.rules.waits_to_start(each.slice)
                    for each in cell.given.values()
                )
            try:
                item = self._ahead.popleft() if self._ahead else self._stream.get(timeout=0.003)
            except Empty:
                if told and (quiet or self.rules.waits):
                    self.rules.at_rest(self.progress())
                    return None
                assert cell.thread.is_alive(), "the thread has ended"
                continue
            if isinstance(item, Started):
                self.rules.started(item.record)
                self.hear()  # what the owner has handed back meanwhile
                self.rules.at_rest(self.progress())
                return item.record
            self.rules.heard(item)

    def _owes_state(self) -> bool:
        """Say whether a slot's state was asked for, and its thread may not have come to it yet."""
        given_up = sum(isinstance(each, Released) for each in self.rules.posted)
        return self._releases > given_up and not self.is_lost

    def end_beside(self, record: Record, ending: Ending = None, *, dies: bool = False) -> None:
        id_ = self.rules.slice_of(record).id
        (cell,) = [
            cell for cell in self.pool.beside if any(each.slice.id == id_ for each in cell.running)
        ]
        self._deadly = dies
        self.end(failure() if dies else ending, record)
        cell.thread.join(WAIT)
        assert not cell.thread.is_alive()
        self.pool.beat()
        self.hear()


class Instances(Threads):
    """The same with an instance of a handler class, which one thread at a time may enter."""

    kind = "instance"


class Fake(Side):
    """The pool of the core's tests. It answers a recall at once."""

    mortal = True

    def __init__(self) -> None:
        super().__init__()
        self._mailbox: deque[Report | Recalled] = deque()
        settings = SubscriptionSettings(workers=("worker-0",))
        self.pool = SteppedPool(Dispatcher([settings]), self._mailbox.append)
        self.pool.kind = self.kind
        self.pool.heeds = lambda: self.heeds
        self.pool.on_release = lambda _sub, _worker, slots: state_of(slots)
        self.pool.on_adopt = self._adopt

    def _adopt(self, _sub: str, _worker: int, slots: Sequence[int], state: object) -> None:
        self.adopted.append((list(slots), state))

    def release(self, *slots: int) -> None:
        self.pool.release_fails = lambda _sub, _worker: FAILING in slots
        super().release(*slots)

    @property
    def worker(self) -> Any:
        """The worker."""
        return self.pool.workers[self.whose]

    def start(self) -> Any:
        record = self.worker.start()
        self.hear()
        if record is not None:
            self.rules.started(record)
        self.rules.at_rest(self.progress())
        return record

    def end(self, ending: Ending = None, record: Record | None = None) -> None:
        self._note_end(ending, record)
        self.worker.finish(ending)

    def end_beside(self, record: Record, ending: Ending = None, *, dies: bool = False) -> None:
        ending = DIED if dies else ending
        self._note_end(ending, record)
        self.worker.finish_apart(record, ending)
        self.hear()

    def fail_to_replace(self) -> None:
        self.pool.replaceable = False
        self.pool.replace(*self.whose)
        self.pool.replaceable = True
        self.hear()

    def lose(self) -> None:
        self.is_lost = True
        self._note_end(failure(), None)
        self.worker.die()

    def lost(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = self.pool.dead()
        return found

    def hear(self) -> None:
        while self._mailbox:
            self.rules.heard(self._mailbox.popleft())


class Later(Fake):
    """The same, whose worker answers a recall when it gets to it, as one behind a pipe would."""

    def __init__(self) -> None:
        super().__init__()
        self.pool.answers_later = lambda: True

    def answer(self) -> None:
        while self.worker.asked:
            self.worker.step()


class FakeInstances(Fake):
    """The same, playing instances of a handler class."""

    kind = "instance"


class FakeProcesses(Fake):
    """The same, playing processes, which are killed."""

    kind = "process"


class FakeTasks(Fake):
    """The same, playing tasks, which are cancelled and may not heed that."""

    kind = "task"


class FakeLeases(Fake):
    """The same, playing leases, which end."""

    kind = "lease"


class SteppedLoop:
    """An event loop that turns where the test says so, in the test's own thread."""

    def __init__(self) -> None:
        self.alive = False
        self.loop = asyncio.new_event_loop()

    def start(self) -> None:
        self.end()
        self.loop = asyncio.new_event_loop()
        self.alive = True

    def end(self) -> None:
        """End it, with all that is left on it."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.alive = True
        self.turn()
        self.alive = False
        self.loop.close()

    def tell(self, what: Callable[[], object]) -> None:
        if self.alive:
            self.loop.call_soon(what)

    def wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        del timeout
        self.turn()
        return event.is_set()

    def standing(self) -> str:
        return ""

    def stack(self) -> str:
        return ""

    def close(self) -> None:
        """The test closes it."""

    def turn(self, times: int = 12) -> None:
        """Turn so often that nothing is left to be done but what waits for the test."""
        for _ in range(times if self.alive else 0):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()


class Tasks(Side):
    """A real event loop, on which a handler waits for the test.

    Nothing starts but when the test says so: the worker's limit is how many may run.
    """

    serial = False
    in_order = False
    kind = "task"
    knows_where = True

    def __init__(self) -> None:
        super().__init__()
        self._stream: deque[Any] = deque()
        self._endings: dict[int, asyncio.Future[Ending]] = {}
        self.host: Any = self.make_host()
        spec = WorkerSpec(*WORKER, "worker-0", self.made)
        mailbox: Any = SimpleNamespace(put=self._stream.append)
        make = self.make_worker
        self.pool = TaskPool([spec], mailbox, Clock(), limit=0, host=self.host, make=make)
        self.pool.start()

    @property
    def make_worker(self) -> MakeWorker:
        """Return what makes its worker; one that says at once what has ended."""
        return partial(TaskWorker, told_within=0.0)

    def make_host(self) -> Any:
        """Return what runs the event loop."""
        return SteppedLoop()

    def turn(self) -> None:
        """Have the loop turn until nothing is left to be done but what waits for the test."""
        self.host.turn()

    def made(self) -> Made:
        """Return the handler, with what gives up and takes over state."""
        return Made(self.handle, None, state_of, self._adopt)

    def _adopt(self, slots: Sequence[int], state: object) -> None:
        self.adopted.append((list(slots), state))

    @property
    def worker(self) -> Any:
        """The worker."""
        return self.pool.workers[self.whose]

    async def handle(self, record: Any) -> object:
        """Stand in for the user's handler."""
        self._stream.append(Started(record))
        ending = self._endings[id(record)] = asyncio.get_running_loop().create_future()
        while True:
            try:
                verdict = await asyncio.shield(ending)
                break
            except asyncio.CancelledError:
                if self.heeds:
                    raise
        return come_to(verdict)

    def start(self) -> Any:
        self.hear()
        self.worker.limit = self.worker.busy + 1
        self.host.tell(self.worker.wake)
        self.turn()
        self.worker.limit = 0
        self.hear()
        found = self._stream.popleft().record if self._stream else None
        if found is not None:
            self.rules.started(found)
            self.hear()
        self.rules.at_rest(self.progress())
        return found

    def end(self, ending: Ending = None, record: Record | None = None) -> None:
        waits = self._endings[id(self._note_end(ending, record))]
        self.host.tell(lambda: waits.set_result(ending))
        self.hear()

    def end_beside(self, record: Record, ending: Ending = None, *, dies: bool = False) -> None:
        self.end(failure() if dies else ending, record)

    def time_out(self, *records: Record) -> Fate:
        before = records[0] in self._cancelled
        return super().time_out(*(each for each in records if (each in self._cancelled) is before))

    def answer(self) -> None:
        self.turn()

    def lose(self) -> None:
        self.is_lost = True
        for record in self.rules.running():
            self._note_end(failure(), record)
        self.host.alive = False

    def lost(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = self.pool.dead()
        return found

    def hear(self) -> None:
        self.turn()
        while self._stream and not isinstance(self._stream[0], Started):
            self.rules.heard(self._stream.popleft())

    def close(self) -> None:
        super().close()
        self.heeds = True
        self.end_loop()

    def end_loop(self) -> None:
        """End the loop, with all that is left on it."""
        self.host.end()


class CallTasks(Tasks):
    """The same where a handler takes several records, called with one at a time."""

    @property
    def make_worker(self) -> MakeWorker:
        return partial(CallWorker, BatchRule(1))

    def made(self) -> Made:
        async def handle(records: Sequence[Any]) -> object:
            return await self.handle(records[0])

        return super().made()._replace(handle=handle)


class Members(Side):
    """A member of a pull pool, which receives and settles."""

    serial = by_key = False
    kind = "lease"

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self._mailbox: SimpleQueue[Any] = SimpleQueue()
        mailbox: Any = self._mailbox
        self.pool = PullPool(
            mailbox,
            Clock(lambda: self.now),
            ascending=not self.in_order,
        )
        self.pool.join("worker-0")
        self.pool.start()

    @property
    def cell(self) -> Cell:
        """What the member has."""
        found: Cell = self.pool.cells[self.whose]
        return found

    def start(self) -> Any:
        taken = self.cell.take(1, 0)
        self.hear()
        for slice_ in taken:
            self.rules.started(slice_.records[0])
        self.rules.at_rest(self.progress())
        return taken[0].records[0] if taken else None

    def end(self, ending: Ending = None, record: Record | None = None) -> None:
        item = self._note_end(ending, record)
        slice_ = self.rules.slice_of(item)
        if ending is None:
            self.refused += [each.records[0] for each in self.cell.settle([slice_])]
        elif not self.cell.fail(slice_, failure()):
            self.refused.append(item)
        self.hear()

    def lose(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave, with everything in hand."""
        failing = set()
        for record in self.rules.running():
            # What is behind it in its lane is set aside, and has not failed.
            if (lane := lane_of(record)) not in failing:
                failing.add(lane)
                self.rules.ended(record, failed=True)
        self.cell.leave()

    def lost(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = self.pool.departed()
        return found

    def hear(self) -> None:
        while not self._mailbox.empty():
            self.rules.heard(self._mailbox.get_nowait())


class Split(Members):
    """A member that settles by offsets, and gets nothing below what it holds of a partition."""

    in_order = False


class Heard:
    """The pool of a side as a core uses it: what it is told to do, the rules hear."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def submit(self, slice_: Slice) -> None:
        self._side.give(slice_)

    def fence(self, fence: Fence) -> None:
        self._side.put(fence)

    def recall(self, recall: Recall) -> Recalled | None:
        return self._side.ask(recall.only)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._side.pool, name)
