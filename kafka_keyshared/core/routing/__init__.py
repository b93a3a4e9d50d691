"""Routing: which worker owns a slot. Each routing is projected to a table of 65,536 entries."""

from kafka_keyshared.core.routing.autosplit import AutoSplit
from kafka_keyshared.core.routing.exclusive import Exclusive
from kafka_keyshared.core.routing.filters import (
    FilteredSlots,
    Filters,
    OnUnmatched,
    check_filters,
    check_unmatched,
    filters_of,
)
from kafka_keyshared.core.routing.port import Move, Routing, SlotSpan, Unowned, moved, moves
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.core.routing.ring import DEFAULT_VNODES, ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.routing.unordered import Unordered

__all__ = [
    "DEFAULT_VNODES",
    "ROUTING_VNODES",
    "AutoSplit",
    "Exclusive",
    "FilteredSlots",
    "Filters",
    "Move",
    "OnUnmatched",
    "Routing",
    "SlotSpan",
    "StickyRanges",
    "Unordered",
    "Unowned",
    "VnodeRing",
    "check_filters",
    "check_unmatched",
    "filters_of",
    "moved",
    "moves",
]
