"""The state of a worker's thread: its specification, inbox and current slice."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeAlias

from kafka_keyshared.core.contract.commands import Adopt, Fence, Release
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.executors.contexts import Contexts
from kafka_keyshared.executors.failed_lanes import FailedLanes
from kafka_keyshared.executors.handling.call_record import Called
from kafka_keyshared.executors.handling.failure import NO_RULES, ErrorRules
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.handling.outputs import Take
from kafka_keyshared.executors.lease import LeasedSlice, Together
from kafka_keyshared.executors.port import Handover, take_back_all

Handle: TypeAlias = Callable[[Any], Any]

Item: TypeAlias = Handover | Fence | Release | Adopt
"""Items of a worker's inbox, taken one after the other."""


@dataclass(frozen=True)
class WorkerSpec:
    """How one worker is made. ``make`` is called in the worker's own thread.

    ``one_thread``: the handler belongs to one thread, and no second thread may enter it. If the
    handler runs in another process, ``called`` gets each call and ``take`` gets the outputs. In
    this process the handler itself is wrapped for both.
    """

    subscription: str
    index: int
    name: str
    make: Callable[[], Made]
    rules: ErrorRules = NO_RULES
    one_thread: bool = False
    called: Called | None = None
    take: Take | None = None

    @property
    def thread(self) -> str:
        """Return the name of its thread, which appears in the log lines of a handler."""
        return f"keyshared-{self.subscription}-{self.name}"


@dataclass(eq=False)
class ThreadCell(ABC):
    """One thread of a worker. ``made`` is set when its handler is made or ``broken`` is set."""

    spec: WorkerSpec
    failed: FailedLanes = field(default_factory=FailedLanes)
    thread: threading.Thread | None = None
    made: threading.Event = field(default_factory=threading.Event)
    broken: BaseException | None = None
    # Whether the handler was made since the last call of ``revived()``; set again for each new
    # thread.
    revived: bool = False
    # Whether the thread must end because its worker is gone.
    sent_home: bool = False
    # Contexts for handler calls; replaced when the handler has been made.
    contexts: Contexts = field(default_factory=lambda: Contexts(copy_context()))

    @property
    def name(self) -> str:
        """Return the name of its worker."""
        return self.spec.name

    @property
    def attempts(self) -> int | None:
        """Return the number of attempts of a record."""
        return self.spec.rules.attempts

    @property
    @abstractmethod
    def current(self) -> LeasedSlice | Together | None:
        """Return the slice or call that it runs."""

    @abstractmethod
    def is_in(self, id_: int) -> bool:
        """Return whether the thread runs that slice, or a call with its record."""

    @abstractmethod
    def has_work(self) -> bool:
        """Return whether records, fences or orders about state wait for the thread."""

    @abstractmethod
    def finish(self) -> None:
        """Have the thread end after its current work."""

    @abstractmethod
    def clear(self) -> None:
        """Clear the remaining work in a forked child: it ends after the current record."""

    def make(self) -> Made:
        """Make the handler, in the worker's own thread."""
        return self.spec.make()

    def over(self) -> bool:
        """Return whether its thread has ended."""
        return self.thread is not None and not self.thread.is_alive()

    def lives(self) -> bool:
        """Return whether there is a thread and it has not ended."""
        return self.thread is not None and self.thread.is_alive()


@dataclass(eq=False)
class WorkerCell(ThreadCell):
    """State of one thread of a worker: its inbox, and the slices not reported as ended.

    None in the inbox ends the thread. ``changing`` is held while a slice ends, and while a
    replacement thread takes over from a stuck one. The replacement has its own cell, with the same
    ``given``.
    """

    inbox: SimpleQueue[Item | None] = field(default_factory=SimpleQueue)
    given: dict[int, Handover] = field(default_factory=dict)
    # State for the next thread, beside the failed lanes: the current slice, and its last reported
    # record.
    current: Handover | None = None
    reported: Any = None
    changing: threading.Lock = field(default_factory=threading.Lock)

    def handover(self, slice_: Slice) -> Handover:
        """Return a slice on its way through the worker."""
        return Handover(slice_)

    def has_work(self) -> bool:
        """Return whether its inbox has items."""
        return not self.inbox.empty()

    def finish(self) -> None:
        """Put the end marker behind the items of its inbox."""
        self.inbox.put(None)

    def clear(self) -> None:
        """Take back all unstarted records: each iterator ends after the current one."""
        take_back_all(self.given)

    def is_in(self, id_: int) -> bool:
        """Return whether the thread runs that slice."""
        current = self.current  # read once: its own thread may leave the slice
        return current is not None and current.slice.id == id_

    def runs(self, id_: int, index: int) -> bool:
        """Return whether the thread runs that record; call it where the slice cannot end."""
        current = self.current
        if current is None or current.slice.id != id_ or id_ not in self.given:
            return False
        return current.progress().started == index + 1

    def unreported(self) -> int | None:
        """Return the index of the last started record if it is not reported, else None."""
        if self.current is None:
            return None
        started = self.current.progress().started
        if not started or self.current.slice.records[started - 1] is self.reported:
            return None
        return started - 1

    def hand_over(self, following: WorkerCell) -> None:
        """Move the inbox to another cell; this thread ends after its current slice.

        The thread is busy with a record during this call, and takes nothing from the inbox.
        """
        while not self.inbox.empty():
            following.inbox.put(self.inbox.get())
        self.finish()
        if self.thread is not None:
            self.thread.name += " (stuck)"
