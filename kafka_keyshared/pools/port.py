"""What the loop needs of a pool, and how records are handed over so that they can be taken back.

A pool runs the handlers. It tells the loop what happened only through its mailbox, oldest first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from kafka_keyshared.core.events import Fence, Recalled, Slice
from kafka_keyshared.model import Record


class _Stop:
    """Ends a slice: the worker that takes it takes nothing more of that slice."""

    def __repr__(self) -> str:
        return "STOP"


STOP = _Stop()


class Handover:
    """A slice on its way through a worker: what of it has not started yet.

    Worker and owner share one deque. The worker takes from the left, one record before each handler
    start. To recall, the owner puts STOP at the left: from then on the worker takes at most that
    STOP, so whatever stands behind it is the owner's alone. Each record is thus either started or
    taken back, without a lock, without asking the worker, and also while it is busy.
    """

    __slots__ = ("slice", "todo")

    def __init__(self, share: Slice) -> None:
        self.slice = share
        self.todo: deque[Record | _Stop] = deque(share.records)
        self.todo.append(STOP)

    def unstarted(self) -> int:
        """Return how many records have not been started (or taken back)."""
        return max(0, len(self.todo) - 1)

    def take_back(self) -> list[Record]:
        """Take every unstarted record back, in order."""
        self.todo.appendleft(STOP)
        # One C call, so that the worker cannot take the STOP halfway through the copy.
        rest = list(self.todo)
        if rest[0] is STOP:
            rest = rest[1:]
        for _ in rest:
            self.todo.pop()
        return [record for record in rest if not isinstance(record, _Stop)]


class Pool(Protocol):
    """The port through which the loop uses workers. Every call comes from the owner thread."""

    def start(self) -> None:
        """Start the workers of every subscription."""

    def submit(self, share: Slice) -> None:
        """Hand a slice to its worker, behind everything it has."""

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""

    def recall(self, subscription: str, worker: int) -> Recalled:
        """Take back every unstarted record of the worker."""

    def progress(self) -> Mapping[Slice, int]:
        """Return for each slice that was handed over and not reported how much has not started."""

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers (subscription, index) whose thread or process has ended."""

    def left(self) -> list[tuple[str, int]]:
        """Return the workers that have gone for good: members that closed."""

    def where(self, subscription: str, worker: int) -> str:
        """Return where in the user's program a worker stands; nothing where that is not known."""

    def tend(self) -> None:
        """Do what is due, at every heartbeat: leases that have lasted too long end."""

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread or process under the same name."""

    def abandon(self, subscription: str, worker: int) -> None:
        """Report what a dead worker was running as failed, and its slices as ended."""

    def stop(self, timeout: float) -> list[str]:
        """End idle workers, closing their handlers; return the names of those still running."""
