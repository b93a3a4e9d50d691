"""Checker I15: no worker idles while a shared record could start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.checkers.shared_work import ShardHolders, SharedWork, TakenRecord
from kafka_keyshared.lab.simulator.history import History, Listener

IDLE_MOST = 0.05
"""Seconds for which a worker may be idle while a record could start."""


class WorkConservation(Checker):
    """I15, work conservation: no worker is idle for long while a shard is ready.

    The checker looks at each leased record. It compares two times with ``idle_most`` seconds: how
    long the record could have started, and how long a worker was idle. If both are longer, the idle
    worker was passed over, or the shard was not put back.
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
        """Return no listeners: :class:`SharedWork` calls the checker for each lease."""
        return {}

    def _judge(self, member: int, sub: str, crew: ShardHolders, taken: TakenRecord) -> None:
        del crew
        now = self.books.now
        if taken.idle is None or now - max(taken.since, taken.idle_since) <= self._idle_most:
            return
        self.violated(
            member,
            f"{taken.record} could start since {taken.since:.3f}, and worker {taken.idle} of "
            f"{sub!r} has had nothing since {taken.idle_since:.3f}",
        )
