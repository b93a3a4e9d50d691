"""The port between owner and pools, and recallable handover of records.

A pool runs the handlers. It reports to the loop only through the loop's mailbox, oldest report
first. The owner sends slices (:mod:`kafka_keyshared.core.contract.slices`) and commands about them.
The workers send reports (:mod:`kafka_keyshared.core.contract.events`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from operator import length_hint
from typing import Protocol

from kafka_keyshared.core.contract.commands import (
    Adopt,
    Fence,
    Lapse,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import Recalled
from kafka_keyshared.core.contract.slices import Progress, SerialProgress, Slice
from kafka_keyshared.executors.failed_lanes import Lanes, own_lanes
from kafka_keyshared.model import Record, TopicPartition


class Handover:
    """A slice at a serial worker, with an iterator of its unstarted records.

    Worker and owner share this iterator. The worker takes one record from it before each handler
    call. To recall records, the owner takes all that are left. Each record is therefore either
    started or taken back. That needs no lock and no answer from the worker, and works while the
    worker is busy.

    ``dropped`` holds the indices of records that the handler dropped; only the worker writes it.
    ``gone`` holds the partitions whose leases are over; only the owner writes it.
    """

    __slots__ = ("_back", "_seen", "dropped", "gone", "slice", "todo")

    def __init__(self, slice_: Slice) -> None:
        self.slice = slice_
        # GIL: two threads take from the iterator, and each record still goes to one of them.
        self.todo = iter(slice_.records)
        self.dropped: list[int] = []
        self.gone: frozenset[TopicPartition] = frozenset()
        self._back = 0
        self._seen = 0

    def progress(self) -> SerialProgress:
        """Return how many records the worker has started."""
        return SerialProgress(len(self.slice.records) - self._back - length_hint(self.todo))

    def index_of(self, record: Record) -> int:
        """Return the index of a started record; records must be asked for in slice order."""
        records = self.slice.records
        for index in range(self._seen, len(records)):
            if records[index] is record:
                self._seen = index
                return index
        raise ValueError(f"{record} is not in the slice, or started before another one")

    def unstarted(self) -> Sequence[Record]:
        """Return the records that have neither started nor been taken back."""
        return self.slice.records[self.progress().started : len(self.slice.records) - self._back]

    def take_back(self) -> range:
        """Take back all unstarted records; return their indices."""
        # GIL: the worker takes nothing during this call. The remaining records are all behind the
        # started ones.
        count = len(list(self.todo))
        end = len(self.slice.records) - self._back
        self._back += count
        return range(end - count, end)

    def drop_rest(self) -> None:
        """Count the unstarted records as dropped, because the worker is gone."""
        self.dropped += self.take_back()


def take_back_all(
    given: dict[int, Handover], only: Container[int] | None = None
) -> list[tuple[int, range]]:
    """Take back all unstarted records of these slices; return the indices by slice id.

    ``given`` is in the order in which the worker runs the slices. The worker keeps running during
    this call, so the last slice is taken back first. In the other order, the worker could finish a
    slice that was taken back. It could then run a record of the next slice. That record would
    overtake the records that were taken back.
    """
    # A copy in one C call, because the worker removes slices concurrently.
    asked = [(id_, of) for id_, of in given.copy().items() if only is None or id_ in only]
    back = [(id_, handover.take_back()) for id_, handover in reversed(asked)]
    back.reverse()
    return back


class Pool(Protocol):
    """The port through which the loop uses workers. The owner thread makes every call.

    - A worker starts the records of a lane in the order in which it received them. A serial
      worker starts all records in that order.
    - A pool posts a failure before any later record of the lane starts or is reported. The later
      records of the lane come back unrun and in order, until the fence passes.
    - A pool posts the end of a slice once, when no record of it runs or will start. After that it
      posts nothing about the slice.
    - If slices can end in any order, each slice has one record.
    """

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start the workers of every subscription."""

    def submit(self, slice_: Slice) -> None:
        """Append a slice to the queue of its worker."""

    def fence(self, fence: Fence) -> None:
        """Put a fence behind all records of its lanes that the worker holds.

        The pool posts the fence once all of those records are reported. Fences of a worker come
        back in order. Some workers hand back the rest of a lane when a record fails; their pool may
        post the fence at once.
        """

    def recall(self, recall: Recall) -> Recalled | None:
        """Take back at least the requested records that the worker has not started.

        More records may come back, but only from the named slices. Each recall has exactly one
        answer, which may be empty. A returned answer may overtake reports that were posted before
        it.

        Return None if the answer will be posted later, behind those reports. The owner hands
        nothing to the worker before that answer. If the worker is lost before that, the pool
        answers in its place, at the latest in :meth:`replace`. Without an answer the worker could
        never leave.
        """

    def time_out(self, past: TimeOut) -> None:
        """End these running records as far as the pool can.

        - A worker process is killed and replaced. A task is cancelled. The lease of a member
          ends. Each is posted as a failed attempt.
        - A record that cannot be ended and still runs is named in the answer as stuck
          (:class:`~.events.Stuck`). The unstarted records of its worker come back with the answer.
          If another thread or task can do the worker's work, the worker goes on. The result of the
          stuck record is reported when it ends. The replacement also takes nothing of failed lanes
          until their fence passes.

        Each time-out has one answer, posted behind all earlier reports. The owner hands nothing to
        the worker before that answer. The owner may repeat the call: a cancelled task may end late,
        and a thread to replace a stuck one may become free later.
        """

    def lapse(self, lapse: Lapse) -> None:
        """Note that leases are over although their records may still run.

        Their results are reported as usual. A member that settles such a record is refused. A
        handler can check its lease with :func:`~kafka_keyshared.executors.lease.lease_of`.
        """

    def progress(self) -> Progress:
        """Return the progress of each slice that was submitted and is not reported as ended."""

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers (subscription, index) whose thread or process has ended.

        A worker is in the list until it is replaced or abandoned.
        """

    def revived(self) -> list[tuple[str, int]]:
        """Return the workers whose handlers were made since the previous call.

        A worker that has died since then is included: it can be replaced.
        """

    def departed(self) -> list[tuple[str, int]]:
        """Return the workers that have left for good: members that closed.

        All records that they received are reported. Records that they did not receive can be
        recalled.
        """

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the place in the user's program where a worker runs this record.

        Return an empty string if the place is not known.
        """

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return the call stack of a worker that runs this record, as lines of text.

        Return an empty string if the stack is not known.
        """

    def beat(self) -> None:
        """Do periodic work; called first at every heartbeat."""

    def late(self) -> Mapping[str, int]:
        """Return the number of refused acknowledgements of members, by subscription.

        They count since the previous call. A member is refused when its lease is over.
        """

    def replace(self, subscription: str, worker: int) -> None:
        """Start another thread or process under the same name, if that is possible.

        The record that the dead one was running is reported as failed, once, however often this is
        called.
        """

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report the record that a dead worker was running as failed, and its slices as ended.

        With ``settle`` its unstarted records are reported as dropped, with the end of their slice.
        Nothing is reported twice. A stuck record, which has a thread of its own, still runs; it is
        reported when it ends.
        """

    def release(self, release: Release) -> None:
        """Have the worker release the state of slots, behind all that it holds.

        The answer is posted, also when the handler fails. No answer is posted if the worker is
        abandoned before it gets there.
        """

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker adopt the state of slots, before all slices submitted after this call."""

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that holds nothing and close its handler; no later call names it."""

    def stop(self, timeout: float) -> list[str]:
        """End idle workers and close their handlers; return the names of those still running.

        Nothing starts any more, and unstarted records are not reported. This may be called again.
        """
