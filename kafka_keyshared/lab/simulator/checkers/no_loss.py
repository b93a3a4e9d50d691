"""Checker I1: no record is lost."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.checker import Checker
from kafka_keyshared.lab.simulator.history import Listener
from kafka_keyshared.model import some


class NoLoss(Checker):
    """I1, no loss: every written record ends done, dropped or in the dead-letter topic.

    This holds in every subscription by the end of the run. A record that was removed from its log
    is owed only by an assignment that still has it.
    """

    invariant = "I1 no loss"

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to the end of the run."""
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
