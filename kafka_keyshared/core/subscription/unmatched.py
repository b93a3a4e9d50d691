"""Rows for records that have no present worker.

The declared filters and ranges decide whether a record has a worker, not the present workers. A
record of an absent worker waits for it under every ``on_unmatched`` policy. (Danube's dispatcher
skips records that no worker takes.) Waiting records count toward the limit of blocked lanes, so
their partition stops before they fill the window.

This module is not used while every slot has a worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.port import Unowned
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.model import Record


class UnownedRows:
    """Rows without a holder: ``away`` for absent workers, ``unassigned`` for no worker at all.

    With ``hold`` they are one row. With ``skip`` and ``error`` the records leave ``unassigned``
    within the event that put them there.
    """

    def __init__(self, on_unmatched: OnUnmatched | None) -> None:
        self.away = RunQueue(None)
        self.unassigned = self.away if on_unmatched == "hold" else RunQueue(None)
        # How many records waited for absent workers at the last look.
        self.told = 0
        self.rows = [self.away] if self.unassigned is self.away else [self.away, self.unassigned]

    def row_of(self, why: Unowned) -> RunQueue:
        """Return the row for records that have no worker for this reason."""
        return self.unassigned if why is Unowned.UNASSIGNED else self.away

    def takers(self) -> Mapping[Unowned, list[Record]]:
        """Return the slot-table entries for slots without a worker."""
        return {why: self.row_of(why).routed for why in (Unowned.UNASSIGNED, Unowned.AWAY)}
