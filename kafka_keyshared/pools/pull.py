"""The pull pool: the user's own code asks for records and says when they are done.

A worker of it is a *member's* :class:`~.cell.Cell`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, StartWorker, TimeOut
from kafka_keyshared.core.events import FencePassed, Recalled, Released
from kafka_keyshared.core.slices import Progress, Serial, Slice
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, names_of, some
from kafka_keyshared.pools.cell import Cell
from kafka_keyshared.pools.failed_lanes import FailedLanes, Lanes, own_lanes
from kafka_keyshared.pools.mailbox import Mailbox
from kafka_keyshared.program import forks

log = log_of("kafka_keyshared.pool")


LATE_EVERY = 10.0
"""Seconds between two lines about what was settled too late."""


class PullPool:
    """Hands records to members that ask for them. See :class:`~.port.Pool`.

    ``ascending`` is for members that settle by offsets (:class:`Cell`).
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
        # Whose thread was said to have ended.
        self._orphaned: dict[Cell, str] = {}
        self._tell_late_at = 0.0

    def join(self, name: str) -> Cell:
        """Add a member; before the start only."""
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
        """Give the members of the child nothing: they are those of the parent."""
        for cell in self.cells.values():
            cell.forked()

    def submit(self, slice_: Slice) -> None:
        """Let the record wait for its member."""
        self.cells[slice_.subscription, slice_.worker].put(slice_)

    def end_of_partition(self, event: Record) -> None:
        """Tell every member that a partition has reached its end."""
        for cell in self.cells.values():
            cell.put_end(event)

    def fence(self, fence: Fence) -> None:
        """Answer at once: a member hands back what is behind a failed record as it fails."""
        self.cells[fence.subscription, fence.worker].pass_fence(fence.lanes)
        self.mailbox.put(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def recall(self, recall: Recall) -> Recalled:
        """Take back what the member has not received."""
        back = self.cells[recall.subscription, recall.worker].recall(recall.only)
        return Recalled(recall.subscription, recall.worker, back)

    def time_out(self, past: TimeOut) -> None:
        """End these leases, each a failed attempt."""
        self.cells[past.subscription, past.worker].end_leases([id_ for id_, _ in past.running])
        self.mailbox.put(Recalled(past.subscription, past.worker))

    def lapse(self, lapse: Lapse) -> None:
        """Let the member know, when it settles these, that it is too late."""
        self.cells[lapse.subscription, lapse.worker].lapse(lapse.slices)

    def progress(self) -> Progress:
        """Return for each lease whether it has been received."""
        found: dict[int, Serial] = {}
        for cell in self.cells.values():
            found.update(cell.progress())
        return found

    def add(self, worker: StartWorker) -> None:
        """Make room for one more member."""
        cell = Cell(worker.name, self.mailbox.put, self._clock, ascending=self.ascending)
        cell.failed = FailedLanes(self._lanes(worker.subscription))
        self.cells[worker.subscription, worker.worker] = cell

    def dead(self) -> list[tuple[str, int]]:
        """Return nothing: a member lives until it leaves."""
        return []

    def revived(self) -> list[tuple[str, int]]:
        """Return nothing, for the same reason."""
        return []

    def departed(self) -> list[tuple[str, int]]:
        """Return the members that have left others behind; who was dismissed leaves with all."""
        return [whose for whose, cell in self.cells.items() if cell.left and not cell.dismissed]

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: what a member's code does with a record is not seen from here."""
        del subscription, worker, slice_, index
        return ""

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: what a member's code does with a record is not seen from here."""
        del subscription, worker, slice_, index
        return ""

    def beat(self) -> None:
        """Name members that nobody sees to any more, and what was settled too late."""
        for cell in self.cells.values():
            self._tell_orphaned(cell)
        if (now := self._clock()) >= self._tell_late_at and tell_late(self.cells.values()):
            self._tell_late_at = now + LATE_EVERY

    def late(self) -> dict[str, int]:
        """Return how many words of members came too late since this was last asked."""
        return {self._subscription: sum(cell.take_refused() for cell in self.cells.values())}

    def _tell_orphaned(self, cell: Cell) -> None:
        """Say, once for each thread, that nobody is there any more to settle what it received."""
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
        """Nobody takes the place of a member that has left under its name."""

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Nothing to do: a member that leaves hands back what it had."""

    def release(self, release: Release) -> None:
        """Answer that there is nothing: what a member has of its keys is its own code's."""
        self.mailbox.put(Released(release.subscription, release.worker, release.number))

    def adopt(self, adopt: Adopt) -> None:
        """Nothing to do, for the same reason."""

    def end(self, subscription: str, worker: int) -> None:
        """Tell the member that nothing comes any more; its thread is its own."""
        self.cells[subscription, worker].end()

    def stop(self, timeout: float) -> list[str]:
        """Tell the members that nothing comes any more; return those that still have records.

        Whoever has dismissed a member sees to its loop, and tells of it.
        """
        del timeout
        for cell in self.cells.values():
            cell.end()
        return [cell.name for cell in self.cells.values() if cell.held() and not cell.dismissed]


def tell_late(cells: Iterable[Cell]) -> bool:
    """Say, in one line for all of them, what members settled too late; whether there was any."""
    late = {cell.name: found for cell in cells if (found := cell.take_late())}
    if late:
        records = [record for found in late.values() for record in found]
        log.info(
            "settled after their partition had gone, by %s, so they may run again: %s",
            some(late),
            some(names_of(records)),
        )
    return bool(late)
