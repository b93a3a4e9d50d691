"""A worker of the pool of coroutines: which records may start, and the tasks that run them.

All of it belongs to the loop's thread, but for ``handed``, which the owner fills and copies, and
what :meth:`TaskWorker.abandon` does when that thread has ended.

What has ended is reported slice by slice: at once where nothing else may start, as there may be
something that waits for it; else so many records together, or a moment later.

A *runner* is a task that lives as long as there is work for it. Who wakes finds the next record,
and wakes two more if there are others: so a thousand are awake within a few turns of the loop when
handlers wait, and two or three when they do not.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError
from collections.abc import Sequence
from dataclasses import replace

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.commands import Fence, Recall, TimeOut
from kafka_keyshared.core.events import Ended, Failed, Recalled, SetAside, SomeEnded, Stuck
from kafka_keyshared.core.slices import ENDED, RUNS, Slice
from kafka_keyshared.handling.failure import describe
from kafka_keyshared.handling.verdicts import error_in
from kafka_keyshared.model import Ack, Drop
from kafka_keyshared.pools import lease
from kafka_keyshared.pools.awaited import turning
from kafka_keyshared.pools.chains import Chains, Handed, Item, Taken
from kafka_keyshared.pools.loop_worker import (
    HEED_TURNS,
    LoopEndedError,
    LoopWorker,
    Post,
    TimedOutError,
)
from kafka_keyshared.pools.task_state import TaskState
from kafka_keyshared.pools.worker_cells import WorkerSpec
from kafka_keyshared.program.forks import end_child

TURN = 32
TURN_SECONDS = 0.05
"""Records that a runner runs one after the other before the loop may turn, and seconds after which
it may turn behind each: handlers that wait for nothing would keep it from all else."""

TOLD_TOGETHER = 128
TOLD_WITHIN = 0.0005
"""Records whose end is reported together at most, and seconds for which it is kept at most: each
report has the owner's thread and the loop's take turns."""


class Runner:
    """One task of a worker, and the record that it is in: its slice, and the index there.

    For handlers it is their worker. ``cancelled`` says that the record is to end because it has run
    for too long; ``apart`` that it runs on all the same, and its worker goes on beside it.
    """

    __slots__ = ("apart", "cancelled", "current", "index", "name", "task")

    def __init__(self, name: str) -> None:
        self.name = name
        self.current: Handed | None = None
        self.index = 0
        self.cancelled = False
        self.apart = False
        self.task: asyncio.Task[None] | None = None

    def has(self, id_: int, index: int) -> bool:
        """Say whether this is the record that it is in; from any thread."""
        current = self.current  # asked once: the loop's thread leaves it meanwhile
        return current is not None and current.slice.id == id_ and self.index == index


class TaskWorker(LoopWorker[Handed]):
    """Runs up to ``limit`` records at once, those of a lane one after the other."""

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
        # Slices of which something has ended since the last report, and how many records have.
        self._untold: list[Handed] = []
        self._over_now = 0
        self._runners: dict[Runner, None] = {}  # in the order in which they came
        self._resting: list[asyncio.Future[None]] = []
        # The loop that it is on, and that loop's thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    # --- its life ---

    def open(self) -> None:
        """Make the handler."""
        self._loop, self._thread = turning(), threading.get_ident()
        super().open()

    def reopen(self) -> None:
        """Go on, on another loop, behind what ran on one that has ended."""
        self.lose()
        self._runners.clear()
        self._resting.clear()
        self.open()

    def close(self) -> None:
        """Start nothing any more; close the handler when nothing runs."""
        self._closing = True
        self._chains.clear()
        while self._rouse():
            continue
        self._close_if_idle()

    def quit(self) -> list[asyncio.Task[None]]:
        """Start nothing any more, and cancel what runs; return the tasks that are to end."""
        self.close()
        left = [each.task for each in self._at_work() if each.task is not None]
        for task in left:
            task.cancel()
        return left

    def lose(self) -> None:
        """Report what ran as failed, because the loop has ended; once, however often it is told."""
        for runner in self._at_work():
            runner.task = None
            error = LoopEndedError("the event loop ended while the record ran on it")
            self._over(runner, error)
        self._report()

    def _at_work(self) -> list[Runner]:
        return [runner for runner in self._runners if runner.current is not None]

    # --- what it is told ---

    def in_hand(self, slice_: Slice) -> Handed:
        """Return a slice as it is before anything of it has started."""
        return Handed(slice_)

    def accept(self, handed: Handed) -> None:
        """Take a slice: to run it, or to hand back what is of lanes that have failed."""
        handed.lanes = lanes = self.failed.lanes_of(handed.slice.records)
        for index in self.failed.among(lanes):
            self._set_aside((handed, index))
        self._report_if_full()
        self._chains.add(handed, handed.waiting())

    def pass_fence(self, fence: Fence) -> None:
        """Take records of these lanes again: everything behind the failed ones is handed back."""
        self._report()
        super().pass_fence(fence)

    def recall(self, recall: Recall) -> None:
        """Give back what has not started."""
        self._report()
        self._answer(recall, self._chains.take_back([*self.given.values()], recall.only))

    def time_out(self, past: TimeOut) -> None:
        """Cancel what runs of these, and answer when it has had the time to heed that."""
        stuck: list[tuple[Runner, int, int]] = []
        for id_, index in past.running:
            runner = next((each for each in self._runners if each.has(id_, index)), None)
            if runner is None or runner.task is None:
                continue
            if runner.cancelled:
                stuck.append((runner, id_, index))
            else:
                runner.cancelled = True
                runner.task.cancel()
        self._when_heeded(past, stuck, HEED_TURNS)

    def _when_heeded(self, past: TimeOut, stuck: list[tuple[Runner, int, int]], turns: int) -> None:
        if turns and (loop := turning()) is not None:
            loop.call_soon(self._when_heeded, past, stuck, turns - 1)
            return
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
        """Have one more runner look for work, if there is some and one may run it."""
        if not self._ready or self.busy >= self.limit or self._closing:
            return
        loop = self._turns()
        if loop is None or self._rouse():
            return
        if len(self._runners) < self.limit + self.apart:
            runner = Runner(self.name)
            self._runners[runner] = None
            context = self._contexts.new()
            runner.task = loop.create_task(self._live(runner), context=context)

    def _turns(self) -> asyncio.AbstractEventLoop | None:
        """Return its loop, on that loop's thread: :func:`turning` asks the system each time."""
        loop = self._loop
        here = loop is not None and self._thread == threading.get_ident() and not loop.is_closed()
        return loop if here else None

    def _rouse(self) -> bool:
        """Wake a runner that rests; say whether there was one."""
        while self._resting:
            rest = self._resting.pop()
            if not rest.done():  # as it is of one that somebody has cancelled
                rest.set_result(None)
                return True
        return False

    async def _live(self, runner: Runner) -> None:
        """Run records for as long as there are some, and the handlers leave the task as it was.

        What a handler has left on its task must not reach the next record, and a task cannot be
        reset: a variable that had no value cannot be unset, and a cancel that the handler did not
        heed is raised at the next ``await``. So the next record runs in another task.
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
            if turning() in (loop, None):  # else the loop has ended, and another is on this thread
                self.wake()
                self._close_if_idle()

    async def _run(self, runner: Runner, state: TaskState) -> bool:
        """Run what may start, one record after the other, until that is nothing.

        Return False when a handler has left the task in another ``state``; nothing may be awaited
        on it then.
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
                if turning() is not loop and not self.forked:  # it has ended, with its tasks
                    raise
                ended = now()
                handed.seconds += ended - began
                self._over(runner, error)  # a failed attempt, whatever it is
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
        """Note how a record has ended, and let what follows in its lane start or go back."""
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
        """Report a failed attempt, and hand back what waited behind it in its lane."""
        if runner.cancelled and isinstance(error, CancelledError):
            error = TimedOutError("it ran past the ack timeout, and was cancelled")
        failure = describe(error, self._clock, self.spec.dead_letter_on)
        if runner.cancelled:
            failure = replace(failure, timed_out=True)
        index = runner.index
        if runner.apart:
            handed.slice.came.restore(index)  # the core has closed its lane already
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
        """Note that a record is over: a failure of it has been posted before this can be seen."""
        handed.marks[index] = ENDED
        if not handed.over:
            if not self._untold:
                self._report_soon()
            self._untold.append(handed)
        handed.over.append(index)
        self._over_now += 1

    def _report_if_full(self) -> None:
        """Report at once where that is much, or nothing runs of which more would come."""
        if self._over_now >= TOLD_TOGETHER or (self._over_now and not self.busy):
            self._report()

    def _report_soon(self) -> None:
        loop = self._turns()
        if loop is None:
            return  # whoever ends what is left of an ended loop reports it
        if self._told_within:
            loop.call_later(self._told_within, self._report)
        else:
            loop.call_soon(self._report)

    def _report(self) -> None:
        """Report what has ended since this was done last; always before anything is taken back.

        Behind that its slice may be at its end, and all of it count as done, what comes back too.
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
        # In this order: a slice that is neither here nor reported would look unstarted.
        self._post(Ended(id_, handed.seconds, (*handed.dropped, *dropped)))
        del self.given[id_]
        if self._orders:
            self._ended(id_)

    def abandon(self, *, settle: bool) -> None:
        """Report what ran as failed, and everything as ended; what had not started as dropped."""
        self._closing = True
        self.lose()
        for handed in list(self.given.values()):
            self._end(handed, handed.waiting() if settle else ())
        self._chains.clear()
        self.closed.set()

    def coroutine_of(self, id_: int, index: int) -> object:
        """Return the coroutine that runs the record, None where none does; from any thread."""
        # A copy in one C call: the loop adds and removes them meanwhile.
        found = (each.task for each in self._runners.copy() if each.has(id_, index))
        return None if (task := next(found, None)) is None else task.get_coro()
