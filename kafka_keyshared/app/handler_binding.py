"""The handler of an app and the pool that runs it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from kafka_keyshared.app.pools import specs_of
from kafka_keyshared.clock import Clock
from kafka_keyshared.config import Options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.config.worker_options import PROCESS, default_workers
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.batching import (
    BatchRule,
    check_batches,
    note_batched,
    refuse_batched,
)
from kafka_keyshared.executors.handling.call_record import Called
from kafka_keyshared.executors.handling.decoding import Deserializer, Making
from kafka_keyshared.executors.handling.failure import NO_RULES, ErrorRules
from kafka_keyshared.executors.handling.handlers import Made, awaits, hands_over, maker
from kafka_keyshared.executors.handling.outputs import Take
from kafka_keyshared.executors.handling.queue_wait import QueueWaits
from kafka_keyshared.executors.lease import worker_here
from kafka_keyshared.executors.thread_state import WorkerSpec

H = TypeVar("H", bound=Callable[..., Any])


class Handling:
    """Takes the handler of an app. With ``workers_unsaid`` the handler decides the pool."""

    options: Options
    subscription: SubscriptionSettings
    called: Callable[..., Any] | None = None
    workers_unsaid: bool = False
    batches: BatchRule | None = None
    serdes: tuple[Deserializer | None, Deserializer | None] = (None, None)
    rules: ErrorRules = NO_RULES
    conf: dict[str, Any]
    waits: QueueWaits | None = None

    def handler(self, handler: H) -> H:
        """Use this function, or this class with ``handle(record)``, for every record.

        Without ``workers``, a coroutine function runs on an event loop, up to 1,000 records at
        once. Any other handler runs on 16 threads.

        Raises :class:`ConfigError` when it cannot be called with one record. Also raises it for
        ``release`` and ``adopt`` where keys have no worker of their own.
        """
        refuse_batched(handler)
        options, subscription = self.options, self.subscription
        if self.workers_unsaid or self.batches is not None:
            options, subscription = self._suited(handler)
        maker(handler, options.pool)
        over, instances = hands_over(handler), inspect.isclass(handler)
        found = replace(subscription, hands_over=over, instances=instances)
        found.check()
        self.options, self.subscription, self.called = options, found, handler
        self.batches = None
        return handler

    def batch_handler(
        self, *bare: object, size: int = 100, wait: float = 0.0, same_key: bool = False
    ) -> Callable[[H], H]:
        """Use a function, or a class with ``handle(records)``, for several records at a time.

        A worker calls it with up to ``size`` records, or earlier when the first of them has waited
        ``wait`` seconds. With ``same_key`` all records of a call have one key. The handler returns
        None, one verdict for all records, or a list with one verdict each, in order. With
        ``workers="asyncio:N"`` up to N calls of a coroutine function run at once, 16 by default.

        Raises :class:`ConfigError` for a handler that cannot be called so, and for processes and
        members.
        """
        if bare:
            raise ConfigError(
                "batch_handler: call the decorator with its size: @app.batch_handler(size=100)"
            )
        rule = BatchRule(size, wait, same_key)

        def use(handler: H) -> H:
            if any(self.serdes):
                raise ConfigError(
                    "batch_handler: key_deserializer and value_deserializer are for handlers of "
                    "single records; decode in the handler"
                )
            options = self.options
            if self.workers_unsaid:
                workers = default_workers(awaited=awaits(handler), batched=True)
                options = msgspec.structs.replace(options, workers=workers)
            check_batches(handler, rule, options.pool)
            if size > options.window_records:
                raise ConfigError(
                    f"batch_handler(size={size}): the window has only window_records="
                    f"{options.window_records} records; give a smaller size, or a larger "
                    "window"
                )
            found = replace(
                subscription_settings(options),
                key_of=self.subscription.key_of,
                hands_over=hands_over(handler),
                instances=inspect.isclass(handler),
                individually=True,
                slice_records=1,
                call_records=size,
                # To fill calls of one key a worker needs many keys, and all records of each.
                pooled=not same_key,
            )
            # The next call may fill up for each call that runs at once. More leases would wait at
            # this worker while others are idle.
            leases = 2 * size * (options.coroutines or 1)
            if not found.shares:
                leases = max(options.prefetch_records, leases)
            found = replace(found, prefetch_records=leases)
            found.check()
            self.options, self.subscription = options, found
            self.called, self.batches = handler, rule
            note_batched(handler)
            return handler

        return use

    def _suited(self, handler: Callable[..., Any]) -> tuple[Options, SubscriptionSettings]:
        """Return the options and settings with the default workers for the handler."""
        awaited, options = awaits(handler), self.options
        if self.workers_unsaid:
            options = msgspec.structs.replace(options, workers=default_workers(awaited=awaited))
        try:
            found = subscription_settings(options)
        except ConfigError as error:
            if not awaited:
                raise
            raise ConfigError(
                f"handler {getattr(handler, '__qualname__', handler)} is declared with "
                f"'async def', so all are one worker, and {error}"
            ) from error
        return options, replace(found, key_of=self.subscription.key_of)

    def worker_specs(
        self, told: Called | None = None, take: Take | None = None, *, traced: bool = True
    ) -> list[WorkerSpec]:
        """Return how each worker of an app with a handler is made.

        ``told`` is called for handler calls in other processes, and ``take`` with the outputs
        handed out there. Without ``traced`` no call is a span, even if the options ask for it.
        """
        make: Callable[[], Made] = Making(self.called, self.options.pool, *self.serdes)
        if traced and self.options.tracing:
            make = self._traced(make)
        specs = specs_of(self.subscription, self.called, make, self.rules)
        return [replace(each, called=told, take=take) for each in specs]

    def _traced(self, make: Callable[[], Made]) -> Callable[[], Made]:
        """Return ``make`` extended so that each call of the handler is a span."""
        from kafka_keyshared.executors.handling.tracing import (  # it needs an extra
            TracedMaking,
            Tracing,
        )

        options = self.options
        # Another process does not know when a record was fetched.
        apart = options.pool == PROCESS
        self.waits = None if apart else QueueWaits(Clock().monotonic, options.window_records)
        return TracedMaking(
            make,
            Tracing(
                group=str(self.conf.get("group.id", "")),
                client_id=str(self.conf.get("client.id", "")),
                pool=options.pool,
                worker=worker_here,
                batches=self.batches is not None,
                waits=self.waits,
            ),
        )
