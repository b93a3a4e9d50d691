"""Draining: the slot table changes, and no slot is ever leased to two workers.

Whatever changes the table (a worker that joins or leaves, a range that is assigned) does it by
:func:`change`, and there is one rule, that of PIP-379:

- a slot that has moved, and of which its old owner has leases, *drains*: each of these leases
  counts, and until the last of them has ended nothing of the slot is leased;
- every other slot that has moved is open at its new owner at once;
- leases that have not started come back, so that where this is possible at any moment (threads) a
  slot waits for what runs, and for nothing else.

What is counted are leases, by the worker that has them, anew each time the table changes. So nobody
has to remember a change: a slot that comes back to its old owner does not drain any more, and one
that moves on while it drains goes to whoever is its owner in the end. Workers and slices go by
their numbers, which are used once; a name may come back.

Beyond PIP-379, order holds through failures: what waits for its next attempt, or behind one that
does, waits in its closed lane, and goes before whatever has waited here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from kafka_keyshared.core import hand_over, returns
from kafka_keyshared.core.commands import Command
from kafka_keyshared.core.events import Recalled
from kafka_keyshared.core.lanes import ClosedLane
from kafka_keyshared.core.one_lease import Grant
from kafka_keyshared.core.routing.filters import Filters
from kafka_keyshared.core.routing.port import Routing
from kafka_keyshared.core.routing.slots import Slots
from kafka_keyshared.core.rows import Row
from kafka_keyshared.core.slices import Leased, Progress
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.model import Record

FEW = 4_000
"""More slots than this are written anew with all others when the table changes."""


def change(
    sub: Subscription, routing: Routing | None = None, filters: Filters | None = None
) -> list[Command]:
    """Bring the slot table to the workers that are there, and to what is given of the others.

    Return the commands that take back what has moved and has not started. Whoever leaves is asked
    for all that it has by whoever sends it away.
    """
    sub.mixed = True
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
        hand_over.note_moved(sub, sub.hand_overs, moves, shut, drained)
        handed = sub.hand_overs.slots()
        sub.table.close(handed, sub.draining.row.routed)
    _place(sub, *sub.draining.take(lambda slot: not (slot in shut or slot in handed)))
    for row in (*(worker.row for worker in sub.workers.values()), *sub.unowned.rows):
        _hand_over(sub, row)
    sub.look_ahead.grown += sum(map(len, sub.unowned.rows))
    return returns.recall(sub, workers, lambda leased, at: at in moved.get(leased.slice.id, ()))


def _closed(sub: Subscription) -> Slots | None:
    """Return the slots that are closed just now; None where there are so many that it takes long.

    Those are the slots that drain, have drained and are about to be opened, or wait for state.
    """
    draining = sub.draining
    if draining.count + len(draining.cleared) > FEW:
        return None
    handed = () if sub.hand_overs is None else sub.hand_overs.slots().runs
    drained = Slots.single(chain(draining.draining(), draining.cleared))
    return Slots(chain(drained.runs, handed))


def _moved_leases(sub: Subscription, moved: dict[int, set[int]]) -> Iterator[int]:
    """Yield the slot of each lease that its slot waits for; note all that have moved."""
    owners = sub.table.owners
    for leased, index, slot in slots_of(sub, ((leased, None) for leased in sub.leases())):
        if owners[slot] != leased.slice.worker:
            moved.setdefault(leased.slice.id, set()).add(index)
            if sub.waits_for(slot, leased.slice.worker):
                yield slot


def slots_of(
    sub: Subscription, leases: Iterable[tuple[Leased, Iterable[int] | None]]
) -> Iterator[tuple[Leased, int, int]]:
    """Yield with its slot each of these leases that has one; all of a slice for None.

    Whatever a handler has made of its record, and not those that are known to have ended.
    """
    key_of, slot_of = sub.keys.key, sub.keys.slot
    seen: list[Leased] = []
    for leased, indices in leases:
        seen.append(leased)
        for index in leased.indices() if indices is None else indices:
            if index not in leased.let_go and (key := key_of(leased.slice.came[index])) is not None:
                yield leased, index, slot_of(key)
    for leased in seen:
        leased.slice.came.forget_where()


def _hand_over(sub: Subscription, row: Row) -> None:
    """Move what waits at a worker, in slots that are not its own any more, to where it has to wait.

    It is younger than what its slots still have at the worker, and comes back later: so it stays
    behind the place where that is put.
    """
    moves = [sub.row_of(record) is not row for record in row.merge().records]
    moved = row.backlog.pick(moves) if any(moves) else []
    granted, row.granted = row.granted, []
    _place(sub, moved, granted, row.take_ready(len(row.retries)))


def _place(
    sub: Subscription,
    records: Iterable[Record],
    granted: Iterable[Grant],
    retries: Iterable[ClosedLane],
) -> None:
    """Let this wait where it has to by the table of now, behind what waits there."""
    by_row: dict[int, tuple[Row, list[Record]]] = {}
    for record in records:
        row = sub.row_of(record)
        by_row.setdefault(id(row), (row, []))[1].append(record)
    for row, those in by_row.values():
        row.backlog.extend(those)
    sub.grant(granted)
    sub.ready(retries)


# --- leases that end ---


Ended: TypeAlias = list[tuple[Leased, Iterable[int] | None]]
"""Slices, and which of their leases have ended: None for all."""


def is_waited_for(sub: Subscription, leased: Leased) -> bool:
    """Say whether a slot may wait for a lease of this slice.

    What was leased by the table of now is where it belongs, so nobody asks that for each record.
    """
    return sub.draining.count > 0 and leased.table != sub.table.version


def ended(sub: Subscription, those: Ended) -> None:
    """Note that leases have ended, or come back, that slots may have waited for."""
    draining = sub.draining
    for leased, _, slot in slots_of(sub, those):
        if sub.waits_for(slot, leased.slice.worker) and draining.one_less(slot):
            if sub.hand_overs is not None:
                sub.hand_overs.wait(leased.slice.worker, [(slot, slot + 1)])
            elif draining.blocks(slot):
                draining.cleared.add(slot)
            else:  # nobody is to be woken for it
                sub.table.open([slot], sub.workers)


def given_back(sub: Subscription, worker: Worker, event: Recalled) -> None:
    """Note that leases have come back which had not started."""
    ended(
        sub,
        [
            (leased, unstarted)
            for id_, unstarted in event.slices
            if (leased := worker.slices.get(id_)) is not None and is_waited_for(sub, leased)
        ],
    )


def looked_at(sub: Subscription, progress: Progress) -> None:
    """Let go of records that have ended in slices that have not, so that no slot waits for another.

    Every failure among what progress calls ended has to be known already, as at a commit.
    """
    for leased in sub.leases() if sub.draining.count else ():
        if is_waited_for(sub, leased):
            let_go(sub, leased, progress)


def let_go(sub: Subscription, leased: Leased, progress: Progress) -> None:
    """Note which records of a slice have ended, as :func:`looked_at` does of all."""
    over = leased.let_go.union(leased.indices()).difference(leased.outstanding(progress))
    if is_waited_for(sub, leased):
        ended(sub, [(leased, over - leased.let_go)])
    leased.let_go = over


def listing(sub: Subscription) -> dict[int, list[tuple[int, int, int]]]:
    """Return what drains at each worker, by its id: slot, leases that it waits for, what waits.

    Worked out when it is asked for: nothing of it is kept.
    """
    if not sub.draining.count:
        return {}
    pending: dict[int, Counter[int]] = {}
    for leased, _, slot in slots_of(sub, ((leased, None) for leased in sub.leases())):
        if sub.waits_for(slot, leased.slice.worker):
            pending.setdefault(leased.slice.worker, Counter())[slot] += 1
    blocked = sub.draining.blocked()
    return {
        id_: [(slot, count, blocked[slot]) for slot, count in sorted(counts.items())]
        for id_, counts in pending.items()
    }


def open_cleared(sub: Subscription, now: float) -> None:
    """Open the slots that have drained, with what waits for them before all that has come since.

    At once, or all together at the next tick of the unblocking interval.
    """
    draining, interval = sub.draining, sub.settings.unblocking_interval
    if interval:
        if draining.due is None:
            draining.due = now + interval
        if now < draining.due:
            return
    cleared, draining.cleared, draining.due = draining.cleared, set(), None
    sub.open_slots(cleared)
