"""The pull pool: user code asks for records and acknowledges them.

Each worker is a *member*, represented by its :class:`~.pull_inflight.Cell`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Lapse,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import FencePassed, Recalled, Released
from kafka_keyshared.core.contract.slices import Progress, SerialProgress, Slice
from kafka_keyshared.executors.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, names_of, some
from kafka_keyshared.platform import forks

log = log_of("kafka_keyshared.pool")


LATE_EVERY = 10.0
"""Seconds between two log lines about late acknowledgements."""


class PullPool:
    """Hands records to members that ask for them. See
    :class:`~kafka_keyshared.executors.port.Pool`.

    ``ascending`` is for members that acknowledge by offset (:class:`Cell`).
    """

    def __init__(
        self,
        mailbox: Mailbox[Any],
        clock: Clock,
        *,
        subscription: str = "default",
        ascending: bool = False,
    ) -> None:
        self.mailbox = mailbox
        self._clock = clock
        self.ascending = ascending
        self._lanes: Lanes = own_lanes
        self._subscription = subscription
        self.cells: dict[tuple[str, int], Cell] = {}
        # Per member, the ended thread that was already logged.
        self._orphaned: dict[Cell, str] = {}
        self._tell_late_at = 0.0

    def join(self, name: str) -> Cell:
        """Add a member; only before the start."""
        cell = Cell(name, self.mailbox.put, self._clock, ascending=self.ascending)
        self.cells[self._subscription, len(self.cells)] = cell
        return cell

    def names(self) -> tuple[str, ...]:
        """Return the members' names, in the order of their numbers."""
        return tuple(cell.name for cell in self.cells.values())

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start nothing: the members run in the user's own threads."""
        forks.watch(self)
        self._lanes = lanes
        for cell in self.cells.values():
            cell.failed = FailedLanes(lanes(self._subscription))

    def forked(self) -> None:
        """Close the cells in the child of a fork: its members belong to the parent."""
        for cell in self.cells.values():
            cell.forked()

    def submit(self, slice_: Slice) -> None:
        """Queue the record for its member."""
        self.cells[slice_.subscription, slice_.worker].put(slice_)

    def end_of_partition(self, event: Record) -> None:
        """Notify every member that a partition has reached its end."""
        for cell in self.cells.values():
            cell.put_end(event)

    def fence(self, fence: Fence) -> None:
        """Post the fence at once: a member hands back records behind a failed one when it fails."""
        self.cells[fence.subscription, fence.worker].pass_fence(fence.lanes)
        self.mailbox.put(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def recall(self, recall: Recall) -> Recalled:
        """Take back the records that the member has not received."""
        back = self.cells[recall.subscription, recall.worker].recall(recall.only)
        return Recalled(recall.subscription, recall.worker, back)

    def time_out(self, past: TimeOut) -> None:
        """End these leases; each counts as a failed attempt."""
        self.cells[past.subscription, past.worker].end_leases([id_ for id_, _ in past.running])
        self.mailbox.put(Recalled(past.subscription, past.worker))

    def lapse(self, lapse: Lapse) -> None:
        """Mark leases as over; the member is refused when it settles their records."""
        self.cells[lapse.subscription, lapse.worker].lapse(lapse.slices)

    def progress(self) -> Progress:
        """Return for each lease whether its record has been received."""
        found: dict[int, SerialProgress] = {}
        for cell in self.cells.values():
            found.update(cell.progress())
        return found

    def add(self, worker: StartWorker) -> None:
        """Add one more member."""
        cell = Cell(worker.name, self.mailbox.put, self._clock, ascending=self.ascending)
        cell.failed = FailedLanes(self._lanes(worker.subscription))
        self.cells[worker.subscription, worker.worker] = cell

    def dead(self) -> list[tuple[str, int]]:
        """Return nothing: a member lives until it leaves."""
        return []

    def revived(self) -> list[tuple[str, int]]:
        """Return nothing: a member lives until it leaves."""
        return []

    def departed(self) -> list[tuple[str, int]]:
        """Return the members that left on their own; dismissed members leave with all others."""
        return [whose for whose, cell in self.cells.items() if cell.left and not cell.dismissed]

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: the pool cannot see how a member processes a record."""
        del subscription, worker, slice_, index
        return ""

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: the pool cannot see how a member processes a record."""
        del subscription, worker, slice_, index
        return ""

    def beat(self) -> None:
        """Log members whose thread has ended with unsettled records, and late acknowledgements."""
        for cell in self.cells.values():
            self._tell_orphaned(cell)
        if (now := self._clock()) >= self._tell_late_at and tell_late(self.cells.values()):
            self._tell_late_at = now + LATE_EVERY

    def late(self) -> dict[str, int]:
        """Return the number of late acknowledgements and failures since the previous call."""
        return {self._subscription: sum(cell.take_refused() for cell in self.cells.values())}

    def _tell_orphaned(self, cell: Cell) -> None:
        """Log, once per thread, that the thread of a member ended with unsettled records."""
        thread = cell.orphaned()
        if thread and thread != self._orphaned.get(cell):
            log.warning(
                "%s: the thread that polled it (%s) has ended and left unsettled %s; those keys "
                "stand still until the member is closed. split(…).run(loop) ends the program then",
                cell.name,
                thread,
                some(names_of(slice_.records[0] for slice_ in cell.held())),
                extra={"worker": cell.name},
            )
        self._orphaned[cell] = thread

    def replace(self, subscription: str, worker: int) -> None:
        """Do nothing: a member that has left is not replaced under its name."""

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Do nothing: a member that leaves hands back its records."""

    def release(self, release: Release) -> None:
        """Post an empty answer: a member's state of its keys belongs to the user's code."""
        self.mailbox.put(Released(release.subscription, release.worker, release.number))

    def adopt(self, adopt: Adopt) -> None:
        """Do nothing: a member's state of its keys belongs to the user's code."""

    def end(self, subscription: str, worker: int) -> None:
        """Close the member's cell; its thread belongs to the user."""
        self.cells[subscription, worker].end()

    def stop(self, timeout: float) -> list[str]:
        """Close the members' cells; return the names of those that still hold records.

        Dismissed members are left out: the code that dismissed a member waits for its loop, and
        reports it.
        """
        del timeout
        for cell in self.cells.values():
            cell.end()
        return [cell.name for cell in self.cells.values() if cell.held() and not cell.dismissed]


def tell_late(cells: Iterable[Cell]) -> bool:
    """Log the late acknowledgements of all members in one line; return whether any exist."""
    late = {cell.name: found for cell in cells if (found := cell.take_late())}
    if late:
        records = [record for found in late.values() for record in found]
        log.info(
            "settled after their partition had gone, by %s, so they may run again: %s",
            some(late),
            some(names_of(records)),
        )
    return bool(late)
