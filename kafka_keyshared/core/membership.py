"""Who has which slots, as somebody orders it while records run: workers that join, and ranges.

Whatever is ordered is refused before anything has changed, or done; slots that move drain
(:mod:`.draining`).
"""

from __future__ import annotations

from typing import TypeAlias

from kafka_keyshared.core import draining, worker_lifecycle
from kafka_keyshared.core.commands import Command
from kafka_keyshared.core.events import AssignRange, Join, Resize, SetFilters
from kafka_keyshared.core.routing.filters import check_unmatched
from kafka_keyshared.core.routing.ranges import StickyRanges, written
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.worker_lifecycle import Partitions
from kafka_keyshared.errors import ConfigError

Ordered: TypeAlias = Join | Resize | AssignRange | SetFilters

EVENTS = (Join, Resize, AssignRange, SetFilters)


def change(sub: Subscription, event: Ordered, partitions: Partitions) -> list[Command]:
    """Do what is ordered.

    Raises :class:`ConfigError`, and changes nothing, for what cannot be.
    """
    if isinstance(event, Join):
        return worker_lifecycle.join(sub, event.name, partitions, event.filters)
    if isinstance(event, Resize):
        return worker_lifecycle.resize(sub, event.names, partitions)
    if isinstance(event, SetFilters):
        return _filter(sub, event)
    return _assign(sub, event)


def _assign(sub: Subscription, event: AssignRange) -> list[Command]:
    """Assign a range to a worker, there or not: then its records are held until it is.

    Or to nobody: then ``on_unmatched`` says what becomes of them.
    """
    routing = sub.table.routing
    if not isinstance(routing, StickyRanges):
        raise ConfigError(
            f"subscription {sub.name!r} has routing={sub.settings.routing.mode!r}: ranges are "
            "assigned with routing='sticky'"
        )
    found = routing.given(event.first, event.last, event.worker, take_over=event.take_over)
    filtered = sub.table.filtered
    # Of those that filter, one may take slots over in which somebody took every key.
    filters = None if filtered is None else filtered.filters
    check_unmatched(found, filters, sub.settings.routing.on_unmatched)
    return [] if found == routing else draining.change(sub, found)


def _filter(sub: Subscription, event: SetFilters) -> list[Command]:
    """Have a worker, there or not, take other keys: those that change hands drain as slots do."""
    known = _known(sub)
    if event.worker not in known:
        raise ConfigError(
            f"filters are for worker {event.worker!r}, and there is none; give one of "
            f"{', '.join(known)}, or let it join first"
        )
    declared = sub.declared_with([event.worker], event.patterns)
    return [] if declared is None else draining.change(sub, filters=declared)


def _known(sub: Subscription) -> list[str]:
    """Return the workers that are there, then those for which something else was declared."""
    filtered = sub.table.filtered
    there = (worker.name for worker in sub.workers.values() if worker.present)
    filtering = () if filtered is None else filtered.filters.workers
    return [*dict.fromkeys((*there, *written(sub.table.routing), *filtering))]
