"""Event-loop workers for batch handlers, with a task per call.

:class:`kafka_keyshared.executors.batches.batch_collector.Gathering` chooses the records of a call.
An error of a call does not say which record caused it. The handler is then called with each record
*alone*, one after the other. The call keeps their lanes until the last one has ended. Each of these
calls has a new task, because a handler may have changed the previous one (:mod:`.task_state`).
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections import deque
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from functools import partial

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Recall, TimeOut
from kafka_keyshared.core.contract.events import Recalled, Stuck
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless
from kafka_keyshared.executors import lease
from kafka_keyshared.executors.batches.batch_collector import Gathering
from kafka_keyshared.executors.batches.batch_reports import CallReports
from kafka_keyshared.executors.coroutines.asyncio_base import (
    LoopEndedError,
    LoopWorker,
    Post,
    TimedOutError,
)
from kafka_keyshared.executors.coroutines.task_frames import turning
from kafka_keyshared.executors.coroutines.task_timeout import cancel_task, when_heeded
from kafka_keyshared.executors.handling.batching import BatchRule, Outcome, for_all, outcomes_of
from kafka_keyshared.executors.key_chains import Given
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.platform.forks import end_child


class BatchCall:
    """The records of one handler call, and the task that runs it.

    To handlers it is their worker.

    - ``running``: the records of the current call. ``alone``: records that wait for a call of
      their own.
    - ``lanes``: the lanes that the call keeps until it is over.
    - ``gone``: the call was cancelled and still runs, so it is stuck.
    - ``lost``: the call is already reported, because its loop has ended.
    - ``patience``: seconds that the current record must have run, at least, before it is
      cancelled.
    """

    def __init__(self, worker: CallWorker, batch: list[Given]) -> None:
        self.spec, self.name = worker.spec, worker.name
        self.attempts = worker.spec.rules.attempts
        self.given, self.failed = worker.given, worker.failed
        self.task: asyncio.Task[None] | None = None
        self.running: list[Given] = []
        self.alone: deque[Given] = deque()
        self.lanes = {each.lane for each in batch if each.lane is not None}
        self.since = self.patience = 0.0
        self.cancelled = self.gone = self.lost = False
        # Whether a recall has come since the call began.
        self.asked = False
        self._gathering = worker.gathering
        self._together: lease.Together | None = None

    @property
    def current(self) -> lease.Together | None:
        """Return the records of the current call; handlers look up their leases in it."""
        if self._together is None and self.running:
            self._together = lease.Together(self.running)
        return self._together

    def begin(self, batch: list[Given], now: float) -> None:
        """Note that the handler is called with these records."""
        self.running, self._together = batch, None
        self.since, self.cancelled, self.asked = now, False, False
        for each in batch:
            each.started, each.since = True, now

    def split(self, now: float) -> None:
        """Queue each running record for a call alone, in order."""
        for each in self.running:
            each.slice.came.restore(0)
            each.started, each.awaited = False, self.asked
        self.alone.extend(self.running)
        self.running, self.patience = [], now - self.since

    def behind_others(self) -> list[Given]:
        """Return the records of the call that are behind another one of their lane."""
        lanes: set[Lane] = set()
        behind: list[Given] = []
        for each in self.running:
            if each.lane in lanes:
                behind.append(each)
            elif each.lane is not None:
                lanes.add(each.lane)
        return behind

    def cut(self, lanes: Collection[Lane]) -> list[Given]:
        """Remove the waiting records of these lanes, and give up the lanes."""
        self.lanes.difference_update(lanes)
        back = [each for each in self.alone if each.lane in lanes]
        self.alone = deque(each for each in self.alone if each.lane not in lanes)
        return back + self._gathering.cut(lanes)

    def take_back(self, only: Container[int] | None) -> list[Given]:
        """Remove the records that wait for a call alone, of these slices or all."""
        back = [each for each in self.alone if only is None or each.slice.id in only]
        self.alone = deque(each for each in self.alone if each not in back)
        return back


class CallWorker(LoopWorker[Given]):
    """Runs up to ``limit`` calls at once, of which no two share a lane."""

    def __init__(
        self, rule: BatchRule, spec: WorkerSpec, limit: int, post: Post, clock: Clock
    ) -> None:
        super().__init__(spec, limit, post, clock)
        self._reports = CallReports(post, clock, self._end_slice)
        self.gathering = Gathering(rule)
        self.tell_at = float("-inf")
        # In the order in which they began.
        self._calls: dict[BatchCall, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    # --- its life ---

    def reopen(self) -> None:
        """Continue on a new loop, after the previous one has ended."""
        self.lose()
        self._timer = None
        self.open()

    def close(self) -> None:
        """Start nothing more; close the handler when nothing runs."""
        self._closing = True
        self.gathering.clear()
        self._close_if_idle()

    def quit(self) -> list[asyncio.Task[None]]:
        """Start nothing more and cancel running calls; return the tasks to wait for."""
        self.close()
        left = [each.task for each in self._calls if each.task is not None]
        for task in left:
            task.cancel()
        return left

    def lose(self) -> None:
        """Report running calls as failed, once, because the loop has ended."""
        for call in list(self._calls):
            call.lost = True
            self._over(call, LoopEndedError("the event loop ended while the call ran on it"))

    def abandon(self, *, settle: bool) -> None:
        """Report running records as failed and all slices as ended.

        With ``settle`` the unstarted records are reported as dropped.
        """
        self._closing = True
        self.lose()
        for given in list(self.given.values()):
            self._reports.end_lease(self, given, 0.0, (0,) if settle and not given.started else ())
        self.gathering.clear()
        self.closed.set()

    # --- its commands ---

    def in_hand(self, slice_: Slice) -> Given:
        """Return a record in its unstarted state."""
        return Given(slice_)

    def accept(self, given: Given) -> None:
        """Queue a record for a call; hand it back if its lane has failed."""
        lane = self.failed.lane_of(given.slice.records[0])
        given.lane = None if is_keyless(lane) else lane
        given.since = self._clock.monotonic()
        if lane in self.failed.lanes:
            self._reports.set_aside(self, [given])
        else:
            self.gathering.add(given)

    def recall(self, recall: Recall) -> None:
        """Hand back the unstarted records."""
        for call in self._calls:
            call.asked = True
        self._answer(recall, self._take_back(recall.only))

    def time_out(self, past: TimeOut) -> None:
        """Cancel the calls that have these records; answer after they had time to end.

        The owner measures how long a record has run. It does not see when a record begins alone
        after its call has failed. Such a record may run as long as that call did.
        """
        now, ids = self._clock.monotonic(), {id_ for id_, _ in past.running}
        stuck: list[tuple[BatchCall, list[Given]]] = []
        for call in self._calls:
            if call.task is None or ids.isdisjoint(each.slice.id for each in call.running):
                continue
            if (call.cancelled or now - call.since >= call.patience) and cancel_task(call):
                stuck.append((call, call.running))
        when_heeded(partial(self._answer_time_out, past, stuck))

    def _answer_time_out(self, past: TimeOut, stuck: list[tuple[BatchCall, list[Given]]]) -> None:
        back: list[Given] = []
        said: list[Stuck] = []
        for call, running in stuck:
            if call.running is not running or call.gone:
                continue  # it has ended already
            call.gone = True
            self.busy -= 1
            self.apart += 1
            behind = call.behind_others()
            back += behind
            for each in running:
                each.apart = True
                if each not in behind:
                    said.append(Stuck(each.slice.id, 0, goes_on=True))
        if said:
            back += self._take_back(None)
        self._answer(past, back, said)
        self.wake()

    def _answer(
        self, asked: Recall | TimeOut, back: list[Given], stuck: Iterable[Stuck] = ()
    ) -> None:
        back.sort(key=lambda each: each.slice.id)
        slices = [(each.slice.id, range(1)) for each in back]
        self._post(Recalled(asked.subscription, asked.worker, slices, tuple(stuck)))
        for each in back:
            self._reports.end_lease(self, each, 0.0)

    def _take_back(self, only: Container[int] | None) -> list[Given]:
        back = self.gathering.take_back(only)
        for call in self._calls:
            if call.alone:
                back += call.take_back(only)
        return back

    def coroutine_of(self, id_: int, index: int) -> object:
        """Return the coroutine that runs the record, None if none does; from any thread."""
        del index  # each slice has one record
        for call in self._calls.copy():
            if call.task is not None and any(each.slice.id == id_ for each in call.running):
                return call.task.get_coro()
        return None

    # --- its calls ---

    def wake(self) -> None:
        """Begin as many calls as possible; set a timer for the next one that is due."""
        loop = turning()
        if loop is None or self._closing:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.busy < self.limit:
            now = self._clock.monotonic()
            batch, left = self.gathering.due(now, at_once=bool(self._orders))
            if not batch:
                if left is not None:
                    self._timer = loop.call_later(left, self.wake)
                return
            call = BatchCall(self, batch)
            call.begin(batch, now)
            self._calls[call] = None
            self.busy += 1
            self._start(call, loop)

    def _start(self, call: BatchCall, loop: asyncio.AbstractEventLoop) -> None:
        call.task = loop.create_task(self._call(call), context=self._contexts.new())
        call.task.add_done_callback(partial(self._done, call))

    async def _call(self, call: BatchCall) -> None:
        """Call the handler with the records of the call."""
        lease.WORKER.set(call)
        batch, loop = call.running, turning()
        error: BaseException | None = None
        outcomes: Sequence[Outcome] = ()
        try:
            answer = await self._handler.handle([each.slice.records[0] for each in batch])
            outcomes = outcomes_of(answer, len(batch))
        except BaseException as raised:
            if turning() is not loop and not self.forked:  # the loop has ended, with its tasks
                raise
            error = raised
        if self.forked:
            end_child(f"a handler on {self.name}", error)
        self._called(call, batch, error, outcomes)
        error = None  # otherwise the exception and this frame would keep each other alive

    def _called(
        self,
        call: BatchCall,
        batch: list[Given],
        error: BaseException | None,
        outcomes: Sequence[Outcome],
    ) -> None:
        """Report the outcome of each record, or run each record alone."""
        if call.lost:
            return
        if error is None:
            self._report(call, outcomes)
        elif len(batch) > 1 and not (for_all(error) or call.gone or self._closing):
            if call.cancelled:
                error = self._timed_out(error)
            self._reports.tell_alone(self, len(batch), error)
            call.split(self._clock.monotonic())
        else:
            self._report(call, [self._timed_out(error) if call.cancelled else error] * len(batch))

    @staticmethod
    def _timed_out(error: BaseException) -> BaseException:
        if not isinstance(error, CancelledError):
            return error
        return TimedOutError("it ran past the ack timeout, and was cancelled")

    def _report(self, call: BatchCall, outcomes: Sequence[Outcome]) -> None:
        """Report a call that has ended."""
        batch, call.running = call.running, []
        failures = self._reports.described(call, outcomes)
        if call.cancelled:
            failures = [each and replace(each, timed_out=True) for each in failures]
        seconds = (self._clock.monotonic() - call.since) / max(1, len(batch))
        self._reports.report(call, batch, outcomes, failures, seconds)

    def _done(self, call: BatchCall, task: asyncio.Task[None]) -> None:
        """Start the next record that runs alone, or end the call."""
        del task
        loop = turning()
        if call.running or not call.alone or self._closing or call.lost or loop is None:
            self._over(call)
            return
        call.begin([call.alone.popleft()], self._clock.monotonic())
        self._start(call, loop)

    def _over(self, call: BatchCall, error: BaseException | None = None) -> None:
        """End the call and free its lanes; once, also if its loop has ended.

        Records that still run have failed with ``error``, or were cancelled before they began.
        """
        if call not in self._calls:
            return
        del self._calls[call]
        if call.running:
            self._report(call, [error or self._timed_out(CancelledError())] * len(call.running))
        if call.gone:
            self.apart -= 1
        else:
            self.busy -= 1
        if call.alone:
            self.gathering.put_back(call.alone)
            call.alone.clear()
        self.gathering.free(call.lanes, self._clock.monotonic())
        self.wake()
        self._close_if_idle()

    def _end_slice(self, id_: int) -> None:
        """Run orders that wait for the slice."""
        if self._orders:
            self._ended(id_)
