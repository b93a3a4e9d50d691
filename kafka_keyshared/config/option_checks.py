"""Checks of options: each value, and combinations that cannot work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import msgspec

from kafka_keyshared.config.fields import convert_value, flatten, nest
from kafka_keyshared.config.options import Options
from kafka_keyshared.config.setting_faults import Fault, refuse
from kafka_keyshared.config.worker_options import PULL, counted_workers, refuse_more
from kafka_keyshared.core.contract.retry_policy import NEED_DLQ
from kafka_keyshared.errors import ConfigError

NEEDS_TRACKING = (
    "dlq",
    "dlq_create",
    "dlq_format",
    "on_exhausted",
    "retry",
    "undecodable",
    "one_in_flight_per_key",
    "commit_interval",
    "ack_timeout",
    "on_stuck",
    "on_evict",
    "detach_after",
)
"""Options without effect under ``delivery="at-most-once"``: those for tracking and retries."""

_WITHOUT_TRACKING = {"undecodable": ("drop", "null_key")}
"""Values of these options that are still allowed."""


def make_options(values: Mapping[str, Any]) -> Options:
    """Return checked options. Raise :class:`ConfigError` with every wrong one."""
    faults: list[Fault] = []
    fit = {
        known.name: convert_value(known, value, faults)
        for known, value in flatten(values, Options, faults)
    }
    refuse(faults)
    options = msgspec.convert(nest(fit), Options)
    faults += [*_too_many(options), *_without_topic(options)]
    refuse([*faults, *_untraceable(options), *_two_views(options)])
    return options


def _too_many(options: Options) -> Iterator[Fault]:
    """Yield a number of workers that is a typing error."""
    if options.pool != PULL:
        try:
            refuse_more(*counted_workers(options.workers), f"workers={options.workers!r}")
        except ConfigError as error:
            yield Fault(("workers",), str(error))


def _without_topic(options: Options) -> Iterator[Fault]:
    """Yield options that need a dead-letter topic."""
    if options.dlq is not False:
        return
    cure = "give dlq=True or dlq='name'"
    if options.on_exhausted in NEED_DLQ:
        policy = f"on_exhausted={options.on_exhausted!r}"
        text = f"{policy} needs a dead-letter topic, dlq is not set: {cure}"
        yield Fault(("on_exhausted", "dlq"), text)
    if options.dlq_limit:
        text = f"dlq_limit=True limits the records of a dead-letter topic, dlq is not set: {cure}"
        yield Fault(("dlq_limit", "dlq"), text)
    if options.dlq_create:
        text = f"dlq_create=True creates a dead-letter topic, dlq is not set: {cure}"
        yield Fault(("dlq_create", "dlq"), text)


def _two_views(options: Options) -> Iterator[Fault]:
    """Yield faults in the options of the group view."""
    if options.group_view_topic is not None and options.group_view_addresses:
        text = (
            f"group_view_topic={options.group_view_topic!r} and "
            f"group_view_addresses={options.group_view_addresses!r}: give only one of the two"
        )
        yield Fault(("group_view_topic", "group_view_addresses"), text)
    if options.group_view_create and options.group_view_topic is None:
        text = "group_view_create=True creates group_view_topic, which is not set: give its name"
        yield Fault(("group_view_create", "group_view_topic"), text)


def _untraceable(options: Options) -> Iterator[Fault]:
    """Yield the reasons why the requested spans cannot be made."""
    if not options.tracing:
        return
    if options.pool in ("pull", "split"):
        text = (
            f"tracing=True and workers={options.workers!r}: a span is a call of a handler, and "
            "members have no handler; leave tracing out"
        )
        yield Fault(("tracing", "workers"), text)
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        text = (
            "tracing=True needs the package opentelemetry-api: install it with "
            'pip install "kafka-keyshared[tracing]"'
        )
        yield Fault(("tracing",), text)


def refuse_without_tracking(options: Options) -> None:
    """Raise :class:`ConfigError` that names every option without effect at most once."""
    if options.delivery != "at-most-once":
        return
    without = [*_changed(options, Options())]
    if options.pool in ("pull", "split"):
        without.insert(0, f"workers={options.workers!r} (members acknowledge)")
    if without:
        raise ConfigError(
            "delivery='at-most-once' tracks no records, so it does not work with "
            f"{', '.join(without)}: leave these out, or leave out delivery='at-most-once'"
        )


def _changed(options: Options, default: Options) -> Iterator[str]:
    for name in NEEDS_TRACKING:
        value, usual = getattr(options, name), getattr(default, name)
        if value == usual or value in _WITHOUT_TRACKING.get(name, ()):
            continue
        if isinstance(value, msgspec.Struct):
            yield from (f"{name}.{field}={each!r}" for field, each in _differing(value, usual))
        else:
            yield f"{name}={value!r}"


def _differing(value: msgspec.Struct, usual: Any) -> Iterator[tuple[str, Any]]:
    for field in value.__struct_fields__:
        if (each := getattr(value, field)) != getattr(usual, field):
            yield field, each
