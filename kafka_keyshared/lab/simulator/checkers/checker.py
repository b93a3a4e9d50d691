"""Base class of all checkers, and the violation that they raise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.history import History, Listener

FreeSince = Callable[[int], float]
"""Returns the time since which a member's owner thread may run; infinity while it may not."""


def always(member: int) -> float:
    """Return minus infinity: the simulation never blocks the owner thread."""
    del member
    return float("-inf")


class Violation(AssertionError):  # noqa: N818 - a finding, raised only on request
    """An invariant that does not hold.

    It carries the invariant, the time in timeline seconds, the member and a description. ``member``
    is None if no single member is responsible.
    """

    def __init__(self, invariant: str, time: float, member: int | None, words: str) -> None:
        whose = "" if member is None else f" member {member}:"
        super().__init__(f"{invariant} at {time:.3f}:{whose} {words}")
        self.invariant = invariant
        self.time = time
        self.member = member
        self.words = words


class Checker(ABC):
    """One invariant, checked against every event of the history.

    Checkers that are given the same books share them. A violation is raised from the event that
    reveals it, unless ``go_on`` is set. Every violation is kept in ``violations``.
    """

    invariant: ClassVar[str]

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        go_on: bool = False,
    ) -> None:
        self.books = Books(history, settings) if books is None else books
        self.settings = {each.name: each for each in settings}
        self.violations: list[Violation] = []
        self._go_on = go_on
        for kind, listener in self.listeners().items():
            history.listen(kind, listener)

    @abstractmethod
    def listeners(self) -> Mapping[type, Listener]:
        """Return the listener for each kind of event."""

    def violated(self, member: int | None, words: str) -> None:
        """Record a violation, and raise it unless the run is to go on."""
        violation = Violation(self.invariant, self.books.now, member, words)
        self.violations.append(violation)
        if not self._go_on:
            raise violation
