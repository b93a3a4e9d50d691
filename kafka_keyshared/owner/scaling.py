"""Scaling: an order that brings a subscription to other workers while it runs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from kafka_keyshared.core import events as ev
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.owner.loop import Loop
from kafka_keyshared.owner.orders import OrderRefusedError, named


def bring_to(
    subscription: str, names: Sequence[str]
) -> Callable[[Loop], Generator[None, None, tuple[str, ...]]]:
    """Return what brings a subscription to exactly these workers, and waits until that is over.

    The table changes at once. It is over when the last record has ended that ran in a slot that has
    moved, or at a worker that leaves; its answer are the names of the workers then.
    """

    def work(loop: Loop) -> Generator[None, None, tuple[str, ...]]:
        sub = named(loop.core.subscriptions, subscription)
        try:
            loop.tell(ev.Resize(subscription, names))
        except ConfigError as error:
            raise OrderRefusedError(str(error)) from error
        while sub.changing or sub.draining.count:
            yield
        return tuple(worker.name for worker in sub.workers.values())

    return work
