"""Orders that resize a running subscription or move its slots."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.routing.filters import shown
from kafka_keyshared.core.routing.ranges import written
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import slot_draining
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.command_queue import OrderRefusedError, T, named
from kafka_keyshared.runtime.flush import LOOK_EVERY, Runs, running, waits_for
from kafka_keyshared.runtime.loop import Loop

Ordered: TypeAlias = Callable[[Loop], Generator[None, None, T]]

Change: TypeAlias = ev.Resize | ev.AssignRange | ev.SetFilters


class Moving:
    """Records that an ordered move of slots waits for; readable from any thread.

    ``running`` are the records. It is None until the owner has started the order.
    """

    def __init__(self) -> None:
        self.running: tuple[Runs, ...] | None = None

    def __str__(self) -> str:
        if self.running is None:
            return "the owner has not started it: a rebalance is in progress"
        return f"the table has changed, and the rest follows by itself: {waits_for(self.running)}"

    def look(self, loop: Loop, sub: Subscription) -> None:
        """Note running records in moved slots, at leaving workers, or with state to release."""
        progress, owners = loop.pool.progress(), sub.table.owners
        leases = [*sub.unsettled.leases()]
        busy = {id_ for id_, worker in sub.workers.items() if not worker.present}
        if sub.hand_overs is not None:
            busy |= {each.worker for each in sub.hand_overs.out.values()}
        held = {each.slice.id for each in leases if each.slice.worker in busy}
        runs = ((each, each.running(progress)) for each in leases)
        for leased, _, slot in slot_draining.slots_of(sub, runs):
            if owners[slot] != leased.slice.worker:
                held.add(leased.slice.id)
        self.running = tuple(running(loop, held, progress, loop.ports.clock()))


def bring_to(subscription: str, names: Sequence[str], moving: Moving) -> Ordered[tuple[str, ...]]:
    """Return an order that sets exactly these workers and waits until the change is over.

    The slot table changes at once. The change is over when no record runs in a moved slot or at a
    leaving worker, and state has moved. The answer is the names of the workers at that time.
    """

    def work(loop: Loop) -> Generator[None, None, tuple[str, ...]]:
        sub = yield from _changed(loop, ev.Resize(subscription, names), moving)
        return tuple(worker.name for worker in sub.workers.values())

    return work


def assign(order: ev.AssignRange, moving: Moving) -> Ordered[dict[str, str]]:
    """Return an order that assigns a range and waits until its slots have moved.

    It is over when no record runs in a moved slot and state has moved. The answer gives the slots
    of each worker, written as in the settings.
    """

    def work(loop: Loop) -> Generator[None, None, dict[str, str]]:
        sub = yield from _changed(loop, order, moving)
        return written(sub.table.routing)

    return work


def set_filters(order: ev.SetFilters, moving: Moving) -> Ordered[dict[str, tuple[str, ...]]]:
    """Return an order that changes a worker's filters and waits until the keys have moved.

    It ends as :func:`assign` does. The answer gives the filters of each worker as text.
    """

    def work(loop: Loop) -> Generator[None, None, dict[str, tuple[str, ...]]]:
        sub = yield from _changed(loop, order, moving)
        return shown(sub.table.filtered)

    return work


def _changed(loop: Loop, event: Change, moving: Moving) -> Generator[None, None, Subscription]:
    """Pass the event to the core and wait for the moving slots."""
    sub = named(loop.core.subscriptions, event.subscription)
    try:
        loop.tell(event)
    except ConfigError as error:
        raise OrderRefusedError(str(error)) from error
    look_at = loop.ports.clock()
    moves = sub.changing if isinstance(event, ev.Resize) else ()
    while moves or sub.draining.count or (sub.hand_overs and sub.hand_overs.slots()):
        if (now := loop.ports.clock()) >= look_at:
            look_at = now + LOOK_EVERY
            moving.look(loop, sub)
        yield
    return sub
