"""Routing: which worker owns a slot. Each routing is projected to a table of 65,536 entries."""

from kafka_keyshared.core.routing.port import Move, Routing, Span, Unowned, moved, moves
from kafka_keyshared.core.routing.ring import DEFAULT_VNODES, ROUTING_VNODES, VnodeRing

__all__ = [
    "DEFAULT_VNODES",
    "ROUTING_VNODES",
    "Move",
    "Routing",
    "Span",
    "Unowned",
    "VnodeRing",
    "moved",
    "moves",
]
