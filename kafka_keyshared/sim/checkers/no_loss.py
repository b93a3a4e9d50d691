"""I1: no record is lost."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.model import some
from kafka_keyshared.sim import history as happened
from kafka_keyshared.sim.checkers.checker import Checker
from kafka_keyshared.sim.history import Listener


class NoLoss(Checker):
    """I1, no loss: every record that was written ends done, dropped or in the dead-letter topic.

    In every subscription, by the end of the run. What was removed from its log is owed only by an
    assignment that has it still.
    """

    invariant = "I1 no loss"

    def listeners(self) -> Mapping[type, Listener]:
        """It looks once, at the end."""
        return {happened.Finished: self._finished}

    def _finished(self, told: happened.Finished) -> None:
        del told
        books = self.books
        if not any(books.unfinished.values()):
            return
        for partition, log in sorted(books.logs.items()):
            for sub in log.fates:
                lost = [*books.owed(log, sub)][::-1]
                if lost:
                    names = some(f"@{each.offset}" for each in lost)
                    self.violated(
                        None,
                        f"{len(lost)} of {partition} were not settled by {sub!r}: {names}; "
                        f"{books.whereabouts(lost[0])}",
                    )
