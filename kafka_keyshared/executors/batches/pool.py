"""The batch pool: threads whose handler takes several records per call.

Each record is a slice of its own. A call may therefore contain any records that wait at the worker,
and may settle any of them. To the core, a call is a set of records that start together. A call may
contain several records of a key, in order. If it does not settle one of them, it settles no later
record of that key either.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.core.contract.commands import Adopt, Fence, Lapse, Recall, Release, TimeOut
from kafka_keyshared.core.contract.events import FencePassed, Recalled, Stuck
from kafka_keyshared.core.contract.slices import Progress, SerialProgress, Slice
from kafka_keyshared.core.records.lane_identity import is_keyless
from kafka_keyshared.executors.batches.batch_queue import BatchCell
from kafka_keyshared.executors.batches.thread_batches import BatchThreads
from kafka_keyshared.executors.key_chains import Given
from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.pool")


class BatchPool(BatchThreads):
    """Runs batch handlers on threads. See :class:`~kafka_keyshared.executors.port.Pool`."""

    def submit(self, slice_: Slice) -> None:
        """Queue a record at its worker; hand it back at once if its lane has failed."""
        cell = self.cells[slice_.subscription, slice_.worker]
        given = Given(slice_)
        lane = cell.failed.lane_of(slice_.records[0])
        given.lane = None if is_keyless(lane) else lane
        with cell.bell:
            cell.given[slice_.id] = given
            if lane in cell.failed.lanes:
                self.set_aside(cell, [given])
            else:
                cell.add(given)

    def fence(self, fence: Fence) -> None:
        """Post the fence at once: records behind a failed one come back when it fails."""
        cell = self.cells[fence.subscription, fence.worker]
        with cell.bell:
            cell.failed.passed(fence.lanes)
            self._post(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def recall(self, recall: Recall) -> Recalled:
        """Take back the unstarted records of the slices at once, also while the worker is busy."""
        cell = self.cells[recall.subscription, recall.worker]
        with cell.bell:
            return self._taken_back(cell, recall, cell.take_back(recall.only))

    def _taken_back(
        self,
        cell: BatchCell,
        asked: Recall | TimeOut,
        back: list[Given],
        stuck: Sequence[Stuck] = (),
    ) -> Recalled:
        slices = [(each.slice.id, range(1)) for each in back]
        answer = Recalled(asked.subscription, asked.worker, slices, stuck)
        if isinstance(asked, TimeOut):
            self._post(answer)
        for each in back:
            self.end_lease(cell, each, 0.0)
        return answer

    def time_out(self, past: TimeOut) -> None:
        """Mark the running call as stuck; another thread continues where that is allowed.

        A call is stuck as a whole, because the responsible record is not known. The first record of
        each key is stuck. The later ones come back, and run again once the call has ended.
        """
        cell = self.cells[past.subscription, past.worker]
        following = None
        with cell.bell:
            running = {each.slice.id for each in cell.running}
            back: list[Given] = []
            stuck: list[Stuck] = []
            # Otherwise the call has ended already, or its thread has; the thread is then replaced
            # at this heartbeat.
            if cell.lives() and any(id_ in running for id_, _ in past.running):
                back = [*cell.behind_others(), *cell.take_back()]
                following = self._following(cell)
                goes_on = following is not None
                stuck = [Stuck(each.slice.id, 0, goes_on) for each in cell.running]
            self._taken_back(cell, past, back, stuck)
            if following is not None:
                self.beside.append(cell)
                self.cells[past.subscription, past.worker] = following
        if following is not None:
            self.start_worker(following)

    def _following(self, cell: BatchCell) -> BatchCell | None:
        """Return the cell of a replacement thread, None if none is allowed."""
        return cell.following(self.no_lanes(cell.spec)) if self.may_follow(cell) else None

    def lapse(self, lapse: Lapse) -> None:
        """Mark leases as over for handlers that ask.

        The thread goes on, and its result settles nothing.
        """
        given = self.cells[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (each := given.get(id_)) is not None:
                each.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return which records have started; all records of a call start together."""
        found: dict[int, SerialProgress] = {}
        for cell in self.cells.values():
            with cell.bell:
                for id_, given in cell.given.items():
                    found[id_] = given.progress()
        return found

    def beat(self) -> None:
        """Clean up stuck threads that have ended."""
        for cell in [each for each in self.beside if not each.lives()]:
            self.beside.remove(cell)
            self.fail_running(cell)

    def is_in(self, cell: BatchCell, slice_: int) -> bool:
        """Return whether the record of that slice is in the current call of the cell's thread."""
        with cell.bell:
            return any(each.slice.id == slice_ for each in cell.running)

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread for the worker; the records that the old one ran count as failed."""
        cell = self.cells[subscription, worker]
        self.fail_running(cell)
        self.start_worker(cell)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report a dead worker's running records as failed, and its slices as ended."""
        cell = self.cells[subscription, worker]
        self.fail_running(cell)
        with cell.bell:
            cell.take_back()
            for each in [each for each in cell.given.values() if not each.started]:
                self.end_lease(cell, each, 0.0, (0,) if settle else ())
            cell.thread = None

    def release(self, release: Release) -> None:
        """Have the worker's handler release the state of slots, behind all that it holds."""
        cell = self.cells[release.subscription, release.worker]
        with cell.bell:
            cell.order(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler adopt the state of slots, before its next call."""
        cell = self.cells[adopt.subscription, adopt.worker]
        with cell.bell:
            cell.order(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker's thread close its handler and end, after its current work."""
        cell = self.cells[subscription, worker]
        if cell.thread is None:
            del self.cells[subscription, worker]
            return
        with cell.bell:
            cell.sent_home = cell.closing = True
            cell.bell.notify()

    def send_off(self, cell: BatchCell) -> None:
        """Take back the unstarted records, and end the thread after its call."""
        with cell.bell:
            cell.take_back()
            cell.closing = True
            cell.bell.notify()

    def forked(self) -> None:
        """Do nothing: the child of a handler ends when the handler call returns."""
