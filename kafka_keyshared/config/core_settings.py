"""Core settings made from the options."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kafka_keyshared.config import worker_options
from kafka_keyshared.config.option_checks import refuse_without_tracking
from kafka_keyshared.config.options import Options
from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.routing.slot_ranges import SlotRange, parse_ranges
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError


def subscription_settings(options: Options, name: str = "default") -> SubscriptionSettings:
    """Return the core's settings of a subscription. Raise :class:`ConfigError` for invalid ones."""
    refuse_without_tracking(options)
    pool = options.pool
    settings = SubscriptionSettings(
        name=name,
        workers=options.worker_names(),
        routing=_routing(options),
        order_scope=options.order_scope,
        key_of=_key_of(options),
        null_keys=options.null_keys,
        slot_function=options.slot_function,
        undecodable=options.undecodable,
        retry=RetryPolicy(**msgspec.structs.asdict(options.retry)),
        on_exhausted=_on_exhausted(options),
        dlq=options.dlq is not False,
        dlq_limit=_dlq_limit(options),
        breaker=options.breaker,
        wait_on=bool(options.wait_on),
        window_records=options.window_records,
        window_bytes=options.window_bytes,
        window_share=options.window_share,
        prefetch_records=worker_options.leases_of(options.workers, options.prefetch_records),
        prefetch_bytes=options.prefetch_bytes,
        one_in_flight_per_key=options.one_in_flight_per_key or pool == worker_options.PULL,
        individually=not options.serial,
        slice_records=worker_options.slice_records(options.workers, options.time_limit),
        ack_timeout=options.time_limit,
        exit_when_stuck=options.on_stuck == "exit",
        delivery=options.delivery,
        unblocking_interval=options.unblocking_interval,
        new_workers_wait=options.new_workers_wait,
        on_evict=options.on_evict,
        detach_after=options.detach_after,
        shards=options.shards,
        pooled=pool in worker_options.SHARED,
    )
    settings.check()
    return settings


def commit_policy(options: Options) -> CommitPolicy:
    """Return the commit policy."""
    policy = CommitPolicy(interval=options.commit_interval)
    policy.check()
    return policy


def _on_exhausted(options: Options) -> PoisonPolicy:
    """Return the poison policy. With exclusive routing no record may overtake an unfinished one."""
    blocks = options.dlq is False or options.routing == "exclusive"
    return options.on_exhausted or ("block" if blocks else "dead_letter")


def _dlq_limit(options: Options) -> DlqLimit | None:
    """Return the limit of dead letters, None without one."""
    if not options.dlq_limit:
        return None
    return DlqLimit(
        options.dlq_limit_share, options.dlq_limit_records, options.dlq_limit_consecutive
    )


def _routing(options: Options) -> RoutingSettings:
    ranges = {worker: _ranges_of(worker, text) for worker, text in options.ranges.items()}
    return RoutingSettings(
        options.routing, ranges, options.weights, options.filters, options.on_unmatched
    )


def _ranges_of(worker: str, text: str) -> tuple[SlotRange, ...]:
    try:
        return parse_ranges(text)
    except ConfigError as error:
        raise ConfigError(f"ranges of worker {worker!r}: {error}") from error


def _key_of(options: Options) -> KeyOf | None:
    """Return the key function; None for the record's own key."""
    schema = options.key_schema
    if options.key == "record" and schema is None:
        return None
    # Imported here: it imports Avro, which most programs do not need.
    from kafka_keyshared.config.keys import parse_key

    return parse_key(options.key, None if schema is None else Path(schema))
