"""The pool of an app, by its option ``workers``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.config import Options
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.pools.actor import Mail
from kafka_keyshared.pools.mailbox import Mailbox
from kafka_keyshared.pools.port import Pool
from kafka_keyshared.pools.pull import PullPool
from kafka_keyshared.pools.tasks import TaskPool
from kafka_keyshared.pools.worker_cells import WorkerSpec


def own_pool(
    options: Options,
    specs: list[WorkerSpec],
    mailbox: Mailbox[Mail],
    clock: Clock,
    threads: Callable[..., Pool],
) -> Pool:
    """Return the pool that calls a handler: threads, or coroutines."""
    if options.coroutines is None:
        return threads(specs, mailbox, clock)
    return TaskPool(specs, mailbox, clock, limit=options.coroutines)


def pull_pool(
    options: Options, subscription: str, clock: Clock, serdes: tuple[Any, Any]
) -> PullPool | None:
    """Return the pool of members that ask for records; None where a handler is called."""
    if options.pool not in ("pull", "split"):
        return None
    if any(serdes):
        raise ConfigError(
            f"workers={options.workers!r}: members decode for themselves; leave out "
            "key_deserializer and value_deserializer"
        )
    ascending = options.pool == "split"
    return PullPool(Mailbox(), clock, subscription=subscription, ascending=ascending)


def specs_of(
    subscription: SubscriptionSettings,
    handler: object,
    make: Callable[[], Made],
    dead_letter_on: tuple[type[BaseException], ...],
) -> list[WorkerSpec]:
    """Return how each worker of a subscription is made."""
    one_thread = inspect.isclass(handler)
    return [
        WorkerSpec(subscription.name, index, name, make, dead_letter_on, one_thread=one_thread)
        for index, name in enumerate(subscription.workers)
    ]
