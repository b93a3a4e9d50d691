"""The process pool: a process and a parent thread per worker.

The thread works as in the thread pool. Instead of calling the handler, it sends a batch to the
process and waits for the result. A process therefore holds one batch at most, and no state that it
could lose. The worker's :class:`~.shm_progress.ProgressBoard` shows the owner the progress of a
running batch.

A process that exceeds the ack timeout is killed. A process that dies fails the record that it was
running, and no other. The worker's thread ends with it, and both are replaced as a dead thread is.
"""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, cast

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Lapse, TimeOut
from kafka_keyshared.core.contract.events import Recalled
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.processes.process_batches import ProcessBatches, ProcessCell
from kafka_keyshared.executors.processes.remote_batch import SentSlice
from kafka_keyshared.executors.processes.spawned import KILLED_WITHIN
from kafka_keyshared.executors.processes.worker_process import (
    HandlerRaisedError,
    ProcessEndedError,
    StoppedError,
    TimedOutError,
    WorkerProcess,
)
from kafka_keyshared.executors.thread_state import WorkerCell, WorkerSpec
from kafka_keyshared.executors.threads.pool import ManageThreads, ThreadPool
from kafka_keyshared.executors.threads.thread_lifecycle import WorkerThreads
from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.pool")

STARTS = 5
"""Processes, one after the other, in which a handler may fail to be made. One more would be one too
many: the core gives up a worker that is dead at six heartbeats."""

STOPPED_WITHIN = 0.2
"""Seconds beyond the stop timeout that a process without a record has before it is killed."""


class ProcessPool(ThreadPool):
    """Runs functions and handler classes in processes. See
    :class:`~kafka_keyshared.executors.port.Pool`."""

    def __init__(
        self,
        specs: Sequence[WorkerSpec],
        mailbox: SimpleQueue[Any],
        clock: Clock,
        *,
        threads: ManageThreads = WorkerThreads,
    ) -> None:
        self.batches = ProcessBatches(mailbox, clock)
        super().__init__(specs, mailbox, clock, runner=self.batches, threads=threads)

    def make_cell(self, spec: WorkerSpec) -> WorkerCell:
        """Return the cell of a worker whose handler is made and called in a process."""
        return ProcessCell(spec, process=WorkerProcess(spec))

    def beat(self) -> None:
        """Limit how often a worker is restarted.

        Raises :class:`HandlerRaisedError` if a worker could not make its handler in the last
        :data:`STARTS` processes. The error ends the instance. This check runs before the core finds
        the worker dead. The core would give the worker up, and the error of its handler would be
        lost.
        """
        super().beat()
        for cell in self.cells.values():
            not_made = cast(ProcessCell, cell).process.not_made
            if cell.over() and len(not_made) >= STARTS:
                raise HandlerRaisedError(
                    f"the handler of {cell.name} could not be made in {len(not_made)} processes, "
                    f"one after the other: {not_made[-1].text}\n{not_made[-1].stack}".rstrip()
                )

    def run_given(self, cell: WorkerCell, made: Made) -> bool:
        """Run slices until the end of the inbox, or until the process has died."""
        try:
            return super().run_given(cell, made)
        except (ProcessEndedError, TimedOutError) as error:
            # Only the text is logged: a log record with the exception would keep its frames alive.
            text, worker = "%s: %s; another one is started", {"worker": cell.name}
            log.warning(text, cell.name, str(error), extra=worker)
            return False
        except StoppedError:
            return False  # stop() has logged it

    def time_out(self, past: TimeOut) -> None:
        """Kill the process that runs the record, and start another one."""
        ((id_, index),) = past.running
        cell = cast(ProcessCell, self.cells[past.subscription, past.worker])
        handover = cell.given.get(id_)
        if isinstance(handover, SentSlice) and cell.lives() and handover.holds_at(index):
            cell.process.kill()
            if cell.thread is not None:
                cell.thread.join(KILLED_WITHIN)
            if cell.over():
                self._threads.start_worker(cell)
        self._mailbox.put(Recalled(past.subscription, past.worker))

    def lapse(self, lapse: Lapse) -> None:
        """Notify the process that leases are over; results of their records settle nothing."""
        super().lapse(lapse)
        cell = cast(ProcessCell, self.cells[lapse.subscription, lapse.worker])
        if cell.lives():
            cell.process.lapse(lapse.slices, lapse.partitions)

    def stop(self, timeout: float) -> list[str]:
        """End the workers; kill each process that still exists at the end of the timeout.

        A process may be stopped, or its handler may ignore SIGTERM. If it were left alone, it would
        keep the program from exiting.
        """
        running = super().stop(timeout)
        left = [each for each in map(_as_processes, self.cells.values()) if each.name in running]
        killed = [cell for cell in left if cell.current is not None and cell.process.stop()]
        # The others close their handlers; after that a process ends within milliseconds.
        deadline = self._clock.monotonic() + STOPPED_WITHIN
        for cell in left:
            if cell not in killed and not cell.ended_by(deadline, self._clock.monotonic):
                killed += [cell] if cell.process.stop() else []
        deadline = self._clock.monotonic() + KILLED_WITHIN
        killed = [cell for cell in killed if not cell.process.closed]
        for cell in killed:
            ended = cell.process.ended(max(0.0, deadline - self._clock.monotonic()))
            log.error(
                "%s: its process %d %s when the stop timeout was over, and %s",
                cell.name,
                cell.process.pid,
                "had not closed its handler" if cell.current is None else "still ran a record",
                "was killed" if ended else "does not end although it was killed",
                extra={"worker": cell.name},
            )
        return [cell.name for cell in killed]

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the place in the user's program of the process that has the slice."""
        del index  # it runs one record at a time
        cell = cast(ProcessCell | None, self.cells.get((subscription, worker)))
        return cell.process.where() if cell is not None and cell.is_in(slice_) else ""

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: a process reports only the place."""
        del subscription, worker, slice_, index
        return ""


def _as_processes(cell: WorkerCell) -> ProcessCell:
    return cast(ProcessCell, cell)
