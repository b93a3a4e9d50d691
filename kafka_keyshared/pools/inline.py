"""Records through the whole core in the thread that gives them: no client, no thread, no waiting.

What a worker does, from making its handler to closing it, is the thread pool's own code, and what
becomes of a record is the core's. It stands with the pools, below the owner and the client, for
whoever has records and no group to read them from: the tests of users' handlers, and an executor
that gets its records from elsewhere.
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
from kafka_keyshared.core import commands as cmd
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.handling.batching import BatchRule
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.pools.actor import Actor, Mail
from kafka_keyshared.pools.batch_cells import BatchCell
from kafka_keyshared.pools.batches import BatchPool
from kafka_keyshared.pools.crew import Crew
from kafka_keyshared.pools.port import Pool
from kafka_keyshared.pools.threads import ThreadPool
from kafka_keyshared.pools.worker_cells import ThreadCell, WorkerCell, WorkerSpec

log = log_of("kafka_keyshared.pool")

C = TypeVar("C", bound=ThreadCell)

CHUNK = 2_000
"""Most records that the core gets at once."""


class InlineWorkers(Pool, Protocol):
    """Workers that do something only while they are asked to."""

    def work(self) -> None:
        """Let every worker do all that it has."""

    def close(self) -> None:
        """Close the handlers, as workers do when they end."""


class InlineCrew(Crew[C]):
    """Runs handlers where :meth:`work` is called, so that they can use what is bound to a thread.

    A worker lives for as long as there is something to do and is called into life again for the
    next; its handler is kept meanwhile.
    """

    @abstractmethod
    def has_work(self, cell: C) -> bool:
        """Say whether the worker has something to do."""

    @abstractmethod
    def end_behind(self, cell: C) -> None:
        """Have the worker end behind all that it has."""

    def work(self) -> None:
        """Let every worker do all that it has."""
        for cell in self.cells.values():
            if self.has_work(cell):
                self._live_once(cell)

    def made(self, subscription: str, worker: int) -> Made:
        """Return what a worker uses: its handler, and what belongs to that."""
        return self.cells[subscription, worker].spec.make()

    def close(self) -> None:
        """Close the handlers, as workers do when they end."""
        for cell in self.cells.values():
            self._close(cell)

    def end(self, subscription: str, worker: int) -> None:
        """Close the handler of a worker that has nothing left."""
        self._close(self.cells.pop((subscription, worker)))

    def _close(self, cell: C) -> None:
        make = cell.spec.make
        if isinstance(make, _Kept):
            cell.spec = replace(cell.spec, make=make.last)
            self._live_once(cell)

    def _live_once(self, cell: C) -> None:
        self.end_behind(cell)
        self._pid = os.getpid()  # whoever uses it may be forked from the process that made this
        self.live(cell)

    def start_worker(self, cell: C) -> None:
        """Make its handler, or say why not; it has nothing to do yet."""
        cell.spec = replace(cell.spec, make=_Kept(cell.spec.make))
        self._live_once(cell)


class InlinePool(InlineCrew[WorkerCell], ThreadPool):
    """Runs handlers of single records where :meth:`work` is called."""

    def has_work(self, cell: WorkerCell) -> bool:
        """Say whether something is in its inbox."""
        return not cell.inbox.empty()

    def end_behind(self, cell: WorkerCell) -> None:
        """Put the end behind what is in its inbox."""
        cell.inbox.put(None)


class InlineBatches(InlineCrew[BatchCell], BatchPool):
    """Runs handlers of several records where :meth:`work` is called.

    Nothing comes while they run, so a call waits for no further record: ``wait`` passes at once.
    """

    def __init__(
        self, specs: list[WorkerSpec], mailbox: SimpleQueue[Any], clock: Clock, rule: BatchRule
    ) -> None:
        super().__init__(specs, mailbox, clock, rule._replace(wait=0.0))

    def has_work(self, cell: BatchCell) -> bool:
        """Say whether records wait, or an order about state."""
        return cell.waits()

    def end_behind(self, cell: BatchCell) -> None:
        """Have it end when there is nothing left to call for."""
        cell.closing = True


class _Kept:
    """Makes a handler once and gives it out again and again, without what would close it."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make
        self.made: Made | None = None

    def __call__(self) -> Made:
        if self.made is None:
            self.made = self._make()
        return self.made._replace(close=None)

    def last(self) -> Made:
        """Give it out for the last time, with what closes it."""
        return self.made or self._make()


class Inline(Actor):
    """Takes records through the core until none of them can go on.

    ``clock`` is monotonic, in seconds; ``wait`` lets time pass up to then, when nothing but time is
    left to wait for. ``mailbox`` is the pool's. Where dead letters go is a subclass's to say.
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
        """Run these, whose partitions have been started; return when nothing can go on.

        Raises :class:`KeySharedError` where an instance would stop. What is blocked stays with the
        core, what it has no room for in ``ahead``.
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
            self.tell(ev.Flush())

    def refuse_if_halted(self) -> None:
        """Raise :class:`KeySharedError` where an instance would stop."""
        if self._halted is not None:
            raise KeySharedError(f"the instance would stop here: {self._halted}")

    def turn(self) -> bool:
        """Do one round: fetch, run, mail; say whether anything has moved."""
        moved = self._fetch()
        self.workers.work()
        return self.serve(0.0) or moved

    def _fetch(self) -> bool:
        """Give the core what it has room for; say whether it took anything."""
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
        """Return up to where each partition has come with these records."""
        return {partition_of(each): (each.offset() or 0) + 1 for each in chunk}

    def serve(self, timeout: float) -> bool:
        """Take all the mail; nobody posts any while this waits, so it does not."""
        del timeout
        mail: list[Mail] = []
        while True:
            try:
                mail.append(self._mailbox.get_nowait())
            except Empty:
                break
        self.hear(mail)
        return bool(mail)

    # --- what there is instead of a client ---

    @abstractmethod
    def publish(self, publish: cmd.Publish) -> None:
        """Write a dead letter, and :meth:`answer` it."""

    def answer(self, answer: ev.DeadLettered | ev.CommitAnswered) -> None:
        """Post an answer."""
        self._mailbox.put(answer)

    def send(self, commit: cmd.Commit) -> None:
        """Take every commit: there is nobody else to go on with these records."""
        self.answer(ev.CommitAnswered(commit, ev.CommitResult.ACCEPTED))

    def client_events(self, messages: Sequence[Record]) -> None:
        """Refuse what is no record."""
        raise KeySharedError(f"an error of a client's is no record: {messages[0].error()}")

    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Do nothing: records come from where they are given."""

    def notice(self, notice: cmd.Notice) -> None:
        """Log it."""
        log.log(notice.level, "%s", notice.text)

    def halt(self, reason: str) -> None:
        """End the run with this, after the round."""
        self._halted = reason
