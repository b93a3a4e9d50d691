"""Orders: what somebody asks of the owner, from any thread, and gets an answer to.

There is one way in. An order waits in line and wakes the owner, who goes on with each of them in
each round, between the mail and the fetch, the oldest first: one that has to wait for something
keeps no other waiting. Whatever becomes of the instance, every order gets an answer: what it asked
for, or why it was refused.
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
"""What an order does, on the owner's thread: it yields to wait for the next round, and returns the
answer. It raises :class:`OrderRefusedError` for what cannot be had; anything else it raises ends
the instance."""


class OrderRefusedError(KeySharedError):
    """The owner has not done what was ordered, and will not; the text says why."""


def named(subscriptions: Mapping[str, T], name: str) -> T:
    """Return the subscription that an order is for, or refuse it with those that there are."""
    if name not in subscriptions:
        known = ", ".join(map(repr, sorted(subscriptions)))
        raise OrderRefusedError(f"there is no subscription {name!r}; there is {known}")
    return subscriptions[name]


class _Order(Generic[T]):
    """An order in line: what it is called, what it does, and where its answer goes."""

    def __init__(self, name: str, work: Work[T]) -> None:
        self.name = name
        self.reply: Future[T] = Future()
        self._work = work
        self._going: Generator[None, None, T] | None = None
        # Whether the owner has taken it up: what it changes at once is changed then.
        self.begun = False

    def go_on(self) -> bool:
        """Do what can be done in this round; say whether it is answered."""
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
        """Answer that it is not done, and why."""
        self._answer(self.reply.set_exception, OrderRefusedError(f"{self.name}: {reason}"))

    def _answer(self, put: Callable[[Any], None], answer: object) -> None:
        with suppress(InvalidStateError):  # whoever asked has given up, or it was refused meanwhile
            put(answer)


class Orders:
    """The line of orders of one instance. ``wake`` has the owner look.

    ``line`` has those that wait, the oldest first; only this class changes it. An order whose asker
    has cancelled its reply is left where it stands.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self.line: deque[_Order[Any]] = deque()
        self._closed = ""
        self._owner: int | None = None

    # --- anybody ---

    def post(self, name: str, work: Work[T]) -> Future[T]:
        """Put an order in line and return where its answer will be; refused ones have it at once.

        ``name`` is what a refusal calls it.
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
        """Order it and wait for the answer, at most ``timeout`` seconds.

        Raises :class:`OrderRefusedError`, or :class:`TimeoutError` when the owner has not got to
        it, or to its end: then it is given up, which the text says. Not so what ``follows`` by
        itself from what the owner does when it takes the order up. Refused on the owner's own
        thread, as in a callback of the client: it would wait for itself.
        """
        if self._owner == threading.get_ident():
            raise OrderRefusedError(f"{name}: not in a callback, which the owner would wait in")
        order = self._posted(name, work)
        try:
            return order.reply.result(timeout)
        except TimeoutError:
            with self._lock:  # or the owner takes it up between the two questions
                cancelled, goes_on = order.reply.cancel(), follows and order.begun
            if cancelled:
                end = "" if goes_on else ", and given up"
                raise TimeoutError(f"{name}: not done within {timeout:g} s{end}") from None
            return order.reply.result(0.0)

    def close(self, reason: str) -> None:
        """Refuse all that wait, and from now on everybody; from any thread. The first reason stays.

        The one that the owner is in may still be answered as it asked.
        """
        with self._lock:
            self._closed = self._closed or reason
            left = list(self.line)
            self.line.clear()
        for order in left:
            order.refuse(self._closed)

    # --- the owner ---

    def belong(self) -> None:
        """Note that the calling thread is the owner's."""
        self._owner = threading.get_ident()

    def serve(self) -> None:
        """Go on with each order, the oldest first, and take those out that are answered."""
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
