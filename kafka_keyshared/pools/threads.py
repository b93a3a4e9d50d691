"""The thread pool: one thread per worker, each with a mailbox of slices.

On the common path a record costs the worker one ``popleft``, the handler call and two identity
tests. Everything else is paid per slice, or where something failed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeAlias

from kafka_keyshared.core.events import (
    Ended,
    Failed,
    Fence,
    FencePassed,
    Recalled,
    Report,
    SetAside,
    Slice,
)
from kafka_keyshared.core.lanes import Lane, is_keyless
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.handling.failure import describe
from kafka_keyshared.handling.handlers import deferred_work
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Ack, DeadLetter, Drop, Record, Retry, Verdict
from kafka_keyshared.pools.port import STOP, Handover
from kafka_keyshared.process import forks
from kafka_keyshared.process.importing import handling
from kafka_keyshared.process.whose import standing

log = log_of("kafka_keyshared.pool")

Handle: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class WorkerSpec:
    """How one worker is made. ``make`` is called in the worker's own thread."""

    subscription: str
    index: int
    name: str
    make: Callable[[], tuple[Handle, Callable[[], None] | None]]
    dead_letter_on: tuple[type[BaseException], ...] = ()


@dataclass
class WorkerCell:
    """One worker: its inbox, what it was given and has not reported, and its thread.

    None in the inbox ends it.
    """

    spec: WorkerSpec
    inbox: SimpleQueue[Handover | Fence | None] = field(default_factory=SimpleQueue)
    given: dict[Slice, Handover] = field(default_factory=dict)
    # What a thread leaves to its successor: the slice it is in, the lanes it sets aside, and which
    # record of the slice was the last to be reported.
    current: Handover | None = None
    failed_lanes: set[Lane] = field(default_factory=set)
    reported: Any = None
    thread: threading.Thread | None = None
    made: threading.Event = field(default_factory=threading.Event)
    broken: BaseException | None = None


