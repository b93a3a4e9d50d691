"""Checker of the timeout before an instance ends for missing rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import RightsChanged

FOR_RIGHTS = "the brokers have refused all work"
"""Beginning of the reason of a process that has ended for missing rights."""


class PatientWithRights(Checker):
    """A process that ends for missing rights has lacked them for the full timeout.

    The group or every topic was refused at least ``timeout`` seconds before it stops. None means
    that no process ends for that reason.
    """

    invariant = "patience with rights"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        timeout: float | None = None,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._timeout = timeout
        # When each was first refused: topics by name, the group by None.
        self._refused: dict[str | None, float] = {}
        self._stopping: dict[int, float] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to changes of rights, and to processes that end."""
        return {
            RightsChanged: self._changed,
            happened.StopRequested: self._stops,
            happened.Gone: self._gone,
        }

    def _changed(self, told: RightsChanged) -> None:
        refused: tuple[str | None, ...] = (*told.fetches, *((None,) if told.group else ()))
        for name in refused:
            self._refused.setdefault(name, self.books.now)

    def _stops(self, told: happened.StopRequested) -> None:
        self._stopping[told.member] = self.books.now

    def _gone(self, told: happened.Gone) -> None:
        at = self._stopping.pop(told.member, self.books.now)
        if not told.reason.startswith(FOR_RIGHTS):
            return
        if self._timeout is None:
            self.violated(told.member, f"it may wait for ever, and has ended: {told.reason}")
            return
        topics = {each.topic for each in self.books.logs}
        since = [self._refused.get(each, float("inf")) for each in topics]
        first = min(self._refused.get(None, float("inf")), max(since, default=float("inf")))
        if at - first < self._timeout:
            self.violated(
                told.member,
                f"it has ended {at - first:.3f} s after everything was refused, and was to wait "
                f"{self._timeout:g} s: {told.reason}",
            )
