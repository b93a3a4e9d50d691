"""Base class of event-loop workers: their handlers and the handover of state.

Each pool defines how its workers run records. All data belongs to the loop's thread, except
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
from kafka_keyshared.core.contract.commands import Adopt, Fence, Recall, Release, TimeOut
from kafka_keyshared.core.contract.events import FencePassed, Recalled, Report
from kafka_keyshared.core.contract.slices import Slice, SliceProgress
from kafka_keyshared.executors.contexts import Contexts
from kafka_keyshared.executors.coroutines.task_frames import (
    awaitable,
    calls_of,
    place_of,
    turning,
    unmade,
)
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.state_calls import hand_over
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.pool")

Post = Callable[[Report | Recalled], None]


class TimedOutError(Exception):
    """A record ran past the ack timeout, and its handler was cancelled."""


class LoopEndedError(Exception):
    """The event loop ended while it ran the record."""


class InHand(Protocol):
    """A slice at a worker."""

    gone: frozenset[TopicPartition]

    def progress(self) -> SliceProgress:
        """Return the progress of the slice; from any thread."""


H = TypeVar("H", bound=InHand)


class LoopWorker(ABC, Generic[H]):
    """One worker on a loop; it runs up to ``limit`` records or calls at once.

    ``made`` is set when its handler has been made, and ``closed`` when it has been closed.
    """

    def __init__(self, spec: WorkerSpec, limit: int, post: Post, clock: Clock) -> None:
        self.spec = spec
        self.name = spec.name
        self.limit = limit
        self.given: dict[int, H] = {}
        # ``busy``: running records or calls. ``apart``: cancelled ones that still run, beside
        # those.
        self.busy = 0
        self.apart = 0
        self.forked = False  # is this a child that one of its handlers has forked?
        self.failed = FailedLanes()
        self.made = threading.Event()
        self.closed = threading.Event()
        self.broken: BaseException | None = None
        self._post = post
        self._clock = clock
        self._handler = Made(unmade)
        # The context in which the handler is made. Each task starts in a copy of it, no matter
        # which call starts the task.
        self._context = copy_context()
        self._contexts = Contexts(self._context)
        # Orders to release state, each with the slices that it waits for.
        self._orders: list[tuple[set[int], Release]] = []
        self._closing = False

    # --- defined by each pool ---

    @abstractmethod
    def in_hand(self, slice_: Slice) -> H:
        """Return a slice in its unstarted state."""

    @abstractmethod
    def accept(self, given: H) -> None:
        """Queue a slice; hand back its records whose lanes have failed."""

    @abstractmethod
    def wake(self) -> None:
        """Start the records or calls that may start."""

    @abstractmethod
    def recall(self, recall: Recall) -> None:
        """Hand back the unstarted records."""

    @abstractmethod
    def time_out(self, past: TimeOut) -> None:
        """Cancel these running records; answer after they had time to end."""

    @abstractmethod
    def coroutine_of(self, id_: int, index: int) -> object:
        """Return the coroutine that runs the record, None if none does; from any thread."""

    @abstractmethod
    def close(self) -> None:
        """Start nothing more; close the handler when nothing runs."""

    @abstractmethod
    def quit(self) -> list[asyncio.Task[None]]:
        """Start nothing more and cancel running tasks; return the tasks to wait for."""

    @abstractmethod
    def lose(self) -> None:
        """Report running records as failed, once, because the loop has ended."""

    @abstractmethod
    def reopen(self) -> None:
        """Continue on a new loop, after the previous one has ended."""

    @abstractmethod
    def abandon(self, *, settle: bool) -> None:
        """Report running records as failed and all slices as ended.

        With ``settle`` the unstarted records are reported as dropped.
        """

    # --- shared by all pools ---

    def where(self, id_: int, index: int) -> str:
        """Return the place in the user's program of the coroutine that runs the record."""
        return place_of(self.coroutine_of(id_, index))

    def stack(self, id_: int, index: int) -> str:
        """Return the call stack of the coroutine, through all that it awaits."""
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
        """Return whether anything runs."""
        return bool(self.busy or self.apart)

    def _close_if_idle(self) -> None:
        if self.runs or self.closed.is_set() or not self._closing:
            return
        close, self._handler = self._handler.close, Made(unmade)
        loop = turning()
        if close is None or loop is None:  # a handler on an ended loop is not closed
            self.closed.set()
            return
        loop.create_task(self._close(close))

    async def _close(self, close: Callable[[], object]) -> None:
        try:
            if inspect.isawaitable(result := close()):
                await result
        except BaseException:  # the worker is over in any case
            log.exception(
                "%s: close() of the handler failed", self.name, extra={"worker": self.name}
            )
        finally:
            self.closed.set()

    def pass_fence(self, fence: Fence) -> None:
        """Accept records of these lanes again; those behind the failed ones are handed back."""
        self.failed.passed(fence.lanes)
        self._post(FencePassed(fence.subscription, fence.worker, fence.lanes))

    def hand_over(self, order: Release | Adopt) -> None:
        """Have the handler release state behind all records held now, or adopt it at once.

        Adopted state must be there before its records run. It does not wait for pending releases.
        """
        if isinstance(order, Adopt):
            hand_over(self.name, self._handler, order, lambda: self.forked)
            return
        self._orders.append((set(self.given), order))
        self._carry_out_orders()

    def _ended(self, id_: int) -> None:
        """Remove an ended slice from the orders that wait for it."""
        for before, _ in self._orders:
            before.discard(id_)
        self._carry_out_orders()

    def _carry_out_orders(self) -> None:
        while self._orders and not self._orders[0][0]:
            _, order = self._orders.pop(0)
            answer = hand_over(self.name, self._handler, order, lambda: self.forked)
            if answer is not None:
                self._post(answer)
