"""The pool for the option ``workers``, and the coroutine limit order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.config import Options
from kafka_keyshared.config.worker_options import PROCESS
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.batches.pool import BatchPool
from kafka_keyshared.executors.command_interpreter import Mail
from kafka_keyshared.executors.coroutines.asyncio_batch_worker import CallWorker
from kafka_keyshared.executors.coroutines.asyncio_pool import MakeWorker, TaskPool
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.coroutines.event_loop import Host
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.failure import ErrorRules
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.executors.port import Pool
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.runtime.command_queue import OrderRefusedError, named
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.scaling import Ordered


def own_pool(
    options: Options,
    specs: list[WorkerSpec],
    mailbox: Mailbox[Mail],
    clock: Clock,
    threads: Callable[..., Pool],
    *,
    host: Host | None = None,
    batches: BatchRule | None = None,
) -> Pool:
    """Return the pool that calls a handler: threads, processes, or coroutines.

    Coroutines run on the ``host``'s event loop, or on their own without one. With ``batches`` the
    handler takes several records at a time.
    """
    if options.coroutines is not None:
        make: MakeWorker = TaskWorker if batches is None else partial(CallWorker, batches)
        return TaskPool(specs, mailbox, clock, limit=options.coroutines, host=host, make=make)
    if batches is not None:
        return BatchPool(specs, mailbox, clock, batches)
    if options.pool == PROCESS:
        from kafka_keyshared.executors.processes.pool import ProcessPool  # most apps do not use it

        return ProcessPool(specs, mailbox, clock)
    return threads(specs, mailbox, clock)


def pull_pool(
    options: Options, subscription: str, clock: Clock, serdes: tuple[Any, Any]
) -> PullPool | None:
    """Return the pool of pull members; None where a handler is called."""
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
    rules: ErrorRules,
) -> list[WorkerSpec]:
    """Return how each worker of a subscription is made."""
    one_thread = inspect.isclass(handler)
    return [
        WorkerSpec(subscription.name, index, name, make, rules, one_thread=one_thread)
        for index, name in enumerate(subscription.workers)
    ]


def limit_to(coroutines: int, subscription: str) -> Ordered[tuple[str, ...]]:
    """Return an order that limits running coroutines; it answers with the workers' names.

    A limit above the number of leases of a worker is refused.
    """

    def work(loop: Loop) -> Generator[None, None, tuple[str, ...]]:
        yield from ()
        sub = named(loop.core.subscriptions, subscription)
        if coroutines > (most := sub.settings.prefetch_records):
            raise OrderRefusedError(
                f"a worker holds {most} records at most; make the app with "
                f"prefetch_records={2 * coroutines}"
            )
        if isinstance(loop.pool, TaskPool):
            loop.pool.resize(coroutines)
        return tuple(worker.name for worker in sub.workers.values())

    return work
