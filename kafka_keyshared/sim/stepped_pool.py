"""The pool of stepped workers; how each of them works stands in :mod:`.stepped`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kafka_keyshared.core.commands import Adopt, Fence, Lapse, Recall, Release, StartWorker, TimeOut
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.events import (
    Recalled,
    Report,
)
from kafka_keyshared.core.slices import Progress, Slice
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record
from kafka_keyshared.pools.failed_lanes import Lanes, own_lanes
from kafka_keyshared.pools.port import Handover, take_back_all
from kafka_keyshared.sim.handlers import Ending
from kafka_keyshared.sim.stepped import (
    PoolKind,
    SteppedWorker,
    ignore,
    ignore_end,
    ignore_state,
    leave_alone,
    never_fails,
    no_state,
)


class SteppedPool:
    """All workers of a dispatcher, and the mailbox that they post to."""

    def __init__(self, core: Dispatcher, post: Callable[[Report | Recalled], None]) -> None:
        self.post = post
        self.lanes = core.lanes
        # Whether the next recall is answered by the worker, when it gets to it.
        self.answers_later: Callable[[], bool] = lambda: False
        # And whether a worker that is asked goes on first, and may start what it is to give back.
        self.hesitates: Callable[[], bool] = lambda: False
        self.on_start: Callable[[str, int, Record], None] = ignore
        self.on_end: Callable[[str, int, Record, Ending], None] = ignore_end
        self.on_release: Callable[[str, int, Sequence[int]], object] = no_state
        # Whether the handler of a worker raises that is to release the state of slots.
        self.release_fails: Callable[[str, int], bool] = never_fails
        self.on_adopt: Callable[[str, int, Sequence[int], object], None] = ignore_state
        self.write_into: Callable[[Record], None] = leave_alone
        self.seconds = 0.001
        self.replaceable = True
        self._revived: list[tuple[str, int]] = []
        self.kind: PoolKind = "thread"
        # Whether a task that is cancelled ends.
        self.heeds: Callable[[], bool] = lambda: True
        self.workers = {
            (name, worker.id): SteppedWorker(self, name, worker.id, worker.name)
            for name, sub in core.subscriptions.items()
            for worker in sub.workers.values()
        }

    def start(self, lanes: Lanes = own_lanes) -> None:
        """Start nothing: the test is every worker's thread."""

    def submit(self, slice_: Slice) -> None:
        """Hand a slice to its worker."""
        worker = self.workers[slice_.subscription, slice_.worker]
        handover = Handover(slice_)
        if worker.asked:
            raise InvariantError(f"{worker.name} is being recalled and gets more")
        worker.given[slice_.id] = handover
        worker.inbox.append(handover)

    def fence(self, fence: Fence) -> None:
        """Put a fence behind everything the worker has."""
        self.workers[fence.subscription, fence.worker].inbox.append(fence)

    def recall(self, recall: Recall) -> Recalled | None:
        """Take back every unstarted record of the worker, or have the worker do it."""
        worker = self.workers[recall.subscription, recall.worker]
        if worker.asked or (worker.alive and not worker.gone and self.answers_later()):
            worker.asked.append(recall)
            return None
        return worker.take_back(recall)

    def time_out(self, past: TimeOut) -> None:
        """Do with what a worker runs what this kind of pool does."""
        self.workers[past.subscription, past.worker].time_out(past)

    def may_go_on(self) -> bool:
        """Say whether somebody may go on in the place of a worker that has a stuck record."""
        beside = sum(len(worker.apart) for worker in self.workers.values())
        return self.kind == "task" or (self.kind == "thread" and beside < len(self.workers))

    def lapse(self, lapse: Lapse) -> None:
        """Nothing to do."""

    def add(self, worker: StartWorker) -> None:
        """Start one more worker."""
        place = worker.subscription, worker.worker
        self.workers[place] = SteppedWorker(self, *place, worker.name)

    def progress(self) -> Progress:
        """Return how far each outstanding slice has got."""
        return {
            id_: handover.progress()
            for worker in self.workers.values()
            for id_, handover in worker.given.items()
        }

    def dead(self) -> list[tuple[str, int]]:
        """Return the workers whose thread has ended and that were not given up."""
        return [
            place
            for place, worker in self.workers.items()
            if not (worker.alive or worker.abandoned)
        ]

    def revived(self) -> list[tuple[str, int]]:
        """Return the workers that were replaced since this was last asked."""
        found, self._revived = self._revived, []
        return found

    def departed(self) -> list[tuple[str, int]]:
        """Return the workers that have gone for good, by their own will."""
        return [
            place for place, worker in self.workers.items() if worker.gone and not worker.abandoned
        ]

    def where(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: no thread stands anywhere."""
        del subscription, worker, slice_, index
        return ""

    def stack(self, subscription: str, worker: int, slice_: int, index: int) -> str:
        """Return nothing: no thread stands anywhere."""
        del subscription, worker, slice_, index
        return ""

    def beat(self) -> None:
        """Nothing is due."""

    def late(self) -> dict[str, int]:
        """Return nothing: what ends late here nobody hears of."""
        return {}

    def replace(self, subscription: str, worker: int) -> None:
        """Go on where the dead thread ended; the record that it ran counts as failed."""
        found = self.workers[subscription, worker]
        while found.asked:
            found.answer()
        found.fail_running()
        found.alive = self.replaceable
        if found.alive:
            self._revived.append((subscription, worker))

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Report what the dead worker was running as failed, and all its slices as ended."""
        self.workers[subscription, worker].abandon(settle=settle)

    def release(self, release: Release) -> None:
        """Have the worker give up the state of slots, when it gets to it."""
        self.workers[release.subscription, release.worker].inbox.append(release)

    def adopt(self, adopt: Adopt) -> None:
        """Have the worker take over the state of slots, when it gets to it."""
        self.workers[adopt.subscription, adopt.worker].inbox.append(adopt)

    def end(self, subscription: str, worker: int) -> None:
        """End a worker that has nothing left."""
        self.workers[subscription, worker].end()

    def stop(self, timeout: float) -> list[str]:
        """Let nothing start any more; return the names of those still running."""
        del timeout
        for worker in self.workers.values():
            take_back_all(worker.given)
        return [
            worker.name
            for worker in self.workers.values()
            if worker.running is not None or worker.apart
        ]
