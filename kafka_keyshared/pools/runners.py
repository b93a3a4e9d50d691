"""A worker of the pool of coroutines: which records may start, and the tasks that run them.

All of it belongs to the loop's thread, but for ``given``, which the owner fills and copies, and
what :meth:`TaskWorker.abandon` does when that thread has ended.

A *runner* is a task that lives as long as there is work for it. Who wakes finds the next record,
and wakes two more if there are others: so a thousand are awake within a few turns of the loop when
handlers wait, and two or three when they do not.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Container, Iterable
from contextvars import Context, copy_context
from dataclasses import replace

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.commands import Recall, TimeOut
from kafka_keyshared.core.events import Ended, Failed, Recalled, SetAside, Stuck
from kafka_keyshared.core.lanes import is_keyless
from kafka_keyshared.handling.failure import describe
from kafka_keyshared.handling.verdicts import raise_verdict
from kafka_keyshared.model import Ack, Drop
from kafka_keyshared.pools import lease
from kafka_keyshared.pools.awaited import calls_of, place_of, turning
from kafka_keyshared.pools.chains import Chains, Given
from kafka_keyshared.pools.loop_worker import (
    HEED_TURNS,
    LoopEndedError,
    LoopWorker,
    Post,
    TimedOutError,
)
from kafka_keyshared.pools.worker_cells import WorkerSpec
from kafka_keyshared.program.forks import end_child

TURN = 32
"""Records that a runner runs one after the other before the loop may turn: handlers that wait for
nothing would keep it from all else."""


class Runner:
    """One task of a worker, and the record that it is in. For handlers it is their worker."""

    __slots__ = ("current", "name", "task")

    def __init__(self, name: str) -> None:
        self.name = name
        self.current: Given | None = None
        self.task: asyncio.Task[None] | None = None


class TaskWorker(LoopWorker):
    """Runs up to ``limit`` records at once, those of a lane one after the other."""

    def __init__(self, spec: WorkerSpec, limit: int, post: Post, clock: Clock) -> None:
        super().__init__(spec, limit, post, clock)
        self._chains = Chains()
        self._ready = self._chains.ready
        # By the slices that they run.
        self._running: dict[int, Runner] = {}
        self._runners: set[Runner] = set()
        self._resting: list[asyncio.Future[None]] = []

    # --- its life ---

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
        left = [each.task for each in self._running.values() if each.task is not None]
        for task in left:
            task.cancel()
        return left

    def lose(self) -> None:
        """Report what ran as failed, because the loop has ended; once, however often it is told."""
        for runner in list(self._running.values()):
            if runner.current is not None:
                runner.task = None
                error = LoopEndedError("the event loop ended while the record ran on it")
                self._over(runner, runner.current, error)

    # --- what it is told ---

    def accept(self, given: Given) -> None:
        """Take a record: to run it, or to hand it back where its lane has failed."""
        lane = self.failed.lane_of(given.slice.records[0])
        if lane in self.failed.lanes:
            self._set_aside(given)
            return
        given.lane = None if is_keyless(lane) else lane
        self._chains.add(given)

    def recall(self, recall: Recall) -> None:
        """Give back what has not started."""
        back = self._take_back(recall.only)
        self._answer(recall, back)

    def time_out(self, past: TimeOut) -> None:
        """Cancel what runs of these, and answer when it has had the time to heed that."""
        stuck: list[Given] = []
        for id_, _ in past.running:
            runner = self._running.get(id_)
            if runner is None or runner.task is None or runner.current is None:
                continue
            if runner.current.cancelled:
                stuck.append(runner.current)
            else:
                runner.current.cancelled = True
                runner.task.cancel()
        self._when_heeded(past, stuck, HEED_TURNS)

    def _when_heeded(self, past: TimeOut, stuck: list[Given], turns: int) -> None:
        if turns and (loop := turning()) is not None:
            loop.call_soon(self._when_heeded, past, stuck, turns - 1)
            return
        stuck = [each for each in stuck if each.slice.id in self._running]
        for each in stuck:
            each.apart = True
            self.busy -= 1
            self.apart += 1
        back = self._take_back(None) if stuck else []
        said = [Stuck(each.slice.id, 0, goes_on=True) for each in stuck]
        self._answer(past, back, said)
        self.wake()

    def _answer(
        self, asked: Recall | TimeOut, back: list[Given], stuck: Iterable[Stuck] = ()
    ) -> None:
        slices = [(each.slice.id, range(1)) for each in back]
        self._post(Recalled(asked.subscription, asked.worker, slices, tuple(stuck)))
        for each in back:
            self._end(each, 0.0)

    def _take_back(self, only: Container[int] | None) -> list[Given]:
        return self._chains.take_back(self.given.copy().values(), only)

    # --- its runners ---

    def wake(self) -> None:
        """Have one more runner look for work, if there is some and one may run it."""
        if not self._ready or self.busy >= self.limit or self._closing:
            return
        loop = turning()
        if loop is None or self._rouse():
            return
        if len(self._runners) < self.limit + self.apart:
            runner = Runner(self.name)
            self._runners.add(runner)
            context = self._context.copy()
            runner.task = loop.create_task(self._live(runner), context=context)

    def _rouse(self) -> bool:
        """Wake a runner that rests; say whether there was one."""
        while self._resting:
            rest = self._resting.pop()
            if not rest.done():  # as it is of one that somebody has cancelled
                rest.set_result(None)
                return True
        return False

    async def _live(self, runner: Runner) -> None:
        """Run records for as long as there are some, and the handlers leave the context as it was.

        A variable that a handler has set must not reach the next record; a task cannot take it back
        where it had no value before. So the next one runs in another task.
        """
        lease.WORKER.set(runner)
        loop, before = asyncio.get_running_loop(), copy_context()
        try:
            while not self._closing and copy_context() == before:
                if not self._ready or self.busy >= self.limit:
                    if len(self._runners) > self.limit + self.apart:
                        return
                    self._resting.append(loop.create_future())
                    await self._resting[-1]
                for _ in range(2):
                    if len(self._ready) > 1:
                        self.wake()
                await self._run(runner, before)
        finally:
            self._runners.discard(runner)
            if turning() in (loop, None):  # else the loop has ended, and another is on this thread
                self.wake()
                self._close_if_idle()

    async def _run(self, runner: Runner, before: Context) -> None:
        """Run what may start, one record after the other, until that is nothing.

        Or until one has left another context than there was ``before``.
        """
        ready, now, loop = self._ready, self._clock.monotonic, turning()
        for turn in range(1, 1 << 62):
            if not ready or self.busy >= self.limit:
                return
            given = ready.popleft()
            runner.current = given
            self._running[given.slice.id] = runner
            self.busy += 1
            given.since = now()
            given.started = True
            try:
                if (result := await self._handler.handle(given.slice.records[0])) is not None:
                    raise_verdict(result)
            except BaseException as error:
                if turning() is not loop and not self.forked:  # it has ended, with its tasks
                    raise
                self._over(runner, given, error)  # a failed attempt, whatever it is
            else:
                self._over(runner, given, None)
            if self._closing or copy_context() != before:
                return
            if turn % TURN == 0:
                await asyncio.sleep(0)

    def _over(self, runner: Runner, given: Given, error: BaseException | None) -> None:
        """Report how a record has ended, and let what follows in its lane start or go back."""
        if self.forked:
            end_child(f"a handler on {self.name}", error)
        task = runner.task
        while task is not None and task.cancelling():
            task.uncancel()  # the next record is another matter
        runner.current = None
        del self._running[given.slice.id]
        if given.apart:
            self.apart -= 1
        else:
            self.busy -= 1
        seconds = self._clock.monotonic() - given.since
        if error is None or isinstance(error, Ack):
            self._end(given, seconds)
        elif isinstance(error, Drop):
            given.slice.came.restore(0)
            self._end(given, seconds, (0,))
        else:
            self._failed(given, error)
            self._end(given, seconds)
            for each in self._chains.cut(given.lane):
                self._set_aside(each)
            return
        self._chains.let_next(given.lane)

    def _failed(self, given: Given, error: BaseException) -> None:
        if given.cancelled and isinstance(error, CancelledError):
            error = TimedOutError("it ran past the ack timeout, and was cancelled")
        failure = describe(error, self._clock, self.spec.dead_letter_on)
        if given.cancelled:
            failure = replace(failure, timed_out=True)
        if given.apart:
            given.slice.came.restore(0)  # the core has closed its lane already
        else:
            self.failed.fail(given.slice, 0)
        self._post(Failed(given.slice.id, 0, failure))

    def _set_aside(self, given: Given) -> None:
        self._post(SetAside(given.slice.id, 0))
        self._end(given, 0.0)

    def _end(self, given: Given, seconds: float, dropped: tuple[int, ...] = ()) -> None:
        # In this order: a slice that is neither given nor reported would look unstarted.
        self._post(Ended(given.slice.id, seconds, dropped))
        del self.given[given.slice.id]
        if self._orders:
            self._ended(given.slice.id)

    def abandon(self, *, settle: bool) -> None:
        """Report what ran as failed, and everything as ended; what had not started as dropped."""
        self._closing = True
        self.lose()
        for given in list(self.given.values()):
            self._end(given, 0.0, (0,) if settle and not given.started else ())
        self._chains.clear()
        self.closed.set()

    def where(self, id_: int) -> str:
        """Return where in the user's program the coroutine stands that runs the record."""
        runner = self._running.get(id_)
        if runner is None or runner.task is None:
            return ""
        return place_of(runner.task.get_coro())

    def stack(self, id_: int) -> str:
        """Return the calls that the coroutine is in, through what it awaits."""
        runner = self._running.get(id_)
        return "" if runner is None or runner.task is None else calls_of(runner.task.get_coro())
