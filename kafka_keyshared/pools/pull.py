"""The pull pool: the user's own code asks for records and says when they are done.

A worker of it is a *member's* :class:`~.cell.Cell`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from kafka_keyshared.core.events import Fence, FencePassed, Recalled, Slice
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import names_of, some
from kafka_keyshared.pools.cell import Cell
from kafka_keyshared.pools.mailbox import Mailbox
from kafka_keyshared.process import forks

log = log_of("kafka_keyshared.pool")

Place: TypeAlias = tuple[str, int]

LATE_EVERY = 10.0
"""Seconds between two lines about what was settled too late."""


class PullPool:
    """Hands records to members that ask for them. See :class:`~.pool.Pool`.

    ``lease_timeout`` is how long a member may have a record before it counts as a failed attempt,
    in seconds; None for ever. ``ascending`` is for members that settle by offsets (:class:`Cell`).
    """

    def __init__(
        self,
        mailbox: Mailbox[Any],
        *,
        subscription: str = "default",
        lease_timeout: float | None = None,
        ascending: bool = False,
    ) -> None:
        self.mailbox = mailbox
        self._ascending = ascending
        self._subscription = subscription
        self._lease_timeout = lease_timeout
        self.cells: dict[Place, Cell] = {}
        # Whose thread was said to have ended.
        self._orphaned: dict[Cell, str] = {}
        self._tell_late_at = 0.0

    def join(self, name: str) -> Cell:
        """Add a member; before the start only."""
        cell = Cell(name, self.mailbox.put, ascending=self._ascending)
        self.cells[self._subscription, len(self.cells)] = cell
        return cell

    def names(self) -> tuple[str, ...]:
        """Return the members' names, in the order of their places."""
        return tuple(cell.name for cell in self.cells.values())

    def start(self) -> None:
        """Start nothing: the members run in the user's own threads."""
        forks.watch(self)

    def forked(self) -> None:
        """Give the members of the child nothing: they are those of the parent."""
        for cell in self.cells.values():
            cell.forked()

    def submit(self, share: Slice) -> None:
        """Let the record wait for its member."""
        self.cells[share.subscription, share.worker].put(share)

    def fence(self, fence: Fence) -> None:
        """Answer at once: a member hands back what is behind a failed record as it fails."""
        self.cells[fence.subscription, fence.worker].pass_fence(fence.lanes)
        self.mailbox.put(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def recall(self, subscription: str, worker: int) -> Recalled:
        """Take back what the member has not received."""
        return Recalled(self.cells[subscription, worker].recall())

    def progress(self) -> Mapping[Slice, int]:
        """Return for each lease whether it has been received."""
        found: dict[Slice, int] = {}
        for cell in self.cells.values():
            found.update(cell.progress())
        return found

    def dead(self) -> list[Place]:
        """Return nothing: a member lives until it leaves."""
        return []

    def left(self) -> list[Place]:
        """Return the members that have left others behind; who was dismissed leaves with all."""
        return [place for place, cell in self.cells.items() if cell.left and not cell.dismissed]

    def where(self, subscription: str, worker: int) -> str:
        """Return nothing: what a member's code does with a record is not seen from here."""
        del subscription, worker
        return ""

    def tend(self) -> None:
        """End the leases that have lasted too long, each a failed attempt; name lost members."""
        for cell in self.cells.values():
            self._tell_orphaned(cell)
        if (now := time.monotonic()) >= self._tell_late_at and tell_late(self.cells.values()):
            self._tell_late_at = now + LATE_EVERY
        if self._lease_timeout is not None:
            for cell in self.cells.values():
                cell.expire(time.monotonic() - self._lease_timeout)

    def _tell_orphaned(self, cell: Cell) -> None:
        """Say, once for each thread, that nobody is there any more to settle what it received."""
        thread = cell.orphaned()
        if thread and thread != self._orphaned.get(cell):
            log.warning(
                "%s: the thread that polled it (%s) has ended and left unsettled %s; those keys "
                "stand still until the member is closed. split(…).run(loop) ends the program then",
                cell.name,
                thread,
                some(names_of(share.records[0] for share in cell.held())),
            )
        self._orphaned[cell] = thread

    def replace(self, subscription: str, worker: int) -> None:
        """Nobody takes the place of a member that has left under its name."""

    def abandon(self, subscription: str, worker: int) -> None:
        """Nothing to do: a member that leaves hands back what it had."""

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
