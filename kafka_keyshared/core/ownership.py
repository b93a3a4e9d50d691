"""Whose a record is, and where it waits until it is leased.

Whatever comes back from somewhere, and whatever is to run again, is put where it belongs by what
stands here: nobody else asks the slot table.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from kafka_keyshared.core.backlog import Backlog
from kafka_keyshared.core.draining_slots import DrainingSlots
from kafka_keyshared.core.hand_overs import HandOvers
from kafka_keyshared.core.lanes import ClosedLane
from kafka_keyshared.core.one_lease import Grant
from kafka_keyshared.core.places import WaitingPlace
from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.core.rows import Row
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.workers import Worker, WorkerState
from kafka_keyshared.model import Record


class Ownership:
    """The workers of a subscription, the slots that each of them has, and what waits for them."""

    def __init__(self, settings: SubscriptionSettings) -> None:
        settings.check()
        self.settings = settings
        self.name = settings.name
        self.keys = settings.keys()
        self.places: list[WaitingPlace] = []
        self.keyless = Backlog()
        self.draining = DrainingSlots(self.keys)
        self.hand_overs = HandOvers() if settings.hands_over else None
        self._worker_ids = itertools.count()
        self.workers: dict[int, Worker] = {}
        # Those that join or leave.
        self.changing: list[Worker] = []
        # The last one of each name that is gone, for whoever looks on.
        self.gone: dict[str, Worker] = {}
        for name in settings.workers:
            self.add(name, WorkerState.ACTIVE)
        self.table = SlotTable(self.workers.values())
        self.mixed = False

    def add(self, name: str, state: WorkerState) -> Worker:
        """Add a worker; whoever calls this projects the table anew."""
        settings = self.settings
        worker = Worker(
            name,
            next(self._worker_ids),
            settings.leases_per_worker,
            bytes_max=settings.lease_bytes_per_worker,
            individually=settings.individually,
            state=state,
        )
        self.workers[worker.id] = worker
        self.places += [worker.row, worker.later]
        return worker

    def drop(self, worker: Worker) -> None:
        """Forget a worker that is gone and at which nothing waits."""
        del self.workers[worker.id]
        self.places.remove(worker.row)
        self.places.remove(worker.later)
        self.gone[worker.name] = worker

    def owner(self, record: Record) -> Worker:
        """Return the worker that owns the record's slot now (keyless: the least loaded one)."""
        key = self.keys.key(record)
        if key is None:
            able = [worker for worker in self.workers.values() if worker.present]
            return min(able, key=Worker.load)
        return self.workers[self.table.owners[self.keys.slot(key)]]

    def row_of(self, record: Record) -> Row:
        """Return where the record has to wait: with its owner, or for its slot to drain."""
        key = self.keys.key(record)
        draining = self.draining.row
        if key is not None and self.table.rows[self.keys.slot(key)] is draining.routed:
            return draining
        return self.owner(record).row

    def rows(self) -> Iterator[Row]:
        """Yield every row."""
        yield from (worker.row for worker in self.workers.values())
        yield self.draining.row

    def grant(self, grants: Iterable[Grant]) -> None:
        """Let records wait that hold their lanes' leases, before whatever does not."""
        for grant in grants:
            self.row_of(grant[1]).granted.append(grant)

    def ready(self, lanes: Iterable[ClosedLane]) -> None:
        """Let the heads of closed lanes run again, at whoever may have them."""
        for closed in lanes:
            if closed.head is not None:
                self.row_of(closed.head).ready(closed)

    def open_slots(self, slots: Iterable[int]) -> None:
        """Open slots for their owners; what has waited for them goes before all that these have."""
        opened = set(slots)
        self.table.open(opened, self.workers)
        records, granted, retries = self.draining.take(opened.__contains__)
        self.put_back(records)
        self.grant(granted)
        self.ready(retries)

    def put_back(self, records: Iterable[Record]) -> None:
        """Put records, in order, before everything that waits at their owners.

        Whatever comes back comes this way: leases that were not started, what waited in a lane that
        opens, what was granted a lease, the backlog of a worker that has gone. It is older than all
        that its owner has and younger than what came back before; without a key there is no order.
        """
        self.mixed = True
        keyless: list[Record] = []
        for record in records:
            if self.keys.key(record) is None:
                keyless.append(record)
            else:
                self.row_of(record).front.append(record)
        self.keyless.extend(keyless)
