"""Threads of a pool's workers, from their start to their end.

A pool owns a :class:`WorkerThreads` and implements :class:`ThreadWork`, the work of its threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import replace
from typing import Generic, Protocol, TypeAlias, TypeVar

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import StartWorker
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors import lease
from kafka_keyshared.executors.contexts import Contexts
from kafka_keyshared.executors.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.thread_state import ThreadCell, WorkerSpec
from kafka_keyshared.logs import log_of
from kafka_keyshared.platform import forks
from kafka_keyshared.platform.reentry_guard import handling
from kafka_keyshared.platform.stack_frames import stack_of, standing

log = log_of("kafka_keyshared.pool")

C = TypeVar("C", bound=ThreadCell)


Place: TypeAlias = tuple[str, int]
"""A worker, by its subscription and its number."""


class ThreadWork(Protocol[C]):
    """The work of a pool's threads. The pool implements it."""

    def make_cell(self, spec: WorkerSpec) -> C:
        """Return the cell of a worker."""

    def run_given(self, cell: C, made: Made) -> bool:
        """Run all that the worker is given; return whether to close its handler afterwards."""

    def send_off(self, cell: C) -> None:
        """Have the worker start nothing more, and end."""


class WorkerThreads(Generic[C]):
    """The threads of a pool and their cells, for the pool that calls it.

    ``cells`` has one cell per worker. ``beside`` has the cells whose threads are stuck, while
    replacement threads do their workers' work.
    """

    def __init__(self, specs: Sequence[WorkerSpec], work: ThreadWork[C], clock: Clock) -> None:
        self._work = work
        self._clock = clock
        self._pid = os.getpid()
        self._lanes: Lanes = own_lanes
        # Each thread, also a later one, sees the context values that the program set before run().
        self._context = copy_context()
        self.cells: dict[Place, C] = {
            (spec.subscription, spec.index): work.make_cell(spec) for spec in specs
        }
        self.beside: list[C] = []

    # --- calls of the owner ---

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start one thread per worker and wait until each has made its handler.

        Raises :class:`ConfigError` if a handler cannot be made. The pool then has to stop.
        """
        forks.watch(self)
        self._lanes = lanes
        for cell in self.cells.values():
            cell.failed = self.no_lanes(cell.spec)
            self.start_worker(cell)
        for cell in self.cells.values():
            cell.made.wait()
            if cell.broken is not None:
                raise ConfigError(
                    f"the handler of {cell.name} could not be made: "
                    f"{type(cell.broken).__name__}: {cell.broken}"
                ) from cell.broken

    def add(self, worker: StartWorker) -> None:
        """Start one more worker thread, with the same handler as the others."""
        of = next(
            each for each in self.cells.values() if each.spec.subscription == worker.subscription
        )
        cell = self._work.make_cell(replace(of.spec, index=worker.worker, name=worker.name))
        cell.failed = self.no_lanes(cell.spec)
        self.cells[worker.subscription, worker.worker] = cell
        self.start_worker(cell)

    def dead(self) -> list[Place]:
        """Return the workers whose thread has ended."""
        ended = {whose: cell for whose, cell in self.cells.items() if cell.over()}
        for whose in [whose for whose, cell in ended.items() if cell.sent_home]:
            del self.cells[whose], ended[whose]
        return [*ended]

    def revived(self) -> list[Place]:
        """Return the workers whose handlers were made since the previous call."""
        found = [whose for whose, cell in self.cells.items() if cell.revived]
        for whose in found:
            self.cells[whose].revived = False
        return found

    def where(self, subscription: str, worker: int, slice_: int) -> str:
        """Return the place in the user's program of the thread that runs the slice."""
        ident = self._thread_in(subscription, worker, slice_)
        return "" if ident is None else standing(ident)

    def stack(self, subscription: str, worker: int, slice_: int) -> str:
        """Return the call stack of this thread."""
        ident = self._thread_in(subscription, worker, slice_)
        return "" if ident is None else stack_of(ident)

    def _thread_in(self, subscription: str, worker: int, slice_: int) -> int | None:
        # The caller may have seen the record running before its worker was gone.
        for cell in (self.cells.get((subscription, worker)), *self.beside):
            if cell is not None and cell.thread is not None and cell.is_in(slice_):
                return cell.thread.ident
        return None

    def stop(self, timeout: float) -> list[str]:
        """End the workers and close their handlers; return the names of those still running.

        Unstarted records are not run any more.
        """
        now = self._clock.monotonic
        deadline = now() + timeout
        for cell in self.cells.values():
            self._work.send_off(cell)
        running = []
        for cell in [*self.cells.values(), *self.beside]:
            if cell.thread is not None and cell.lives():
                cell.thread.join(max(0.0, deadline - now()))
                if cell.lives():
                    running.append(cell.name + (" (stuck)" if cell in self.beside else ""))
        return running

    def forked(self) -> None:
        """Clear the remaining work in the child that a handler has forked."""
        for cell in self.cells.values():
            cell.clear()

    # --- its threads ---

    def start_worker(self, cell: C) -> None:
        """Start a thread for a worker."""
        thread = threading.Thread(
            target=self._context.copy().run,
            args=(self.live, cell),
            name=cell.spec.thread,
            daemon=True,  # a handler that never returns must not keep the process from exiting
        )
        try:
            thread.start()
        except RuntimeError as error:  # "can't start new thread": tried again at the next heartbeat
            log.exception("%s could not be started", cell.name, extra={"worker": cell.name})
            cell.broken = error
            cell.made.set()
            cell.thread = cell.thread or thread  # it counts as a thread that has ended
            return
        cell.thread = thread

    def live(self, cell: C) -> None:
        """Make the handler and work until the end; this is the target of each thread."""
        before = lease.WORKER.set(cell)
        try:
            with handling(), forks.ends_here(f"a handler on {cell.name}"):
                self._live(cell)
        finally:
            # The thread may be the caller's: executors/inline/driver.py.
            lease.WORKER.reset(before)

    def _live(self, cell: C) -> None:
        try:
            made = cell.make()
            cell.contexts = Contexts(copy_context())
        except BaseException as error:
            if self.in_child():
                raise
            cell.broken = error
            return
        finally:
            cell.made.set()
        cell.revived = True
        if self._work.run_given(cell, made) and made.close is not None:
            try:
                made.close()
            except Exception:
                if self.in_child():
                    raise
                log.exception(
                    "%s: close() of the handler failed", cell.name, extra={"worker": cell.name}
                )

    def in_child(self) -> bool:
        """Return whether a handler has forked this process; its records are the parent's."""
        return os.getpid() != self._pid

    def no_lanes(self, spec: WorkerSpec) -> FailedLanes:
        """Return an empty set of failed lanes for a worker."""
        return FailedLanes(self._lanes(spec.subscription))

    def may_follow(self, cell: C) -> bool:
        """Return whether another thread may do the worker's work while this one is stuck."""
        self.beside[:] = [each for each in self.beside if each.lives() or each.current is not None]
        return not cell.spec.one_thread and len(self.beside) < len(self.cells)