class ThreadPool:
    """Runs plain functions and handler classes on threads. See :class:`~.pool.Pool`."""

    def __init__(self, specs: list[WorkerSpec], mailbox: SimpleQueue[Report]) -> None:
        self._mailbox = mailbox
        self._pid = os.getpid()
        self.cells = {(spec.subscription, spec.index): WorkerCell(spec) for spec in specs}

    def start(self) -> None:
        """Start one thread per worker and wait until each has made its handler.

        Raises :class:`ConfigError` when a handler class cannot be made.
        """
        forks.watch(self)
        for cell in self.cells.values():
            self.start_worker(cell)
        for cell in self.cells.values():
            cell.made.wait()
            if cell.broken is not None:
                self.stop(0.0)
                raise ConfigError(
                    f"the handler of {cell.spec.name} could not be made: "
                    f"{type(cell.broken).__name__}: {cell.broken}"
                ) from cell.broken

    def submit(self, share: Slice) -> None:
        """Hand a slice to its worker."""
        cell = self.cells[share.subscription, share.worker]
        handover = Handover(share)
        cell.given[share] = handover
        cell.inbox.put(handover)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        self.cells[fence.subscription, fence.worker].inbox.put(fence)

    def recall(self, subscription: str, worker: int) -> Recalled:
        """Take back every unstarted record of the worker, at once, whatever it is doing."""
        cell = self.cells[subscription, worker]
        return Recalled(
            [(share, handover.take_back()) for share, handover in cell.given.copy().items()]
        )

    def progress(self) -> Mapping[Slice, int]:
        """Return how much of each outstanding slice has not started."""
        return {
            share: handover.unstarted()
            for cell in self.cells.values()
            # A copy in one C call: the worker removes slices meanwhile.
            for share, handover in cell.given.copy().items()
        }

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers whose thread has ended."""
        return [
            place
            for place, cell in self.cells.items()
            if cell.thread is not None and not cell.thread.is_alive()
        ]

    def left(self) -> list[tuple[str, int]]:
        """Return nothing: a thread that has ended is replaced."""
        return []

    def tend(self) -> None:
        """Nothing is due: a thread cannot be told to end."""

    def where(self, subscription: str, worker: int) -> str:
        """Return where in the user's program the worker's thread is now."""
        thread = self.cells[subscription, worker].thread
        return "" if thread is None or thread.ident is None else standing(thread.ident)

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread for the worker; the record that the old one ran counts as failed.

        The new thread goes on behind that record, and goes on setting aside what follows in lanes
        that have failed.
        """
        cell = self.cells[subscription, worker]
        self._fail_running(cell)
        self.start_worker(cell)

    def abandon(self, subscription: str, worker: int) -> None:
        """Report what the dead worker was running as failed, and all its slices as ended."""
        cell = self.cells[subscription, worker]
        self._fail_running(cell)
        for share in list(cell.given):
            self._end(cell, share, 0.0)
        cell.inbox = SimpleQueue()
        cell.current = cell.thread = None

    def stop(self, timeout: float) -> list[str]:
        """End the workers, closing their handlers; return the names of those still running.

        Nothing that has not started is run any more.
        """
        deadline = time.monotonic() + timeout
        for cell in self.cells.values():
            for handover in cell.given.copy().values():
                handover.take_back()
            cell.inbox.put(None)
        running = []
        for cell in self.cells.values():
            if cell.thread is not None:
                cell.thread.join(max(0.0, deadline - time.monotonic()))
                if cell.thread.is_alive():
                    running.append(cell.spec.name)
        return running

    def forked(self) -> None:
        """Leave nothing to do in the child: what it takes next is the end of its slice."""
        for cell in self.cells.values():
            for handover in cell.given.values():
                handover.todo.clear()
                handover.todo.append(STOP)

    # --- inside ---

    def start_worker(self, cell: WorkerCell) -> None:
        """Give a worker a thread."""
        try:
            thread = threading.Thread(
                target=self.live,
                args=(cell,),
                name=f"keyshared-{cell.spec.subscription}-{cell.spec.name}",
                daemon=True,  # a handler that never returns must not keep the process from exiting
            )
            thread.start()
        except RuntimeError as error:  # "can't start new thread": tried again at the next heartbeat
            log.exception("%s could not be started", cell.spec.name)
            cell.broken = error
            cell.made.set()
            return
        cell.thread = thread

    def live(self, cell: WorkerCell) -> None:
        """Run slices until told to end. This is the whole life of a worker's thread."""
        with handling(), forks.ends_here(f"a handler on {cell.spec.name}"):
            self._live(cell)

    def _live(self, cell: WorkerCell) -> None:
        try:
            handle, close = cell.spec.make()
        except BaseException as error:
            if self._in_child():
                raise
            cell.broken = error
            return
        finally:
            cell.made.set()
        if cell.current is not None:
            self._run_slice(cell, cell.current, handle)
        goes_on = not self._in_child()
        while goes_on and (item := cell.inbox.get()) is not None:
            if isinstance(item, Fence):
                cell.failed_lanes.difference_update(item.lanes)
                self._mailbox.put(FencePassed(item.subscription, item.worker, item.lanes))
            else:
                goes_on = self._run_slice(cell, item, handle)
        if close is not None and goes_on:
            try:
                close()
            except Exception:
                if self._in_child():
                    raise
                log.exception("%s: close() of the handler failed", cell.spec.name)

    def _in_child(self) -> bool:
        return os.getpid() != self._pid

    def _run_slice(self, cell: WorkerCell, handover: Handover, handle: Handle) -> bool:
        """Run a slice and report its end; say whether this is still the worker, not its child."""
        cell.current = handover
        started = time.monotonic()
        self._run(cell, handover, handle, cell.failed_lanes)
        if self._in_child():
            return False
        self._end(cell, handover.slice, time.monotonic() - started)
        cell.current = cell.reported = None
        return True

    def _end(self, cell: WorkerCell, share: Slice, seconds: float) -> None:
        # In this order: a slice that is neither given nor reported would look unstarted.
        self._mailbox.put(Ended(share, seconds))
        del cell.given[share]

    def _run(
        self, cell: WorkerCell, handover: Handover, handle: Handle, failed_lanes: set[Lane]
    ) -> None:
        take, share = handover.todo.popleft, handover.slice
        lane_of = share.lane_of
        while True:
            record: Any = None
            try:
                if not failed_lanes:
                    while (record := take()) is not STOP:
                        if (result := handle(record)) is not None:
                            _judge(result, record, share)
                    break
                while (record := take()) is not STOP:
                    if lane_of(record) in failed_lanes:
                        self._mailbox.put(SetAside(share, record))
                        cell.reported = record
                    elif (result := handle(record)) is not None:
                        _judge(result, record, share)
                break
            except BaseException as error:  # SystemExit included: a failed attempt
                if self._in_child():
                    raise
                if isinstance(error, Ack):
                    continue
                share.came.restore(record)  # before anybody asks it for its lane
                if isinstance(error, Drop):
                    share.dropped.append(record)
                    continue
                lane = lane_of(record)
                # Posted before the next record is taken: whoever reads progress first and the
                # mailbox after it knows of every failure among the started records.
                failure = describe(error, cell.spec.dead_letter_on)
                self._mailbox.put(Failed(share, record, failure))
                cell.reported = record
                if not is_keyless(lane):
                    failed_lanes.add(lane)

    def _fail_running(self, cell: WorkerCell) -> None:
        """Report what a dead thread was running as failed, once, and close its lane here too."""
        handover = cell.current
        if handover is None or handover.slice not in cell.given:
            cell.current = None
            return
        share = handover.slice
        started = len(share.records) - handover.unstarted()
        record = share.records[started - 1] if started > 0 else None
        if record is None or record is cell.reported:
            return
        cell.reported = record
        share.came.restore(record)
        failure = describe(RuntimeError("the worker's thread ended while it was running"))
        self._mailbox.put(Failed(share, record, failure))
        lane = share.lane_of(record)
        if not is_keyless(lane):
            cell.failed_lanes.add(lane)


_warned_results: set[type] = set()


def _judge(result: Any, record: Record, share: Slice) -> None:
    """Act on a handler's return value that is not None; raise what amounts to a failed attempt."""
    if isinstance(result, type) and issubclass(result, Verdict):
        result = result()  # "return Retry" means what "raise Retry" means
    if isinstance(result, Ack):
        return
    if isinstance(result, Drop):
        share.came.restore(record)
        share.dropped.append(record)
    elif isinstance(result, Retry | DeadLetter):
        raise result
    elif (deferred := deferred_work(result)) is not None:
        raise TypeError(
            f"the handler returned {deferred}: what it stands for has not been done. "
            "Do the work, or wait for it, before the handler returns"
        )
    elif type(result) not in _warned_results:
        _warned_results.add(type(result))
        log.warning(
            "the handler returned %.100r (%s), which counts as done; return None, or a verdict "
            "(Ack, Retry, DeadLetter, Drop)",
            result,
            type(result).__name__,
        )
