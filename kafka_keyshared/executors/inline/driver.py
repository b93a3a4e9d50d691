"""Inline execution: records run through the core in the caller's thread.

There is no Kafka client, no thread and no waiting. The code of a worker, from making its handler to
closing it, is the thread pool's own. The core decides the outcome of each record. The module is
part of ``pools/``, below the owner and the client. It serves programs that have records but no
consumer group: tests of users' handlers, and an executor that gets its records from elsewhere.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.batches.batch_queue import BatchCell
from kafka_keyshared.executors.batches.pool import BatchPool
from kafka_keyshared.executors.command_interpreter import Actor, Mail
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.notice_text import line_of
from kafka_keyshared.executors.port import Pool
from kafka_keyshared.executors.thread_state import ThreadCell, WorkerCell, WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.executors.threads.thread_lifecycle import WorkerThreads
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of

log = log_of("kafka_keyshared.pool")

C = TypeVar("C", bound=ThreadCell)

CHUNK = 2_000
"""Most records that the core gets at once."""


class InlineWorkers(Pool, Protocol):
    """Workers that run only inside :meth:`work`."""

    def work(self) -> None:
        """Run every worker until it has no work left."""

    def close(self) -> None:
        """Close the handlers, as workers do when they end."""


class InlineThreads(WorkerThreads[C]):
    """Runs the workers of a pool in the thread that calls :meth:`run_all`.

    Handlers can therefore use objects that are bound to that thread. A worker ends when it has no
    work left, and is started again for new work. Its handler is kept in between.
    """

    def run_all(self) -> None:
        """Run every worker until it has no work left."""
        for cell in self.cells.values():
            if cell.has_work():
                self._live_once(cell)

    def close(self, cell: C) -> None:
        """Close the handler of a worker, as a worker does when it ends."""
        make = cell.spec.make
        if isinstance(make, _ReusedHandler):
            cell.spec = replace(cell.spec, make=make.last)
            self._live_once(cell)

    def close_all(self) -> None:
        """Close the handlers of all workers."""
        for cell in self.cells.values():
            self.close(cell)

    def start_worker(self, cell: C) -> None:
        """Make the handler or note why it failed; there is no work yet."""
        cell.spec = replace(cell.spec, make=_ReusedHandler(cell.spec.make))
        self._live_once(cell)

    def _live_once(self, cell: C) -> None:
        cell.finish()
        self._pid = os.getpid()  # the current process may be a fork of the one that made this
        self.live(cell)


class InlinePool(ThreadPool):
    """Runs handlers of single records in the thread that calls :meth:`work`."""

    _threads: InlineThreads[WorkerCell]

    def __init__(
        self, specs: Sequence[WorkerSpec], mailbox: SimpleQueue[Any], clock: Clock
    ) -> None:
        super().__init__(specs, mailbox, clock, threads=InlineThreads)

    def work(self) -> None:
        """Run every worker until it has no work left."""
        self._threads.run_all()

    def made(self, subscription: str, worker: int) -> Made:
        """Return the handler of a worker and its related calls."""
        return self.cells[subscription, worker].spec.make()

    def end(self, subscription: str, worker: int) -> None:
        """Close the handler of a worker that holds nothing."""
        self._threads.close(self.cells.pop((subscription, worker)))

    def close(self) -> None:
        """Close the handlers, as workers do when they end."""
        self._threads.close_all()


class InlineBatches(BatchPool):
    """Runs batch handlers in the thread that calls :meth:`work`.

    No records arrive while a handler runs, so a call does not wait for more: ``wait`` is 0.
    """

    _threads: InlineThreads[BatchCell]

    def __init__(
        self, specs: Sequence[WorkerSpec], mailbox: SimpleQueue[Any], clock: Clock, rule: BatchRule
    ) -> None:
        super().__init__(specs, mailbox, clock, rule._replace(wait=0.0), threads=InlineThreads)

    def work(self) -> None:
        """Run every worker until it has no work left."""
        self._threads.run_all()

    def end(self, subscription: str, worker: int) -> None:
        """Close the handler of a worker that holds nothing."""
        self._threads.close(self.cells.pop((subscription, worker)))

    def close(self) -> None:
        """Close the handlers, as workers do when they end."""
        self._threads.close_all()


class _ReusedHandler:
    """Makes a handler once and returns it each time, without its ``close``."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self.made: Made | None = None

    def __call__(self) -> Made:
        if self.made is None:
            self.made = self._make()
        return self.made._replace(close=None)

    def last(self) -> Made:
        """Return it for the last time, with its ``close``."""
        return self.made or self._make()


