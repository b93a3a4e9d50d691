"""A worker on an event loop: how its handler is made and closed, and the state that it hands over.

What it runs, and when, is its pool's own. All of it belongs to the loop's thread, but for
``given``, which the owner fills and copies.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, Protocol, TypeVar

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.commands import Adopt, Fence, Recall, Release, TimeOut
from kafka_keyshared.core.events import FencePassed, Recalled, Report
from kafka_keyshared.core.slices import Running, Slice
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.pools.awaited import awaitable, calls_of, place_of, turning, unmade
from kafka_keyshared.pools.contexts import Contexts
from kafka_keyshared.pools.failed_lanes import FailedLanes
from kafka_keyshared.pools.state import hand_over
from kafka_keyshared.pools.worker_cells import WorkerSpec

log = log_of("kafka_keyshared.pool")

HEED_TURNS = 4
"""Turns of the loop that a task has to end in once it is cancelled, before that is answered."""

Post = Callable[[Report | Recalled], None]


class TimedOutError(Exception):
    """A record ran past the ack timeout, and its handler was cancelled."""


class LoopEndedError(Exception):
    """The event loop ended while the record ran on it."""


class InHand(Protocol):
    """A slice in the hands of a worker."""

    gone: frozenset[TopicPartition]

    def progress(self) -> Running:
        """Return how far the worker is in it; from any thread."""


H = TypeVar("H", bound=InHand)


class LoopWorker(ABC, Generic[H]):
    """One worker on a loop, which may run up to ``limit`` things at once.

    ``made`` and ``closed`` are set when its handler has been made, and when it has been closed.
    """

    def __init__(self, spec: WorkerSpec, limit: int, post: Post, clock: Clock) -> None:
        self.spec = spec
        self.name = spec.name
        self.limit = limit
        self.given: dict[int, H] = {}
        # What it runs; and what runs on although it was cancelled, beside that.
        self.busy = 0
        self.apart = 0
        self.forked = False  # is this a child, which one of its handlers has made?
        self.failed = FailedLanes()
        self.made = threading.Event()
        self.closed = threading.Event()
        self.broken: BaseException | None = None
        self._post = post
        self._clock = clock
        self._handler = Made(unmade)
        # In which the handler is made; each task starts in a copy, whichever call wakes it.
        self._context = copy_context()
        self._contexts = Contexts(self._context)
        # Orders to give up state, each with what it waits for.
        self._orders: list[tuple[set[int], Release]] = []
        self._closing = False

    # --- what its pool is for ---

    @abstractmethod
    def in_hand(self, slice_: Slice) -> H:
        """Return a slice as it is before anything of it has started."""

    @abstractmethod
    def accept(self, given: H) -> None:
        """Take a slice: to run it, or to hand back what is of lanes that have failed."""

    @abstractmethod
    def wake(self) -> None:
        """Start what may start."""

    @abstractmethod
    def recall(self, recall: Recall) -> None:
        """Give back what has not started."""

    @abstractmethod
    def time_out(self, past: TimeOut) -> None:
        """Cancel what runs of these, and answer when it has had the time to heed that."""

    @abstractmethod
    def coroutine_of(self, id_: int, index: int) -> object:
        """Return the coroutine that runs the record, None where none does; from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Start nothing any more; close the handler when nothing runs."""

    @abstractmethod
    def quit(self) -> list[asyncio.Task[None]]:
        """Start nothing any more, and cancel what runs; return the tasks that are to end."""

    @abstractmethod
    def lose(self) -> None:
        """Report what ran as failed, because the loop has ended; once, however often it is told."""

    @abstractmethod
    def reopen(self) -> None:
        """Go on, on another loop, behind what ran on one that has ended."""

    @abstractmethod
    def abandon(self, *, settle: bool) -> None:
        """Report what ran as failed, and everything as ended; what had not started as dropped."""

    # --- the same for all ---

    def where(self, id_: int, index: int) -> str:
        """Return where in the user's program the coroutine stands that runs the record."""
        return place_of(self.coroutine_of(id_, index))

    def stack(self, id_: int, index: int) -> str:
        """Return the calls that the coroutine is in, through what it awaits."""
        return calls_of(self.coroutine_of(id_, index))

    def open(self) -> None:
        """Make the handler."""
        try:
            made = self._context.run(self.spec.make)
            self._contexts = Contexts(self._context)
            self._handler = made._replace(handle=awaitable(made.handle))
        except BaseException as error:  # noqa: BLE001 - raised where the pool is started
            self.broken = error
        finally:
            self.made.set()

    @property
    def runs(self) -> bool:
        """Say whether it runs anything."""
        return bool(self.busy or self.apart)

    def _close_if_idle(self) -> None:
        if self.runs or self.closed.is_set() or not self._closing:
            return
        close, self._handler = self._handler.close, Made(unmade)
        loop = turning()
        if close is None or loop is None:  # one that has ended closes nothing
            self.closed.set()
            return
        loop.create_task(self._close(close))

    async def _close(self, close: Callable[[], object]) -> None:
        try:
            if inspect.isawaitable(result := close()):
                await result
        except BaseException:  # the worker is over, whatever it says
            log.exception(
                "%s: close() of the handler failed", self.name, extra={"worker": self.name}
            )
        finally:
            self.closed.set()

    def pass_fence(self, fence: Fence) -> None:
        """Take records of these lanes again: everything behind the failed ones is handed back."""
        self.failed.passed(fence.lanes)
        self._post(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def hand_over(self, order: Release | Adopt) -> None:
        """Have the handler give up state behind everything that is here now, or take it over.

        What comes is there before the records that it is for, whatever is still to be given up.
        """
        if isinstance(order, Adopt):
            hand_over(self.name, self._handler, order, lambda: self.forked)
            return
        self._orders.append((set(self.given), order))
        self._see_to_orders()

    def _ended(self, id_: int) -> None:
        """Take note that a slice has ended, for the orders that wait for that."""
        for before, _ in self._orders:
            before.discard(id_)
        self._see_to_orders()

    def _see_to_orders(self) -> None:
        while self._orders and not self._orders[0][0]:
            _, order = self._orders.pop(0)
            answer = hand_over(self.name, self._handler, order, lambda: self.forked)
            if answer is not None:
                self._post(answer)
