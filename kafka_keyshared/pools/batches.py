"""The pool of batches: threads, as those of the thread pool, whose handler takes several records.

Each record is a slice of its own, so a call may have whatever waits at the worker, and settle any
of it: what the core knows of a call are records that start together. Of a key a call may have
several, in their order; behind one that it does not settle nothing of that key counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, TimeOut
from kafka_keyshared.core.events import FencePassed, Recalled, Stuck
from kafka_keyshared.core.lane_identity import is_keyless
from kafka_keyshared.core.slices import Progress, Serial, Slice
from kafka_keyshared.logs import log_of
from kafka_keyshared.pools.batch_calls import Calls
from kafka_keyshared.pools.batch_cells import BatchCell
from kafka_keyshared.pools.chains import Given

log = log_of("kafka_keyshared.pool")


class BatchPool(Calls):
    """Runs batch handlers on threads. See :class:`~.port.Pool`."""

    def submit(self, slice_: Slice) -> None:
        """Hand a record to its worker, or back at once where its lane has failed."""
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
        """Have the fence come back: what is behind a failed record is handed back as it fails."""
        cell = self.cells[fence.subscription, fence.worker]
        with cell.bell:
            cell.failed.passed(fence.lanes)
            self._post(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def recall(self, recall: Recall) -> Recalled:
        """Take back what has not started of the slices, at once, whatever the worker is doing."""
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
        """Leave the thread with its call, and have another one go on where that is allowed.

        A call is stuck as a whole: nobody can say of which of its records. Of a key the first one
        is; those behind it come back, to run again once the call has ended.
        """
        cell = self.cells[past.subscription, past.worker]
        following = None
        with cell.bell:
            running = {each.slice.id for each in cell.running}
            back: list[Given] = []
            stuck: list[Stuck] = []
            # Else it has ended meanwhile, or its thread has and is replaced at this beat.
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
        """Return the cell of a thread that may go on in the place of this one, if one may."""
        return cell.following(self.no_lanes(cell.spec)) if self.may_follow(cell) else None

    def lapse(self, lapse: Lapse) -> None:
        """Note it for the handler that asks: a thread goes on, and what it says settles nothing."""
        given = self.cells[lapse.subscription, lapse.worker].given
        for id_ in lapse.slices:
            if (each := given.get(id_)) is not None:
                each.gone |= lapse.partitions

    def progress(self) -> Progress:
        """Return which records have started; those of a call have, or have not, together."""
        found: dict[int, Serial] = {}
        for cell in self.cells.values():
            with cell.bell:
                for id_, given in cell.given.items():
                    found[id_] = given.progress()
        return found

    def beat(self) -> None:
        """See to threads that have ended in the call with which they were left."""
        for cell in [each for each in self.beside if not each.lives()]:
            self.beside.remove(cell)
            self.fail_running(cell)

    def is_in(self, cell: BatchCell, slice_: int) -> bool:
        """Say whether the record of that slice is in the call of the cell's thread."""
        with cell.bell:
            return any(each.slice.id == slice_ for each in cell.running)

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread for the worker; what the old one ran counts as failed."""
        cell = self.cells[subscription, worker]
        self.fail_running(cell)
        self.start_worker(cell)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report what the dead worker was running as failed, and its records as ended."""
        cell = self.cells[subscription, worker]
        self.fail_running(cell)
        with cell.bell:
            cell.take_back()
            for each in [each for each in cell.given.values() if not each.started]:
                self.end_lease(cell, each, 0.0, (0,) if settle else ())
            cell.thread = None

    def release(self, release: Release) -> None:
        """Have the worker's handler give up the state of slots, behind what it has."""
        cell = self.cells[release.subscription, release.worker]
        with cell.bell:
            cell.order(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker's handler take over the state of slots, before its next call."""
        cell = self.cells[adopt.subscription, adopt.worker]
        with cell.bell:
            cell.order(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """Have the worker's thread close its handler and end, when it gets to it."""
        cell = self.cells[subscription, worker]
        if cell.thread is None:
            del self.cells[subscription, worker]
            return
        with cell.bell:
            cell.sent_home = cell.closing = True
            cell.bell.notify()

    def send_off(self, cell: BatchCell) -> None:
        """Take back what has not started, and end the thread behind its call."""
        with cell.bell:
            cell.take_back()
            cell.closing = True
            cell.bell.notify()

    def forked(self) -> None:
        """Do nothing: the child of a handler ends where its call does."""