class Inline(Actor):
    """Runs records through the core until none of them can make progress.

    ``clock`` is monotonic, in seconds. ``wait`` lets time pass up to a given time, when only time
    is left to wait for. ``mailbox`` is the pool's. A subclass defines where dead letters go.
    """

    def __init__(
        self,
        core: Dispatcher,
        pool: InlineWorkers,
        mailbox: SimpleQueue[Any],
        clock: Callable[[], float],
        wait: Callable[[float], None],
    ) -> None:
        super().__init__(core, pool, clock)
        self.workers: InlineWorkers = pool
        self.ahead: deque[Record] = deque()
        self._mailbox = mailbox
        self._wait = wait
        self._halted: str | None = None

    def run(self, records: Iterable[Record]) -> None:
        """Run these records until none can make progress; their partitions must be started.

        Raises :class:`KeySharedError` if an instance would stop here. Blocked records stay in the
        core. Records that do not fit into the window stay in ``ahead``.
        """
        self.ahead.extend(records)
        while True:
            moved = self.turn()
            self.refuse_if_halted()
            if moved:
                continue
            due = self.core.next_due()
            if due is None:
                return
            self._wait(due)
            self.tell(ev.LeaseDue())

    def refuse_if_halted(self) -> None:
        """Raise :class:`KeySharedError` if an instance would stop here."""
        if self._halted is not None:
            raise KeySharedError(f"the instance would stop here: {self._halted}")

    def turn(self) -> bool:
        """Do one round: fetch, run, process mail. Return whether anything has changed."""
        moved = self._fetch()
        self.workers.work()
        return self.serve(0.0) or moved

    def _fetch(self) -> bool:
        """Give the core as many records as it has room for; return whether there were any."""
        room = min(self.core.room(), CHUNK)
        if paused := self.core.holds.paused(self.core.partitions):
            chunk = self._not_of(paused, room)
        else:
            chunk = [self.ahead.popleft() for _ in range(min(room, len(self.ahead)))]
        if chunk:
            self.tell(ev.Fetched(chunk, self.ends_of(chunk)))
        return bool(chunk)

    def _not_of(self, paused: Collection[TopicPartition], room: int) -> list[Record]:
        chunk: list[Record] = []
        left: deque[Record] = deque()
        while self.ahead and len(chunk) < room:
            following = self.ahead.popleft()
            (left if partition_of(following) in paused else chunk).append(following)
        self.ahead.extendleft(reversed(left))
        return chunk

    def ends_of(self, chunk: Sequence[Record]) -> dict[TopicPartition, int]:
        """Return the position of each partition behind these records."""
        return {partition_of(each): (each.offset() or 0) + 1 for each in chunk}

    def serve(self, timeout: float) -> bool:
        """Process all mail without waiting, because nothing is posted during the call."""
        del timeout
        mail: list[Mail] = []
        while True:
            try:
                mail.append(self._mailbox.get_nowait())
            except Empty:
                break
        self.hear(mail)
        return bool(mail)

    # --- replacements for a client ---

    @abstractmethod
    def publish(self, publish: cmd.Publish) -> None:
        """Write a dead letter, and :meth:`answer` it."""

    def answer(self, answer: ev.DeadLetterAnswer | ev.CommitAnswer) -> None:
        """Post an answer."""
        self._mailbox.put(answer)

    def send(self, commit: cmd.Commit) -> None:
        """Accept every commit: no other consumer continues with these records."""
        self.answer(ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED))

    def client_events(self, messages: Sequence[Record]) -> None:
        """Refuse client events, which are not records."""
        raise KeySharedError(f"an error of a client's is no record: {messages[0].error()}")

    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Do nothing: the caller supplies the records."""

    def notice(self, notice: cmd.Notice) -> None:
        """Log it."""
        line = line_of(notice)
        log.log(line.level, "%s", line.text)

    def halt(self, reason: str) -> None:
        """End the run with this reason, after the round."""
        self._halted = reason
