"""What all checkers have in common: they listen, keep books, and say what is broken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.history import History, Listener

FreeSince = Callable[[int], float]
"""Says for a member since when the simulation has let its owner run; infinity while it does not."""


def always(member: int) -> float:
    """Say that the simulation has never kept the owner of that member waiting."""
    del member
    return float("-inf")


class Violation(AssertionError):  # noqa: N818 - it is what was found, and raised where asked for
    """An invariant is broken: which, when (seconds of the timeline), by whom, and how in words.

    ``member`` is None for what nobody in particular has done.
    """

    def __init__(self, invariant: str, time: float, member: int | None, words: str) -> None:
        whose = "" if member is None else f" member {member}:"
        super().__init__(f"{invariant} at {time:.3f}:{whose} {words}")
        self.invariant = invariant
        self.time = time
        self.member = member
        self.words = words


class Checker(ABC):
    """One invariant, held against all that happens.

    Checkers that are given the same books share them. The first violation is raised, out of
    whatever has happened, unless ``go_on`` is set; each is kept in ``violations``.
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
        """Return what is to be called for which kind of happening."""

    def violated(self, member: int | None, words: str) -> None:
        """Note a violation, and raise it unless the run is to go on."""
        violation = Violation(self.invariant, self.books.now, member, words)
        self.violations.append(violation)
        if not self._go_on:
            raise violation
