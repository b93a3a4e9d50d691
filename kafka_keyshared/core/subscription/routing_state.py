"""Owners of records, and the places where records wait for a lease.

Records that come back and records that run again are placed by this module. No other module of the
core reads the slot table for that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from kafka_keyshared.core.lanes.closed import ClosedLane
from kafka_keyshared.core.lanes.single_inflight import Grant
from kafka_keyshared.core.records.backlog import Backlog, WaitingPlace
from kafka_keyshared.core.routing.filters import (
    FilteredSlots,
    Filters,
    check_filters,
    check_unmatched,
    filters_of,
)
from kafka_keyshared.core.routing.port import Unowned
from kafka_keyshared.core.routing.slots import Slots
from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.core.subscription.drain_counters import DrainingSlots
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, refuse_filters
from kafka_keyshared.core.subscription.state_transfers import HandOvers
from kafka_keyshared.core.subscription.unmatched import UnownedRows
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.core.workers.shards import SharedRow
from kafka_keyshared.core.workers.worker import Worker, WorkerState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record


class SlotOwnership:
    """The workers of a subscription, their slots, and the records that wait for them.

    If ``has_gaps`` is false, every slot has a worker, and no ownership check is made. ``places``
    are all places that can hold a record that is not leased. ``mixed`` says that a backlog may have
    older records behind newer ones.
    """

    def __init__(self, settings: SubscriptionSettings) -> None:
        settings.check()
        self.settings = settings
        self.name = settings.name
        self.keys = settings.keys()
        self.places: list[WaitingPlace] = []
        self.keyless = Backlog()
        self.hand_overs = HandOvers() if settings.hands_over else None
        self._worker_ids = itertools.count()
        self.workers: dict[int, Worker] = {}
        # Workers that join or leave.
        self.changing: list[Worker] = []
        # The last worker of each name that is gone, for the status.
        self.gone: dict[str, Worker] = {}
        self.shared = None
        if settings.shares:
            self.shared = SharedRow(self.keys.key, self.keys.slot, settings.shard_count)
            self.places.append(self.shared)
        for name in settings.workers:
            self.add(name, WorkerState.ACTIVE)
        self.unowned = UnownedRows(settings.routing.on_unmatched)
        self.table = self._table()
        self.draining = DrainingSlots(self.keys, wide=self.table.filtered is not None)
        self.has_gaps = self.table.routing.has_gaps or self.table.filtered is not None
        self.places += self.unowned.rows
        self.mixed = False

    def _table(self) -> SlotTable:
        chosen, names = self.settings.routing, self.settings.workers
        filters, filtered = chosen.declared(names), None
        if filters is not None:
            filtered = FilteredSlots(self.keys.slot, filters)
            self.keys.slot = filtered
        unowned = {**self.unowned.takers(), Unowned.ANYBODY: self.keyless.records}
        shared = None if self.shared is None else self.shared.by_slot
        return SlotTable(self.workers.values(), chosen.of(names), unowned, filtered, shared)

    # --- workers ---

    def add(self, name: str, state: WorkerState) -> Worker:
        """Add a worker; the caller projects the table again."""
        settings = self.settings
        worker = Worker(
            name,
            next(self._worker_ids),
            settings.prefetch_records,
            bytes_max=settings.prefetch_bytes,
            individually=settings.individually,
            slice_records=settings.slice_records,
            state=state,
            row=self.shared,
        )
        self.workers[worker.id] = worker
        self.places += [worker.later] if worker.shares else [worker.row, worker.later]
        if self.shared is not None:
            self.shared.is_for(len(self.workers))
        return worker

    def drop(self, worker: Worker) -> None:
        """Forget a worker that is gone and at which no record waits."""
        del self.workers[worker.id]
        if self.shared is not None:
            self.shared.is_for(len(self.workers))
        if not worker.shares:
            self.places.remove(worker.row)
        self.places.remove(worker.later)
        self.gone[worker.name] = worker

    def declared_with(
        self, names: Iterable[str], filters: Sequence[str | bytes] | None = None
    ) -> Filters | None:
        """Return the filters of all workers with these workers present, None if nothing changes.

        ``filters`` are those of these workers, None if they have declared theirs. Raises
        :class:`ConfigError` if the workers cannot have them.
        """
        filtered = self.table.filtered
        if filtered is None:
            return self._first_declared(names, filters or ())
        found = filtered.filters
        for name in names:
            if filters is not None or name not in found.workers:
                found = found.with_worker(name, filters or ())
        if found == filtered.filters:
            return None
        check_unmatched(self.table.routing, found, self.settings.routing.on_unmatched)
        return found

    def _first_declared(
        self, names: Iterable[str], filters: Sequence[str | bytes]
    ) -> Filters | None:
        """Return the first filters of a subscription: workers present so far take every key."""
        if self.shared is not None and filters:
            raise ConfigError(
                f"subscription {self.settings.name!r}: its workers share all keys, so none of them "
                "can take some keys only; declare filters in its routing, from the start"
            )
        there = [worker.name for worker in self.workers.values() if worker.present]
        found = filters_of(dict.fromkeys(there, ()) | dict.fromkeys(names, filters))
        if found is not None:
            routing = self.table.routing
            refuse_filters(self.settings)
            if not routing.takes_filters:
                check_filters(routing, found)
            check_unmatched(routing, found, self.settings.routing.on_unmatched)
        return found

    def begin_to_filter(self, filters: Filters) -> None:
        """Distinguish keys of one slot from now on; the caller projects the table again.

        No other component needs a notice. Counts by slot are made again when the table changes, and
        the slot of each key is computed again then.
        """
        self.keys.slot = self.table.filtered = FilteredSlots(self.keys.slot, filters)
        self.draining.widen()
        self.has_gaps = True

    # --- owner of a record ---

    def owner(self, record: Record) -> Worker | Unowned:
        """Return the worker that owns the record's slot now, or why there is none.

        For a record without a key it is the least loaded worker that takes such records.
        """
        key = self.keys.key(record)
        if key is None:
            able = [worker for worker in self.workers.values() if self.takes_keyless(worker)]
            if not able:
                return self._keyless_are()
            return min(able, key=Worker.load)
        owner = self.table.owners[self.keys.slot(key)]
        return self.workers[owner] if owner >= 0 else Unowned(owner)

    def owner_name(self, slot: int) -> str | None:
        """Return the name of the worker that owns the slot now, None if there is none."""
        owner = self.table.owners[slot]
        return self.workers[owner].name if owner >= 0 else None

    def waits_for(self, slot: int, worker: int) -> bool:
        """Return whether the slot waits for the leases that this worker has of it.

        A slot without a worker waits for no leases, because no other worker leases its records. It
        does wait if the state of its keys follows these leases.
        """
        if self.shared is not None:
            return False  # a leased shard moves to another worker only after its leases have ended
        owner = self.table.owners[slot]
        return owner != worker and (owner >= 0 or self.hand_overs is not None)

    def takes_keyless(self, worker: Worker) -> bool:
        """Return whether a worker is present and takes keyless records; filters exclude them.

        A joining worker takes them only if no other present worker does. It waits for the earlier
        keyless records, too.
        """
        if not self._wants_keyless(worker):
            return False
        return not worker.joined_at or not any(
            self._wants_keyless(other) and not other.joined_at for other in self.workers.values()
        )

    def _wants_keyless(self, worker: Worker) -> bool:
        filtered = self.table.filtered
        return worker.present and (filtered is None or worker.name in filtered.filters.catch_alls)

    def _keyless_are(self) -> Unowned:
        """Return why keyless records have no worker while none takes them."""
        filtered = self.table.filtered
        unassigned = filtered is not None and not filtered.filters.catch_alls
        return Unowned.UNASSIGNED if unassigned else Unowned.AWAY

    def alone(self) -> list[Record]:
        """Return the list that takes keyless records as they come."""
        if any(map(self.takes_keyless, self.workers.values())):
            return self.keyless.records
        return self.unowned.row_of(self._keyless_are()).routed

    # --- waiting places ---

    def row_of(self, record: Record) -> RunQueue:
        """Return the row of the record: its owner's, an unowned one, or that of draining slots."""
        if self.shared is not None:
            return self.shared
        key, draining = self.keys.key(record), self.draining.row
        if key is not None and self.table.rows[self.keys.slot(key)] is draining.routed:
            return draining
        owner = self.owner(record)
        return self.unowned.row_of(owner) if isinstance(owner, Unowned) else owner.row

    def rows(self) -> Iterator[RunQueue]:
        """Yield every row."""
        yield from self.own_rows()
        yield self.draining.row
        yield from self.unowned.rows

    def own_rows(self) -> Iterator[RunQueue]:
        """Yield the rows that workers are leased from."""
        if self.shared is not None:
            yield self.shared
        else:
            yield from (worker.row for worker in self.workers.values())

    def grant(self, grants: Iterable[Grant]) -> None:
        """Queue records that hold their lanes' leases before all records that do not."""
        for grant in grants:
            self.row_of(grant[1]).granted.append(grant)

    def ready(self, lanes: Iterable[ClosedLane]) -> None:
        """Let the heads of closed lanes run again, at their current owners."""
        for closed in lanes:
            if closed.head is not None:
                self.row_of(closed.head).ready(closed)

    def withdraw(self, closed: ClosedLane) -> None:
        """Take the head of a closed lane out of the row in which it waits to run again, if any."""
        for row in self.rows():
            row.withdraw(closed)

    def open_slots(self, slots: AbstractSet[int] | Slots) -> None:
        """Open slots for their owners; the records that waited go before all that the owners have.

        They go behind records that come back from now on, even within the same event. A lane that
        opens because its worker goes has older records of these slots.
        """
        if not slots:
            return
        self.table.open(slots, self.workers)
        records, granted, retries = self.draining.take(slots.__contains__)
        self.put_back(records)
        for row in (*(worker.row for worker in self.workers.values()), *self.unowned.rows):
            row.merge()
        self.grant(granted)
        self.ready(retries)

    def put_back(self, records: Iterable[Record]) -> None:
        """Put records, in order, before all records that wait at their owners.

        All records that come back take this path: unstarted leases, records of an opening lane,
        records granted a lease, and backlogs of workers that are gone. They are older than all
        waiting records of their owner and younger than records that came back before. Keyless
        records have no order.
        """
        self.mixed = True
        keyless: list[Record] = []
        for record in records:
            if self.keys.key(record) is None and not (
                self.has_gaps and isinstance(self.owner(record), Unowned)
            ):
                keyless.append(record)
            else:
                self.row_of(record).front.append(record)
        self.keyless.extend(keyless)
