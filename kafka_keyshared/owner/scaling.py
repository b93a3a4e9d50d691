"""Orders by which a running subscription has other workers, or its workers other slots."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.routing.ranges import written
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.owner.loop import Loop
from kafka_keyshared.owner.orders import OrderRefusedError, T, named

Ordered: TypeAlias = Callable[[Loop], Generator[None, None, T]]


def bring_to(subscription: str, names: Sequence[str]) -> Ordered[tuple[str, ...]]:
    """Return what brings a subscription to exactly these workers, and waits until that is over.

    The table changes at once. It is over when the last record has ended that ran in a slot that has
    moved, or at a worker that leaves, and state has moved; its answer are the names of the workers
    then.
    """

    def work(loop: Loop) -> Generator[None, None, tuple[str, ...]]:
        sub = yield from _changed(loop, ev.Resize(subscription, names))
        while sub.changing:
            yield
        return tuple(worker.name for worker in sub.workers.values())

    return work


def assign(order: ev.AssignRange) -> Ordered[dict[str, str]]:
    """Return what assigns a range, and waits until its slots are where they are to be.

    It is over when the last record has ended that ran in a slot that has moved, and state has
    moved; its answer is who has which slots then, as in the settings.
    """

    def work(loop: Loop) -> Generator[None, None, dict[str, str]]:
        sub = yield from _changed(loop, order)
        return written(sub.table.routing)

    return work


def _changed(loop: Loop, event: ev.Resize | ev.AssignRange) -> Generator[None, None, Subscription]:
    """Tell the core, and wait for what moves."""
    sub = named(loop.core.subscriptions, event.subscription)
    try:
        loop.tell(event)
    except ConfigError as error:
        raise OrderRefusedError(str(error)) from error
    while sub.draining.count or (sub.hand_overs is not None and sub.hand_overs.slots()):
        yield
    return sub
