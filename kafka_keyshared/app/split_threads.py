"""The loops of a split consumer, each on its own thread.

A plain loop ends with its program. An exception ends the process with a traceback, and Ctrl-C
interrupts ``poll``. A thread gets neither, and the keys of a member whose thread has ended would
stay blocked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextvars import copy_context
from queue import Empty
from typing import Protocol

from kafka_keyshared.core.telemetry.failure_kinds import in_short
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import names_of, some
from kafka_keyshared.platform.signals import stop_signals
from kafka_keyshared.runtime.run_guard import LOOK_AGAIN

log = log_of("kafka_keyshared.split")


class LoopInstance(Protocol):
    """The part of an instance that the loops need."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""

    @property
    def error(self) -> BaseException | None:
        """The error it failed with, or None."""

    def stop(self) -> float:
        """Request a stop, the second time hurry it; return its stop timeout in seconds."""

    def result(self) -> int:
        """Wait for its end and return the exit status, or raise its error."""


class Loops:
    """Runs a loop for each member of a split consumer, until all have ended or one fails."""

    def __init__(self, loops: Mapping[Cell, Callable[[], object]], instance: LoopInstance) -> None:
        self._loops = loops
        self._instance = instance
        self._stop_by: float | None = None
        self._error: BaseException | None = None
        # Cells whose threads have ended. None wakes the wait for a requested stop.
        self._ended: Mailbox[Cell | None] = Mailbox()

    def run(self) -> int:
        """Run all loops to the end; return the exit status, or raise the first loop's error."""
        running = dict.fromkeys(self._loops)
        with stop_signals(self._ask, also_before=True):
            for cell in self._loops:
                self._start(cell)
            try:
                self._wait(running)
            finally:
                self._end()
                try:
                    status = self._instance.result()
                finally:
                    if self._error is not None:
                        raise self._error
        if running:
            log.error("loops still running at exit: %s", some(cell.name for cell in running))
        return 1 if running else status

    def _start(self, cell: Cell) -> None:
        # Each loop sees the program's context variables; variables it sets stay its own.
        run: Callable[..., object] = copy_context().run
        name = f"keyshared-{cell.name}"
        threading.Thread(target=run, args=(self._work, cell), name=name, daemon=True).start()

    def _wait(self, running: dict[Cell, None]) -> None:
        """Wait until every loop has ended; once the instance is over, only to the stop timeout."""
        while running:
            if self._instance.over and time.monotonic() >= self._end():
                return
            try:
                ended = self._ended.get(timeout=LOOK_AGAIN)
            except Empty:
                continue
            if ended is not None:
                running.pop(ended)

    def _ask(self) -> None:
        """Stop, from a signal handler; the second time, hurry."""
        if self._stop_by is None:
            self._end()
        else:
            self._stop_by = time.monotonic()
            self._instance.stop()
        self._ended.put(None)

    def _end(self) -> float:
        """Let the loops and the instance finish their records; return the deadline."""
        if self._stop_by is None:
            for cell in self._loops:
                cell.dismiss()
            self._stop_by = time.monotonic() + self._instance.stop()
        return self._stop_by

    def _work(self, cell: Cell) -> None:
        cell.in_loop = True
        try:
            self._loops[cell]()
        except BaseException as error:  # noqa: BLE001 - run() raises it, in the main thread
            if not (cell.dismissed and isinstance(error, KeyboardInterrupt)):
                self._failed(cell, error)
        finally:
            # After the stop request, so that returned records do not run elsewhere first.
            cell.leave(broken=bool(cell.leaving))
            self._ended.put(cell)

    def _failed(self, cell: Cell, error: BaseException) -> None:
        if self._instance.error is not None and error.__cause__ is self._instance.error:
            return  # result() raises it, once for all loops
        what = in_short(describe(error, cell.clock))
        if self._error is not None:
            log.error("%s: its loop failed, too: %s", cell.name, what)
            return
        self._error = error
        held = some(names_of(slice_.records[0] for slice_ in cell.held()))
        log.error("%s: its loop failed, so the program stops: %s", cell.name, what)
        log.info(
            "%s: received but not settled; it runs again at the next start: %s", cell.name, held
        )
        self._end()
