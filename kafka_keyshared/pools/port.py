"""What the loop needs of a pool, and how records are handed over so that they can be taken back.

A pool runs the handlers. It tells the loop what happened only through its mailbox, oldest first.
What goes to a worker are the slices of :mod:`kafka_keyshared.core.slices` and commands about them;
what comes back are the reports of :mod:`kafka_keyshared.core.events`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from operator import length_hint
from typing import Protocol

from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, StartWorker, TimeOut
from kafka_keyshared.core.events import Recalled
from kafka_keyshared.core.slices import Progress, Serial, Slice
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.pools.failed_lanes import Lanes, own_lanes


class Handover:
    """A slice on its way through a serial worker: what of it has not started yet.

    Worker and owner share one iterator. The worker takes from it, one record before each handler
    start; to recall, the owner takes all that is left. Each record is thus either started or taken
    back, without a lock, without asking the worker, and also while it is busy.

    ``dropped`` are the indices of the records that the handler dropped; the worker's alone.
    ``gone`` are the partitions of which the leases are over; the owner's.
    """

    __slots__ = ("_back", "_seen", "dropped", "gone", "slice", "todo")

    def __init__(self, slice_: Slice) -> None:
        self.slice = slice_
        # GIL: each record that is taken is taken once, although two threads take.
        self.todo = iter(slice_.records)
        self.dropped: list[int] = []
        self.gone: frozenset[TopicPartition] = frozenset()
        self._back = 0
        self._seen = 0

    def progress(self) -> Serial:
        """Return how far the worker has got."""
        return Serial(len(self.slice.records) - self._back - length_hint(self.todo))

    def index_of(self, record: Record) -> int:
        """Return the index of a record that has started, no earlier than the one asked for last."""
        records = self.slice.records
        for index in range(self._seen, len(records)):
            if records[index] is record:
                self._seen = index
                return index
        raise ValueError(f"{record} is not in the slice, or started before another one")

    def unstarted(self) -> Sequence[Record]:
        """Return what has neither started nor been taken back."""
        return self.slice.records[self.progress().started : len(self.slice.records) - self._back]

    def take_back(self) -> range:
        """Take every unstarted record back; return which they are."""
        # GIL: nothing is taken beside it, so what is left is all behind what has started.
        count = len(list(self.todo))
        end = len(self.slice.records) - self._back
        self._back += count
        return range(end - count, end)

    def drop_rest(self) -> None:
        """Count what has not started as dropped: its worker has gone."""
        self.dropped += self.take_back()


def take_back_all(
    given: dict[int, Handover], only: Container[int] | None = None
) -> list[tuple[int, range]]:
    """Take every unstarted record of these slices back; return which, by the id of their slice.

    ``given`` is in the order in which the worker runs them. The worker runs on during this call, so
    the last slice is taken back first. In the other order the worker could end a slice that was
    taken back, run a record of the next slice, and so overtake what was taken back.
    """
    # A copy in one C call: the worker removes slices meanwhile.
    asked = [(id_, of) for id_, of in given.copy().items() if only is None or id_ in only]
    back = [(id_, handover.take_back()) for id_, handover in reversed(asked)]
    back.reverse()
    return back


class Pool(Protocol):
    """The port through which the loop uses workers. Every call comes from the owner thread.

    A worker starts the records of a lane in the order in which it was given them; one that runs one
    after the other starts all of them so. A failure is posted before anything later of its lane
    starts or is reported, and what follows in the lane comes back unrun and in order until the
    fence. The end of a slice is posted once, when none of its records runs or will start, and
    nothing of the slice after it. Slices have one record each where they may end in any order.
    """

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start the workers of every subscription."""

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker, behind everything it has."""

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has of its lanes.

        It comes back once all of that has been reported; the fences of a worker in their order. A
        worker that hands back the rest of a lane as soon as a record fails may do so at once.
        """

    def recall(self, recall: Recall) -> Recalled | None:
        """Take back what the worker has not started: what is asked for at least.

        More may come back, but nothing of a slice that is not named. Each recall has one answer,
        an empty one where there is nothing. It may be ahead of what was posted before.

        None when the answer is posted later, behind all of that. Nothing is handed to the worker
        before it. A pool that loses the worker meanwhile answers in its place, when it is to
        :meth:`replace` it at the latest, or the worker never leaves.
        """

    def time_out(self, past: TimeOut) -> None:
        """End these running records, as far as that can be.

        A worker that can be killed is, and another goes on in its place; a task is cancelled; a
        member's lease ends. Each is a failed attempt, posted as any other. What cannot be ended,
        and runs all the same, is named in the answer as stuck (:class:`~.events.Stuck`): what its
        worker has not started comes back then, and if somebody else can do its work, the worker
        goes on, while whatever becomes of the record is reported as ever. Who goes on so takes
        nothing of lanes that have failed until their fence, either.

        Each time-out has one answer, posted behind all that was reported before it. Until then
        nothing is handed to the worker. It may be asked again: what a task makes of being cancelled
        shows later, and for a worker that waits somebody may be free by then.
        """

    def lapse(self, lapse: Lapse) -> None:
        """Take note that leases are over although their records may still run.

        What becomes of them is reported as ever; a member that speaks of them is refused, and a
        handler that asks is told (:func:`~kafka_keyshared.pools.lease.lease_of`).
        """

    def progress(self) -> Progress:
        """Return how far each slice has got that was handed over and not reported as ended."""

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers (subscription, index) whose thread or process has ended.

        Until they are replaced or abandoned.
        """

    def revived(self) -> list[tuple[str, int]]:
        """Return the workers whose handlers were made since this was last asked.

        Whoever has died since is among them: it can be replaced.
        """

    def departed(self) -> list[tuple[str, int]]:
        """Return the workers that have gone for good: members that closed.

        What they had received they have reported; what they had not is there to be recalled.
        """

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return where in the user's program a worker stands with a record that it runs.

        Nothing where that is not known.
        """

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the calls that a worker is in with a record that it runs, as lines of text.

        Nothing where that is not known.
        """

    def beat(self) -> None:
        """Do what is due, at every heartbeat, before anything else is asked for it."""

    def late(self) -> Mapping[str, int]:
        """Return, by subscription, how often members have settled what was theirs no more.

        Since this was last asked.
        """

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread or process under the same name, if that can be.

        What the dead one was running is reported as failed, once, however often this is tried.
        """

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report what a dead worker was running as failed, and its slices as ended.

        With ``settle`` what it has not started is reported as dropped, as its slice ends. What
        was reported before is not reported again. A stuck record that it went on beside still runs,
        and is reported when it ends.
        """

    def release(self, release: Release) -> None:
        """Have the worker give up the state of slots, behind everything that it has.

        The answer is posted, also when the worker's handler fails; not when the worker is abandoned
        before it gets there.
        """

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker take over the state of slots, before what it is handed from now on."""

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left, closing its handler; nobody speaks of it again."""

    def stop(self, timeout: float) -> list[str]:
        """End idle workers, closing their handlers; return the names of those still running.

        Nothing starts any more, and of what has not nobody hears. It may be called again.
        """
