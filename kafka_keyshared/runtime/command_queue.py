"""Orders: requests to the owner from other threads, each with an answer.

Orders wait in one queue and wake the owner. In each round, between mailbox and fetch, the owner
continues every order, the oldest first. An order that has to wait delays no other. Every order gets
an answer, also when the instance fails: its result, or the reason of the refusal.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

from kafka_keyshared.errors import KeySharedError

T = TypeVar("T")

Work: TypeAlias = Callable[[], Generator[None, None, T]]
"""The work of an order, run on the owner thread.

It yields to wait for the next round, and returns the answer. It raises :class:`OrderRefusedError`
to refuse. Any other exception ends the instance.
"""


class OrderRefusedError(KeySharedError):
    """The owner has refused the order. The text says why."""


def named(subscriptions: Mapping[str, T], name: str) -> T:
    """Return the subscription that an order names, or refuse with the known names."""
    if name not in subscriptions:
        known = ", ".join(map(repr, sorted(subscriptions)))
        raise OrderRefusedError(f"there is no subscription {name!r}; there is {known}")
    return subscriptions[name]


class _Order(Generic[T]):
    """A queued order: its name, its work, and the future of its answer."""

    def __init__(self, name: str, work: Work[T]) -> None:
        self.name = name
        self.reply: Future[T] = Future()
        self._work = work
        self._going: Generator[None, None, T] | None = None
        # Whether the owner has started it; immediate changes are made then.
        self.begun = False

    def go_on(self) -> bool:
        """Run the order until it waits; return whether it is answered."""
        try:
            if self._going is None:
                self._going = self._work()
            next(self._going)
        except StopIteration as end:
            self._answer(self.reply.set_result, end.value)
        except OrderRefusedError as refusal:
            self.refuse(str(refusal))
        except BaseException as error:
            self.refuse(f"it has failed: {type(error).__name__}: {error}")
            raise
        else:
            return False
        return True

    def refuse(self, reason: str) -> None:
        """Answer that the order is not carried out, and why."""
        self._answer(self.reply.set_exception, OrderRefusedError(f"{self.name}: {reason}"))

    def _answer(self, put: Callable[[Any], None], answer: object) -> None:
        with suppress(InvalidStateError):  # the caller gave up, or the order was already refused
            put(answer)


class Orders:
    """The queue of orders of one instance. ``wake`` wakes the owner.

    ``line`` has the waiting orders, the oldest first. Only this class changes it. An order whose
    reply was cancelled is not continued.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self.line: deque[_Order[Any]] = deque()
        self._closed = ""
        self._owner: int | None = None

    # --- any thread ---

    def post(self, name: str, work: Work[T]) -> Future[T]:
        """Queue an order and return the future of its answer. A refusal is answered at once.

        ``name`` appears in the refusal.
        """
        return self._posted(name, work).reply

    def _posted(self, name: str, work: Work[T]) -> _Order[T]:
        order = _Order(name, work)
        with self._lock:
            refused = self._closed
            if not refused:
                self.line.append(order)
        if refused:
            order.refuse(refused)
        else:
            self._wake()
        return order

    def ask(self, name: str, work: Work[T], timeout: float, *, follows: bool = False) -> T:
        """Queue an order and wait at most ``timeout`` seconds for the answer.

        Raises :class:`OrderRefusedError`. Raises :class:`TimeoutError` when the owner has not
        started or not finished the order. The order is then given up, and the text says so. With
        ``follows`` the text does not say so for a started order. Its change is made already, and
        the effect follows. On the owner's own thread, as in a client callback, the order is
        refused: the owner would wait for itself.
        """
        if self._owner == threading.get_ident():
            raise OrderRefusedError(
                f"{name}: not allowed in a callback: the owner thread would wait for itself"
            )
        order = self._posted(name, work)
        try:
            return order.reply.result(timeout)
        except TimeoutError:
            with self._lock:  # or the owner starts it between the two questions
                cancelled, goes_on = order.reply.cancel(), follows and order.begun
            if cancelled:
                end = "" if goes_on else ", and given up"
                raise TimeoutError(f"{name}: not done within {timeout:g} s{end}") from None
            return order.reply.result(0.0)

    def close(self, reason: str) -> None:
        """Refuse all waiting and all later orders; from any thread. The first reason is kept.

        The order that the owner is working on may still get its regular answer.
        """
        with self._lock:
            self._closed = self._closed or reason
            left = list(self.line)
            self.line.clear()
        for order in left:
            order.refuse(self._closed)

    # --- the owner ---

    def belong(self) -> None:
        """Record the calling thread as the owner's."""
        self._owner = threading.get_ident()

    def serve(self) -> None:
        """Continue each order, the oldest first, and remove those that are answered."""
        if not self.line:
            return
        with self._lock:
            waiting = list(self.line)
        for order in waiting:
            with self._lock:
                over = order.reply.done()
                order.begun = order.begun or not over
            if over or order.go_on():
                with self._lock, suppress(ValueError):
                    self.line.remove(order)
