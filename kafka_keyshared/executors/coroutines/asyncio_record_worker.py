"""Event-loop workers that run one record per handler call.

All data belongs to the loop's thread. There are two exceptions: ``given``, which the owner fills
and copies, and :meth:`TaskWorker.abandon` after that thread has ended.

Ended records are reported slice by slice. The report is sent at once if no record runs, because
other code may wait for it. Otherwise it is sent for :data:`TOLD_TOGETHER` records together, or
after :data:`TOLD_WITHIN` seconds.

A *runner* is a task that lives while there is work for it. A runner that wakes takes the next
record, and wakes two more runners if there are other records. When handlers wait, a thousand
runners are awake within a few turns of the loop. Otherwise two or three are.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Fence, Recall, TimeOut
from kafka_keyshared.core.contract.events import (
    Failed,
    Recalled,
    SetAside,
    SliceEnded,
    SomeEnded,
    Stuck,
)
from kafka_keyshared.core.contract.slices import ENDED, RUNS, Slice
from kafka_keyshared.executors import lease
from kafka_keyshared.executors.coroutines.asyncio_base import (
    LoopEndedError,
    LoopWorker,
    Post,
    TimedOutError,
)
from kafka_keyshared.executors.coroutines.task_frames import turning
from kafka_keyshared.executors.coroutines.task_state import TaskState
from kafka_keyshared.executors.coroutines.task_timeout import cancel_task, when_heeded
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.outcome_mapping import error_in
from kafka_keyshared.executors.key_chains import Chains, Handed, Item, Taken
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Ack, Drop
from kafka_keyshared.platform.forks import end_child

TURN = 32
TURN_SECONDS = 0.05
"""A runner lets the loop turn after ``TURN`` records, or at the end of a record after
``TURN_SECONDS``. Handlers that never wait would otherwise block the loop."""

TOLD_TOGETHER = 128
TOLD_WITHIN = 0.0005
"""Most records per report of ended records, and seconds that a report may be delayed. Each report
makes the owner's thread and the loop's thread take turns."""


class Runner:
    """One task of a worker, and its current record: the slice and the index there.

    To handlers it is their worker. ``cancelled``: the record ran too long and was cancelled.
    ``apart``: the record still runs all the same, and its worker continues beside it.
    """

    __slots__ = ("apart", "attempts", "cancelled", "current", "index", "name", "task")

    def __init__(self, name: str, attempts: int | None = None) -> None:
        self.name, self.attempts = name, attempts
        self.current: Handed | None = None
        self.index = 0
        self.cancelled = False
        self.apart = False
        self.task: asyncio.Task[None] | None = None

    def has(self, id_: int, index: int) -> bool:
        """Return whether this is its current record; from any thread."""
        current = self.current  # read once: the loop's thread may change it
        return current is not None and current.slice.id == id_ and self.index == index


class TaskWorker(LoopWorker[Handed]):
    """Runs up to ``limit`` records at once, and the records of a lane one after the other."""

    def __init__(
        self,
        spec: WorkerSpec,
        limit: int,
        post: Post,
        clock: Clock,
        told_within: float = TOLD_WITHIN,
    ) -> None:
        super().__init__(spec, limit, post, clock)
        self._told_within = told_within
        self._chains = Chains()
        self._ready = self._chains.ready
        # Slices with records that ended since the last report, and the number of these records.
        self._untold: list[Handed] = []
        self._over_now = 0
        self._runners: dict[Runner, None] = {}  # in the order of their creation
        self._resting: list[asyncio.Future[None]] = []
        # Its loop, and that loop's thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    # --- its life ---

    def open(self) -> None:
        """Make the handler."""
        self._loop, self._thread = turning(), threading.get_ident()
        super().open()

    def reopen(self) -> None:
        """Continue on a new loop, after the previous one has ended."""
        self.lose()
        self._runners.clear()
        self._resting.clear()
        self.open()

    def close(self) -> None:
        """Start nothing more; close the handler when nothing runs."""
        self._closing = True
        self._chains.clear()
        while self._rouse():
            continue
        self._close_if_idle()

    def quit(self) -> list[asyncio.Task[None]]:
        """Start nothing more and cancel running tasks; return the tasks to wait for."""
        self.close()
        left = [each.task for each in self._at_work() if each.task is not None]
        for task in left:
            task.cancel()
        return left

    def lose(self) -> None:
        """Report running records as failed, once, because the loop has ended."""
        for runner in self._at_work():
            runner.task = None
            error = LoopEndedError("the event loop ended while the record ran on it")
            self._over(runner, error)
        self._report()

    def _at_work(self) -> list[Runner]:
        return [runner for runner in self._runners if runner.current is not None]

    # --- its commands ---

    def in_hand(self, slice_: Slice) -> Handed:
        """Return a slice in its unstarted state."""
        return Handed(slice_)

    def accept(self, handed: Handed) -> None:
        """Queue a slice; hand back its records whose lanes have failed."""
        handed.lanes = lanes = self.failed.lanes_of(handed.slice.records)
        for index in self.failed.among(lanes):
            self._set_aside((handed, index))
        self._report_if_full()
        self._chains.add(handed, handed.waiting())

    def pass_fence(self, fence: Fence) -> None:
        """Accept records of these lanes again; those behind the failed ones are handed back."""
        self._report()
        super().pass_fence(fence)

    def recall(self, recall: Recall) -> None:
        """Hand back the unstarted records."""
        self._report()
        self._answer(recall, self._chains.take_back([*self.given.values()], recall.only))

    def time_out(self, past: TimeOut) -> None:
        """Cancel these running records; answer after they had time to end."""
        stuck: list[tuple[Runner, int, int]] = []
        for id_, index in past.running:
            runner = next((each for each in self._runners if each.has(id_, index)), None)
            if runner is not None and runner.task is not None and cancel_task(runner):
                stuck.append((runner, id_, index))
        when_heeded(partial(self._answer_time_out, past, stuck))

    def _answer_time_out(self, past: TimeOut, stuck: list[tuple[Runner, int, int]]) -> None:
        self._report()
        said: list[Stuck] = []
        for runner, id_, index in stuck:
            if runner.has(id_, index):
                runner.apart = True
                self.busy -= 1
                self.apart += 1
                said.append(Stuck(id_, index, goes_on=True))
        back = self._chains.take_back([*self.given.values()]) if said else []
        self._answer(past, back, said)
        self.wake()

    def _answer(self, asked: Recall | TimeOut, back: Taken, stuck: Sequence[Stuck] = ()) -> None:
        self._post(Recalled(asked.subscription, asked.worker, back, tuple(stuck)))
        for id_, _ in back:
            if not self.given[id_].left:
                self._end(self.given[id_])

    # --- its runners ---

    def wake(self) -> None:
        """Wake or create one more runner, if there is work and the limit allows it."""
        if not self._ready or self.busy >= self.limit or self._closing:
            return
        loop = self._turns()
        if loop is None or self._rouse():
            return
        if len(self._runners) < self.limit + self.apart:
            runner = Runner(self.name, self.spec.rules.attempts)
            self._runners[runner] = None
            context = self._contexts.new()
            runner.task = loop.create_task(self._live(runner), context=context)

    def _turns(self) -> asyncio.AbstractEventLoop | None:
        """Return its loop if this is the loop's thread.

        This check is cheaper than :func:`turning`, which asks the system each time.
        """
        loop = self._loop
        here = loop is not None and self._thread == threading.get_ident() and not loop.is_closed()
        return loop if here else None

    def _rouse(self) -> bool:
        """Wake an idle runner; return whether there was one."""
        while self._resting:
            rest = self._resting.pop()
            if not rest.done():  # a future is done if its task was cancelled
                rest.set_result(None)
                return True
        return False

    async def _live(self, runner: Runner) -> None:
        """Run records while there are some and the handlers leave the task unchanged.

        A change that a handler makes to its task must not reach the next record. A task cannot be
        reset. A variable that had no value cannot be unset. A cancel that the handler ignored is
        raised at the next ``await``. The next record therefore runs in another task.
        """
        lease.WORKER.set(runner)
        loop, state = asyncio.get_running_loop(), TaskState(once=not self._contexts.shares_nothing)
        untouched = True
        try:
            while not self._closing and untouched:
                if not self._ready or self.busy >= self.limit:
                    if len(self._runners) > self.limit + self.apart:
                        return
                    self._resting.append(loop.create_future())
                    await self._resting[-1]
                for _ in range(2):
                    if len(self._ready) > 1:
                        self.wake()
                untouched = await self._run(runner, state)
        finally:
            self._runners.pop(runner, None)
            if turning() in (loop, None):  # else another loop is on this thread
                self.wake()
                self._close_if_idle()

    async def _run(self, runner: Runner, state: TaskState) -> bool:
        """Run ready records one after the other, until none is left.

        Return False when a handler has changed the task's ``state``. Nothing may be awaited on the
        task then.
        """
        ready, now, handle = self._ready, self._clock.monotonic, self._handler.handle
        loop, turned = turning(), now()
        for turn in range(1, 1 << 62):
            if not ready or self.busy >= self.limit:
                return True
            handed, index = ready.popleft()
            runner.current, runner.index = handed, index
            self.busy += 1
            handed.marks[index] = RUNS
            began = now()
            try:
                result = await handle(handed.slice.records[index])
                returned = None if result is None else error_in(result)
            except BaseException as error:
                if turning() is not loop and not self.forked:  # the loop has ended, with its tasks
                    raise
                ended = now()
                handed.seconds += ended - began
                self._over(runner, error)  # any exception is a failed attempt
            else:
                ended = now()
                handed.seconds += ended - began
                self._over(runner, returned)
            if self._closing or state.changed():
                return False
            if turn % TURN == 0 or ended - turned >= TURN_SECONDS:
                await asyncio.sleep(0)
                turned = now()
        return True

    def _over(self, runner: Runner, error: BaseException | None) -> None:
        """Note the end of a record; the next one in its lane may start, or the rest goes back."""
        if self.forked:
            end_child(f"a handler on {self.name}", error)
        handed, index = runner.current, runner.index
        if handed is None:
            return
        if runner.apart:
            self.apart -= 1
        else:
            self.busy -= 1
        if error is None or isinstance(error, Ack):
            self._chains.let_next(handed.lanes[index])
        elif isinstance(error, Drop):
            handed.slice.came.restore(index)
            handed.dropped.append(index)
            self._chains.let_next(handed.lanes[index])
        else:
            self._failed(runner, handed, error)
        runner.current, runner.cancelled, runner.apart = None, False, False
        self._note_end(handed, index)
        self._report_if_full()

    def _failed(self, runner: Runner, handed: Handed, error: BaseException) -> None:
        """Report a failed attempt, and hand back the records behind it in its lane."""
        if runner.cancelled and isinstance(error, CancelledError):
            error = TimedOutError("it ran past the ack timeout, and was cancelled")
        failure = describe(error, self._clock, self.spec.rules)
        if runner.cancelled:
            failure = replace(failure, timed_out=True)
        index = runner.index
        if runner.apart:
            handed.slice.came.restore(index)  # the core has already closed its lane
        else:
            self.failed.fail(handed.slice, index)
        self._post(Failed(handed.slice.id, index, failure))
        for item in self._chains.cut(handed.lanes[index]):
            self._set_aside(item)

    def _set_aside(self, item: Item) -> None:
        handed, index = item
        self._post(SetAside(handed.slice.id, index))
        self._note_end(handed, index)

    # --- its reports ---

    def _note_end(self, handed: Handed, index: int) -> None:
        """Note that a record is over; if it failed, its failure must already be posted."""
        handed.marks[index] = ENDED
        if not handed.over:
            if not self._untold:
                self._report_soon()
            self._untold.append(handed)
        handed.over.append(index)
        self._over_now += 1

    def _report_if_full(self) -> None:
        """Report at once if many records have ended, or if nothing runs that would add more."""
        if self._over_now >= TOLD_TOGETHER or (self._over_now and not self.busy):
            self._report()

    def _report_soon(self) -> None:
        loop = self._turns()
        if loop is None:
            return  # the code that cleans up an ended loop reports it
        if self._told_within:
            loop.call_later(self._told_within, self._report)
        else:
            loop.call_soon(self._report)

    def _report(self) -> None:
        """Report the records that ended since the last report; called before any take-back.

        This report must come first. A take-back may end its slice. All unreported records of the
        slice would then count as done, also those taken back.
        """
        untold, self._untold, self._over_now = self._untold, [], 0
        for handed in untold:
            handed.left -= len(handed.over)
            if not handed.left:
                self._end(handed)
                continue
            of, dropped = handed.slice.id, tuple(handed.dropped)
            self._post(SomeEnded(of, tuple(handed.over), handed.seconds, dropped))
            handed.over, handed.seconds, handed.dropped = [], 0.0, []

    def _end(self, handed: Handed, dropped: Sequence[int] = ()) -> None:
        id_ = handed.slice.id
        # In this order: a slice that is neither given nor reported would look unstarted.
        self._post(SliceEnded(id_, handed.seconds, (*handed.dropped, *dropped)))
        del self.given[id_]
        if self._orders:
            self._ended(id_)

    def abandon(self, *, settle: bool) -> None:
        """Report running records as failed and all slices as ended.

        With ``settle`` the unstarted records are reported as dropped.
        """
        self._closing = True
        self.lose()
        for handed in list(self.given.values()):
            self._end(handed, handed.waiting() if settle else ())
        self._chains.clear()
        self.closed.set()

    def coroutine_of(self, id_: int, index: int) -> object:
        """Return the coroutine that runs the record, None if none does; from any thread."""
        # A copy in one C call, because the loop adds and removes runners concurrently.
        found = (each.task for each in self._runners.copy() if each.has(id_, index))
        return None if (task := next(found, None)) is None else task.get_coro()
