"""Changes of slot ownership at run time: joins, resizes, ranges, and filters.

An order is refused before anything has changed, or it is executed completely. Slots that move drain
(:mod:`.slot_draining`).
"""

from __future__ import annotations

from typing import TypeAlias

from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.events import AssignRange, Join, Resize, SetFilters
from kafka_keyshared.core.routing.filters import check_unmatched
from kafka_keyshared.core.routing.ranges import StickyRanges, written
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.core.worker_changes import slot_draining, worker_lifecycle
from kafka_keyshared.core.worker_changes.worker_lifecycle import Partitions
from kafka_keyshared.errors import ConfigError

Ordered: TypeAlias = Join | Resize | AssignRange | SetFilters

EVENTS = (Join, Resize, AssignRange, SetFilters)


def change(sub: Subscription, event: Ordered, partitions: Partitions) -> list[Command]:
    """Execute an order.

    Raises :class:`ConfigError`, and changes nothing, for an impossible order.
    """
    if isinstance(event, Join):
        return worker_lifecycle.join(sub, event.name, partitions, event.filters)
    if isinstance(event, Resize):
        return worker_lifecycle.resize(sub, event.names, partitions)
    if isinstance(event, SetFilters):
        return _filter(sub, event)
    return _assign(sub, event)


def _assign(sub: Subscription, event: AssignRange) -> list[Command]:
    """Assign a range to a worker, present or away; an absent worker's records are held for it.

    Without a worker, ``on_unmatched`` decides what happens to the records of the range.
    """
    routing = sub.table.routing
    if not isinstance(routing, StickyRanges):
        raise ConfigError(
            f"subscription {sub.name!r} has routing={sub.settings.routing.mode!r}: ranges are "
            "assigned with routing='sticky'"
        )
    found = routing.given(event.first, event.last, event.worker, take_over=event.take_over)
    filtered = sub.table.filtered
    # With filters, the new owner may filter where the old one took every key.
    filters = None if filtered is None else filtered.filters
    check_unmatched(found, filters, sub.settings.routing.on_unmatched)
    return [] if found == routing else slot_draining.change(sub, found)


def _filter(sub: Subscription, event: SetFilters) -> list[Command]:
    """Change the filters of a worker, present or away; keys that change owner drain like slots."""
    known = _known(sub)
    if event.worker not in known:
        raise ConfigError(
            f"filters are for worker {event.worker!r}, and there is none; give one of "
            f"{', '.join(known)}, or let it join first"
        )
    declared = sub.routing.declared_with([event.worker], event.patterns)
    return [] if declared is None else slot_draining.change(sub, filters=declared)


def _known(sub: Subscription) -> list[str]:
    """Return the workers that are present, then those with declared ranges or filters."""
    filtered = sub.table.filtered
    there = (worker.name for worker in sub.workers.values() if worker.present)
    filtering = () if filtered is None else filtered.filters.workers
    return [*dict.fromkeys((*there, *written(sub.table.routing), *filtering))]
