"""Whose a key is where workers filter, for a slot that the test chooses."""

from __future__ import annotations

from collections.abc import Callable

from kafka_keyshared.core.routing import FilteredSlots, Filters, Routing, check_filters
from kafka_keyshared.core.routing.port import Owner


def owner_by(routing: Routing, filters: Filters) -> Callable[[bytes, int], Owner]:
    """Return what says whose a key is whose slot is given."""
    check_filters(routing, filters)
    asked = 0
    slots = FilteredSlots(lambda _: asked, filters)

    def owner(key: bytes, slot: int) -> Owner:
        nonlocal asked
        asked = slot
        return slots.owner(slots(key), routing)

    return owner
