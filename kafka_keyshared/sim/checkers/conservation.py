"""I15: where workers share what waits, none is idle while there is something that it may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.sim.checkers.books import Books
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.checkers.shared_work import Crew, SharedWork, Taken
from kafka_keyshared.sim.history import History, Listener

IDLE_MOST = 0.05
"""Seconds for which a worker may have nothing while a record could start."""


class WorkConservation(Checker):
    """I15, work conservation: no worker is idle for long beside a shard that is ready.

    Whatever a worker is handed is looked at: had it been possible to start it for longer than
    ``idle_most`` seconds, and has a worker had nothing for as long, then that one was passed over,
    or the shard was not put back.
    """

    invariant = "I15 work conservation"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books,
        work: SharedWork,
        *,
        idle_most: float = IDLE_MOST,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._idle_most = idle_most
        work.judges.append(self._judge)

    def listeners(self) -> Mapping[type, Listener]:
        """It is called for what workers are handed."""
        return {}

    def _judge(self, member: int, sub: str, crew: Crew, taken: Taken) -> None:
        del crew
        now = self.books.now
        if taken.idle is None or now - max(taken.since, taken.idle_since) <= self._idle_most:
            return
        self.violated(
            member,
            f"{taken.record} could start since {taken.since:.3f}, and worker {taken.idle} of "
            f"{sub!r} has had nothing since {taken.idle_since:.3f}",
        )
