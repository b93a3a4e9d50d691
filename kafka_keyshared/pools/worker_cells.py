"""What a worker's thread has: how it is made, what it was given, and what it leaves to others."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeAlias

from kafka_keyshared.core.commands import Adopt, Fence, Release
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.handling.called import Called
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.handling.outputs import Take
from kafka_keyshared.pools.contexts import Contexts
from kafka_keyshared.pools.failed_lanes import FailedLanes
from kafka_keyshared.pools.lease import Held, Together
from kafka_keyshared.pools.port import Handover

Handle: TypeAlias = Callable[[Any], Any]

Item: TypeAlias = Handover | Fence | Release | Adopt
"""What a worker takes from its inbox, one after the other."""


@dataclass(frozen=True)
class WorkerSpec:
    """How one worker is made. ``make`` is called in the worker's own thread.

    ``one_thread``: what that makes is the worker's own, and no second thread may enter it. Of a
    handler that runs in another process ``called`` is told of each call, and ``take`` gets what it
    hands out; in this one the handler is wrapped for both.
    """

    subscription: str
    index: int
    name: str
    make: Callable[[], Made]
    dead_letter_on: tuple[type[BaseException], ...] = ()
    one_thread: bool = False
    called: Called | None = None
    take: Take | None = None

    @property
    def thread(self) -> str:
        """Return the name of its thread, which is in what a handler logs."""
        return f"keyshared-{self.subscription}-{self.name}"


@dataclass(eq=False)
class ThreadCell(ABC):
    """One thread of a worker. ``made`` is set when its handler is, or ``broken`` says why not."""

    spec: WorkerSpec
    failed: FailedLanes = field(default_factory=FailedLanes)
    thread: threading.Thread | None = None
    made: threading.Event = field(default_factory=threading.Event)
    broken: BaseException | None = None
    # Whether its handler was made since somebody asked for that; once more for each thread it had.
    revived: bool = False
    # Whether it is to end because its worker is gone.
    sent_home: bool = False
    # In which its handler is called; made anew once the handler is.
    contexts: Contexts = field(default_factory=lambda: Contexts(copy_context()))

    @property
    def name(self) -> str:
        """Return what its worker is called."""
        return self.spec.name

    @property
    @abstractmethod
    def current(self) -> Held | Together | None:
        """Return what it runs."""

    def make(self) -> Made:
        """Make the handler, in the worker's own thread."""
        return self.spec.make()

    def over(self) -> bool:
        """Say whether its thread has ended."""
        return self.thread is not None and not self.thread.is_alive()

    def lives(self) -> bool:
        """Say whether there is a thread and it has not ended."""
        return self.thread is not None and self.thread.is_alive()


@dataclass(eq=False)
class WorkerCell(ThreadCell):
    """One thread of a worker: its inbox, and what the worker was given and has not reported.

    None in the inbox ends it. ``changing`` is held while a slice ends, and while another thread
    takes over from one that is stuck. That one has a cell of its own, with the same ``given``.
    """

    inbox: SimpleQueue[Item | None] = field(default_factory=SimpleQueue)
    given: dict[int, Handover] = field(default_factory=dict)
    # What a thread leaves to its successor, beside the lanes that it sets aside: the slice it is
    # in, and which record of that was the last to be reported.
    current: Handover | None = None
    reported: Any = None
    changing: threading.Lock = field(default_factory=threading.Lock)

    def handover(self, slice_: Slice) -> Handover:
        """Return a slice on its way through the worker."""
        return Handover(slice_)

    def is_in(self, id_: int) -> bool:
        """Say whether the thread is in that slice."""
        current = self.current  # asked once: its own thread leaves the slice meanwhile
        return current is not None and current.slice.id == id_

    def runs(self, id_: int, index: int) -> bool:
        """Say whether the thread is in that record of the slice; where it cannot end."""
        current = self.current
        if current is None or current.slice.id != id_ or id_ not in self.given:
            return False
        return current.progress().started == index + 1

    def unreported(self) -> int | None:
        """Return which record of its slice the thread has started last, and not reported."""
        if self.current is None:
            return None
        started = self.current.progress().started
        if not started or self.current.slice.records[started - 1] is self.reported:
            return None
        return started - 1

    def hand_over(self, following: WorkerCell) -> None:
        """Leave all but the slice that the thread is in to another cell; the thread ends with it.

        It is in a record meanwhile, and takes nothing.
        """
        while not self.inbox.empty():
            following.inbox.put(self.inbox.get())
        self.inbox.put(None)
        if self.thread is not None:
            self.thread.name += " (stuck)"
