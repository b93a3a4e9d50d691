"""Slot-table changes that never lease a slot to two workers.

Every change of the table (a worker joins or leaves, a range is assigned) goes through
:func:`change`. There is one rule, that of PIP-379:

- A moved slot of which its old owner has leases *drains*. Nothing of the slot is leased until the
  last of these leases has ended.
- Every other moved slot is open at its new owner at once.
- Unstarted leases come back. Where this is possible at any moment (threads), a slot waits only for
  running records.

Leases are counted by the worker that has them, anew each time the table changes. So no change has
to be remembered. A slot that comes back to its old owner does not drain any more. One that moves on
while it drains goes to its final owner. Workers and slices are identified by their numbers, which
are used once; a name may come back.

Beyond PIP-379, order holds through failures. Records that wait for a retry, or behind one, wait in
their closed lane. They go before all records that have waited here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.events import Recalled
from kafka_keyshared.core.contract.slices import Progress, SliceState
from kafka_keyshared.core.lanes.closed import ClosedLane
from kafka_keyshared.core.lanes.single_inflight import Grant
from kafka_keyshared.core.leasing import recall
from kafka_keyshared.core.routing.filters import Filters
from kafka_keyshared.core.routing.port import Routing
from kafka_keyshared.core.routing.slots import Slots
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import state_transfer
from kafka_keyshared.core.workers.run_queue import RunQueue
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.model import Record

FEW = 4_000
"""If more slots than this are closed, a change of the table writes all slots anew."""


def change(
    sub: Subscription, routing: Routing | None = None, filters: Filters | None = None
) -> list[Command]:
    """Update the slot table to the present workers; return recalls of moved leases.

    ``routing`` and ``filters`` replace the current ones, if given. The caller that removes a worker
    recalls all its leases.
    """
    sub.routing.mixed = True
    for worker in sub.workers.values():
        if not worker.later.empty():
            worker.end_later()
    workers = [worker for worker in sub.workers.values() if worker.present]
    if sub.shared is not None:
        sub.table.project(workers, routing)
        return []
    closed = _closed(sub)
    if filters is not None and sub.table.filtered is None:
        sub.begin_to_filter(filters)
    moves = sub.table.project(workers, routing, filters, closed=closed)
    if filters is not None:
        sub.draining.ask_slots_again()
    moved: dict[int, set[int]] = {}
    drained = set(sub.draining.draining())
    shut = sub.draining.count_anew(_moved_leases(sub, moved))
    sub.table.close(shut, sub.draining.row.routed)
    handed = Slots()
    if sub.hand_overs is not None:
        state_transfer.note_moved(sub, sub.hand_overs, moves, shut, drained)
        handed = sub.hand_overs.slots()
        sub.table.close(handed, sub.draining.row.routed)
    _place(sub, *sub.draining.take(lambda slot: not (slot in shut or slot in handed)))
    for row in (*(worker.row for worker in sub.workers.values()), *sub.unowned.rows):
        _hand_over(sub, row)
    sub.look_ahead.grown += sum(map(len, sub.unowned.rows))
    return recall.recall(sub, workers, lambda leased, at: at in moved.get(leased.slice.id, ()))


def _closed(sub: Subscription) -> Slots | None:
    """Return the slots that are closed now; None where there are too many to list quickly.

    These slots drain, have drained and are about to be opened, or wait for state.
    """
    draining = sub.draining
    if draining.count + len(draining.cleared) > FEW:
        return None
    handed = () if sub.hand_overs is None else sub.hand_overs.slots().runs
    drained = Slots.single(chain(draining.draining(), draining.cleared))
    return Slots(chain(drained.runs, handed))


def _moved_leases(sub: Subscription, moved: dict[int, set[int]]) -> Iterator[int]:
    """Yield the slot of each lease that its slot waits for; note all moved leases."""
    owners = sub.table.owners
    for leased, index, slot in slots_of(sub, ((leased, None) for leased in sub.unsettled.leases())):
        if owners[slot] != leased.slice.worker:
            moved.setdefault(leased.slice.id, set()).add(index)
            if sub.routing.waits_for(slot, leased.slice.worker):
                yield slot


def slots_of(
    sub: Subscription, leases: Iterable[tuple[SliceState, Iterable[int] | None]]
) -> Iterator[tuple[SliceState, int, int]]:
    """Yield each of these leases that has a slot, with that slot; None means a whole slice.

    A handler's changes to its record do not matter. Leases that are known to have ended are left
    out.
    """
    key_of, slot_of = sub.keys.key, sub.keys.slot
    seen: list[SliceState] = []
    for leased, indices in leases:
        seen.append(leased)
        for index in leased.indices() if indices is None else indices:
            if index not in leased.let_go and (key := key_of(leased.slice.came[index])) is not None:
                yield leased, index, slot_of(key)
    for leased in seen:
        leased.slice.came.forget_where()


def _hand_over(sub: Subscription, row: RunQueue) -> None:
    """Move records that wait at a worker, in slots no longer its own, to where they must wait.

    They are younger than the leases that their slots still have at the worker. Those leases come
    back later and are put before them.
    """
    moves = [sub.routing.row_of(record) is not row for record in row.merge().records]
    moved = row.backlog.pick(moves) if any(moves) else []
    granted, row.granted = row.granted, []
    _place(sub, moved, granted, row.take_ready(len(row.retries)))


def _place(
    sub: Subscription,
    records: Iterable[Record],
    granted: Iterable[Grant],
    retries: Iterable[ClosedLane],
) -> None:
    """Put these where the current table makes them wait, behind the records there."""
    by_row: dict[int, tuple[RunQueue, list[Record]]] = {}
    for record in records:
        row = sub.routing.row_of(record)
        by_row.setdefault(id(row), (row, []))[1].append(record)
    for row, those in by_row.values():
        row.backlog.extend(those)
    sub.routing.grant(granted)
    sub.routing.ready(retries)


# --- leases that end ---


Ended: TypeAlias = list[tuple[SliceState, Iterable[int] | None]]
"""Slices, and which of their leases have ended; None for all."""


def is_waited_for(sub: Subscription, leased: SliceState) -> bool:
    """Return whether a slot may wait for a lease of this slice.

    Leases made by the current table are where they belong, so their records need no check.
    """
    return sub.draining.count > 0 and leased.table != sub.table.version


def ended(sub: Subscription, those: Ended) -> None:
    """Note the leases that have ended or come back, and that slots may have waited for."""
    draining = sub.draining
    for leased, _, slot in slots_of(sub, those):
        if sub.routing.waits_for(slot, leased.slice.worker) and draining.one_less(slot):
            if sub.hand_overs is not None:
                sub.hand_overs.wait(leased.slice.worker, [(slot, slot + 1)])
            elif draining.blocks(slot):
                draining.cleared.add(slot)
            else:  # no record waits for it
                sub.table.open([slot], sub.workers)


def given_back(sub: Subscription, worker: Worker, event: Recalled) -> None:
    """Note that unstarted leases have come back."""
    ended(
        sub,
        [
            (leased, unstarted)
            for id_, unstarted in event.slices
            if (leased := worker.slices.get(id_)) is not None and is_waited_for(sub, leased)
        ],
    )


def looked_at(sub: Subscription, progress: Progress) -> None:
    """Let go of ended records in unfinished slices, so that no slot waits for other records.

    Every failure among the records that progress calls ended must be known already, as at a commit.
    """
    for leased in sub.unsettled.leases() if sub.draining.count else ():
        if is_waited_for(sub, leased):
            let_go(sub, leased, progress)


def let_go(sub: Subscription, leased: SliceState, progress: Progress) -> None:
    """Note which records of a slice have ended, as :func:`looked_at` does for all slices."""
    over = leased.let_go.union(leased.indices()).difference(leased.outstanding(progress))
    if is_waited_for(sub, leased):
        ended(sub, [(leased, over - leased.let_go)])
    leased.let_go = over


def listing(sub: Subscription) -> dict[int, list[tuple[int, int, int]]]:
    """Return the draining slots by worker id, as (slot, pending leases, waiting records).

    It is computed on request; nothing of it is kept.
    """
    if not sub.draining.count:
        return {}
    pending: dict[int, Counter[int]] = {}
    for leased, _, slot in slots_of(sub, ((leased, None) for leased in sub.unsettled.leases())):
        if sub.routing.waits_for(slot, leased.slice.worker):
            pending.setdefault(leased.slice.worker, Counter())[slot] += 1
    blocked = sub.draining.blocked()
    return {
        id_: [(slot, count, blocked[slot]) for slot, count in sorted(counts.items())]
        for id_, counts in pending.items()
    }


def open_cleared(sub: Subscription, now: float) -> None:
    """Open the drained slots, with their waiting records before all records that came since.

    This happens at once, or for all together at the next tick of the unblocking interval.
    """
    draining, interval = sub.draining, sub.settings.unblocking_interval
    if interval:
        if draining.due is None:
            draining.due = now + interval
        if now < draining.due:
            return
    cleared, draining.cleared, draining.due = draining.cleared, set(), None
    sub.routing.open_slots(cleared)
