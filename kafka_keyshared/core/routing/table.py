"""The slot table: the row that each slot goes to now.

The routing defines the owner of each slot. It is projected to the table when workers join and
leave. Routing a record reads only the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, compress, repeat
from operator import is_
from typing import TypeAlias, TypeVar

from kafka_keyshared.core.routing.filters import FilteredSlots, Filters, check_filters
from kafka_keyshared.core.routing.port import Routing, Unowned
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.routing.slots import Arcs, Move, Run, Slots, moved
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.hashing import SLOTS
from kafka_keyshared.model import Record

_Entry = TypeVar("_Entry")

Owners: TypeAlias = list[int] | dict[int, int]
"""By slot the id of the worker that owns it, or an :class:`.Unowned`."""

Rows: TypeAlias = list[list[Record]] | dict[int, list[Record]]
"""By slot the list that takes its records."""


class SlotTable:
    """The owner's worker id and the row of records for each slot.

    ``rows`` has the lists of records themselves, so routing a record is one append. ``version``
    changes with every projection. ``routing`` is the ring of the workers unless another is given.
    ``unowned`` has the lists for the records of slots without a worker; ``owners`` has the
    :class:`.Unowned` there. ``arcs`` has the same owners as ``owners``, as arcs of the routing.

    If workers filter, ``filtered`` computes the slots, which are wide ones. An entry is computed
    when it is first read.
    """

    def __init__(
        self,
        workers: Iterable[Worker],
        routing: Routing | None = None,
        unowned: Mapping[Unowned, list[Record]] | None = None,
        filtered: FilteredSlots | None = None,
        shared: list[list[Record]] | None = None,
    ) -> None:
        able = [*workers]
        self.routing = routing or VnodeRing([worker.name for worker in able], ROUTING_VNODES)
        self.owners: Owners = []
        self.rows: Rows = [] if shared is None else shared
        self._shared = shared is not None
        self.arcs: Arcs = ()
        self.shares: dict[int, float] = {}
        self.version = 0
        self.filtered = filtered
        self._unowned = unowned or {}
        self.project(able)

    def project(
        self,
        workers: Iterable[Worker],
        routing: Routing | None = None,
        filters: Filters | None = None,
        *,
        closed: Slots | None = None,
    ) -> Sequence[Move]:
        """Project the routing to the table with these workers; ``routing`` replaces the old one.

        Return the slots that have changed their owner. ``filters`` replace the existing ones.
        ``closed`` are all slots that are closed now; this opens them. If they are given, only these
        and the moved slots are written. Raises :class:`ConfigError` if the workers cannot have this
        routing or these filters. Raises :class:`InvariantError` if a slot has no worker and no list
        takes its records. Then nothing has changed.
        """
        able = {worker.name: worker for worker in workers}
        routing = (routing or self.routing).brought_to([*able])
        by_place = [able[name] for name in routing.workers]
        arcs, takers, owned = self._by_arc(routing, by_place)
        moves = [*moved(self.arcs, arcs)] if self.arcs else []
        if self._shared:
            self.owners = [at for (start, end), at in _every(arcs) for _ in range(start, end)]
        elif self.filtered is not None:
            check_filters(routing, filters or self.filtered.filters)
            if filters is not None:
                self.filtered.declare(filters)
            self.owners, self.rows = _found_later(routing, self.filtered, able, self._unowned)
        else:
            if closed is None or not self.arcs:
                runs = [*_every(arcs)]
            else:
                again = closed.by_owner(arcs)
                runs = [(run, new) for run, _, new in moves]
                runs += [(run, owner) for owner, those in again.items() for run in those]
            self._write(runs, takers)
        self.routing, self.arcs = routing, arcs
        parts = zip(by_place, owned, strict=True)
        self.shares = {worker.id: slots / SLOTS for worker, slots in parts}
        self.version += 1
        return moves

    def _by_arc(
        self, routing: Routing, by_place: Sequence[Worker]
    ) -> tuple[Arcs, Mapping[int, list[Record]], Sequence[int]]:
        """Return the owner of each arc, the row of each owner, the number of slots by place."""
        takers = {worker.id: worker.row.routed for worker in by_place}
        owned = [0] * len(by_place)
        parts = [*routing.arcs()]
        for place, slots in parts:
            if place >= 0:
                owned[place] += slots
        ids = [worker.id for worker in by_place]
        parts = [(ids[place] if place >= 0 else place, slots) for place, slots in parts]
        owners = [owner for owner, _ in parts]
        for owner in dict.fromkeys(owners):
            if owner not in takers:
                takers[owner] = self._row_of(owner, sum(n for _, n in parts[: owners.index(owner)]))
        arcs = [*zip(accumulate(slots for _, slots in parts), owners, strict=True)]
        return arcs, takers, owned

    def _write(self, runs: Iterable[tuple[Run, int]], takers: Mapping[int, list[Record]]) -> None:
        """Overwrite owners and rows of these runs in the existing lists.

        New lists of that size take longer, and so does writing slot by slot.
        """
        owners, rows = self.owners, self.rows
        if not (owners and isinstance(owners, list) and isinstance(rows, list)):
            self.owners, self.rows = owners, rows = [], []
            for (start, end), owner in runs:  # all of them
                owners += [owner] * (end - start)
                rows += [takers[owner]] * (end - start)
        else:
            for (start, end), owner in runs:
                owners[start:end] = [owner] * (end - start)
                rows[start:end] = [takers[owner]] * (end - start)

    def slots_to(self, row: list[Record]) -> set[int]:
        """Return the slots whose records this row takes now."""
        rows = self.rows
        slots, takers = (rows, rows.values()) if isinstance(rows, dict) else (range(SLOTS), rows)
        return set(compress(slots, map(is_, takers, repeat(row))))

    def close(self, slots: Iterable[int] | Slots, row: list[Record]) -> None:
        """Let this row take the records of the slots, until they are opened or projected again."""
        if isinstance(slots, Slots) and isinstance(self.rows, list):
            for start, end in slots.runs:
                self.rows[start:end] = [row] * (end - start)
            return
        rows = self.rows
        for slot in slots:
            rows[slot] = row

    def open(self, slots: Iterable[int] | Slots, workers: Mapping[int, Worker]) -> None:
        """Open the slots: their owners, looked up in ``workers``, take their records again."""
        if isinstance(slots, Slots) and isinstance(self.rows, list):
            for owner, runs in slots.by_owner(self.arcs).items():
                row = self._taker(owner, runs[0][0], workers)
                for start, end in runs:
                    self.rows[start:end] = [row] * (end - start)
            return
        rows, owners = self.rows, self.owners
        known: dict[int, list[Record]] = {}
        for slot in slots:
            owner = owners[slot]
            if owner not in known:
                known[owner] = self._taker(owner, slot, workers)
            rows[slot] = known[owner]

    def _taker(self, owner: int, slot: int, workers: Mapping[int, Worker]) -> list[Record]:
        return workers[owner].row.routed if owner >= 0 else self._row_of(owner, slot)

    def _row_of(self, owner: int, slot: int) -> list[Record]:
        why = Unowned(owner)
        try:
            return self._unowned[why]
        except KeyError:
            raise InvariantError(
                f"slot {slot} is no worker's ({why.name}), and nothing takes its records"
            ) from None


def _every(arcs: Arcs) -> Iterator[tuple[Run, int]]:
    start = 0
    for end, owner in arcs:
        yield (start, end), owner
        start = end


class _Later(dict[int, _Entry]):
    """Entries of wide slots, computed at the first read; as many as have been read."""

    def __init__(self, find: Callable[[int], _Entry]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, wide: int) -> _Entry:
        found = self[wide] = self._find(wide)
        return found


def _found_later(
    routing: Routing,
    filtered: FilteredSlots,
    workers: Mapping[str, Worker],
    unowned: Mapping[Unowned, list[Record]],
) -> tuple[Owners, Rows]:
    def owner(wide: int) -> int:
        found = filtered.owner(wide, routing)
        return found if isinstance(found, Unowned) else workers[found].id

    def row(wide: int) -> list[Record]:
        found = filtered.owner(wide, routing)
        return unowned[found] if isinstance(found, Unowned) else workers[found].row.routed

    return _Later(owner), _Later(row)
