"""The slot table: to which row each slot goes just now.

The ring says who owns which slot; it is projected to the table when workers come and go, and
nothing else is looked at per record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record


class SlotTable:
    """For each slot the id of the worker that owns it, and the row that takes its records.

    ``rows`` are the lists of records themselves, so that routing a record appends to one of them
    and asks nobody. ``version`` changes whenever it is projected anew.
    """

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.owners: list[int] = []
        self.rows: list[list[Record]] = []
        self.shares: dict[int, float] = {}
        self.version = 0
        self.project(workers)

    def project(self, workers: Iterable[Worker]) -> None:
        """Project the ring of these workers to the table."""
        self.version += 1
        able = list(workers)
        ring = VnodeRing([worker.name for worker in able], ROUTING_VNODES)
        owners: list[int] = []
        rows: list[list[Record]] = []
        owned: Counter[int] = Counter()
        # Arc by arc, and not slot by slot: there are a few hundred of them for each worker.
        for place, slots in ring.arcs():
            worker = able[place]
            owners += [worker.id] * slots
            rows += [worker.routed] * slots
            owned[worker.id] += slots
        self.owners, self.rows = owners, rows
        self.shares = {worker.id: owned[worker.id] / SLOTS for worker in able}
