"""Who has which slots, as somebody orders it while records run: workers that join, and ranges.

Whatever is ordered is refused before anything has changed, or done; slots that move drain
(:mod:`.draining`).
"""

from __future__ import annotations

from kafka_keyshared.core import draining, worker_lifecycle
from kafka_keyshared.core.commands import Command
from kafka_keyshared.core.events import AssignRange, Join, Resize
from kafka_keyshared.core.routing.filters import check_unmatched
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.core.worker_lifecycle import Partitions
from kafka_keyshared.errors import ConfigError

EVENTS = (Join, Resize, AssignRange)


def change(
    sub: Subscription, event: Join | Resize | AssignRange, partitions: Partitions
) -> list[Command]:
    """Do what is ordered.

    Raises :class:`ConfigError`, and changes nothing, for what cannot be.
    """
    if isinstance(event, Join):
        return worker_lifecycle.join(sub, event.name, partitions, event.filters)
    if isinstance(event, Resize):
        return worker_lifecycle.resize(sub, event.names, partitions)
    return _assign(sub, event)


def _assign(sub: Subscription, event: AssignRange) -> list[Command]:
    """Assign a range to a worker, there or not: then its records are held until it is."""
    routing = sub.table.routing
    if not isinstance(routing, StickyRanges):
        raise ConfigError(
            f"subscription {sub.name!r} has routing={sub.settings.routing.mode!r}: ranges are "
            "assigned with routing='sticky'"
        )
    make = routing.taken_over if event.take_over else routing.assigned
    found = make(event.first, event.last, event.worker)
    filtered = sub.table.filtered
    # Of those that filter, one may take slots over in which somebody took every key.
    filters = None if filtered is None else filtered.filters
    check_unmatched(found, filters, sub.settings.routing.on_unmatched)
    return [] if found == routing else draining.change(sub, found)
