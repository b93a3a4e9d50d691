"""What is no worker's just now: it waits here, or is settled, as ``on_unmatched`` says.

Whether a record is anybody's is decided by what was declared, never by who is there: what a worker
that is away would take waits for it, whatever is done with records that nobody takes (Danube's
dispatcher skips those). What waits counts to the limit that blocked lanes have, so it stops its
partition before it fills the window.

Nothing of this is asked where every slot has a worker.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.port import Unowned
from kafka_keyshared.core.rows import Row
from kafka_keyshared.model import Record


class UnownedRows:
    """Rows without a holder: ``away`` for workers that are not there, ``nobody`` for no worker.

    They are one row where what is nobody's is held. With ``skip`` and ``error`` nothing stays in
    ``nobody`` beyond the event that has brought it there.
    """

    def __init__(self, on_unmatched: OnUnmatched | None) -> None:
        self.away = Row(None)
        self.nobody = self.away if on_unmatched == "hold" else Row(None)
        # How many waited for workers that are away when that was told last.
        self.told = 0
        self.rows = [self.away] if self.nobody is self.away else [self.away, self.nobody]

    def row_of(self, why: Unowned) -> Row:
        """Return where records wait that have no worker for this reason."""
        return self.nobody if why is Unowned.NOBODY else self.away

    def takers(self) -> Mapping[Unowned, list[Record]]:
        """Return what stands in the slot table for slots that are no worker's."""
        return {why: self.row_of(why).routed for why in (Unowned.NOBODY, Unowned.AWAY)}
