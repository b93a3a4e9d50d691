"""Routing of a simulated subscription, drawn from a seed.

Records that no worker was declared to take are skipped, because held ones would still be held at
the end. Records for a worker that is away are held until the last members have all workers. If all
slots were declared, an order may leave some without a worker. Their records are held too, or
skipped, or end their member (:func:`whole_ranges`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Literal, get_args

from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.routing.ring import ROUTING_VNODES
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.hashing import SLOTS

Kind = Literal["ring", "weights", "sticky", "auto-split", "exclusive", "unordered", "filters"]
KINDS: tuple[Kind, ...] = get_args(Kind)

WORKERS_MOST = 12
"""Most workers of a subscription. They are chosen among as many names."""

RING_SHARE = 0.4
"""The share of subscriptions that use the ring, as most real ones do."""

VNODES = (5, 5, 5, 20, 20, 20, 20, ROUTING_VNODES)
"""Vnodes of each worker. With fewer a ring has fewer arcs, and workers change fast."""

PATTERNS = ("key-1*", "key-?", "key-*3", "key-2?", "key-4", "*5*")
"""Patterns such that a simulated key is matched by none of them, by one, or by several."""


def routed(settings: SubscriptionSettings, chance: Random) -> SubscriptionSettings:
    """Return the settings with a routing, and with everything that it needs."""
    kind = "ring" if chance.random() < RING_SHARE else chance.choice(KINDS)
    found = with_routing(settings, kind, chance)
    if found.routing.mode != "ring":
        return found
    return replace(found, routing=replace(found.routing, vnodes=chance.choice(VNODES)))


def with_routing(
    settings: SubscriptionSettings, kind: Kind, chance: Random
) -> SubscriptionSettings:
    """Return the settings with a routing of this kind."""
    names = settings.workers
    if kind in ("exclusive", "unordered"):  # they look at no key
        settings = replace(settings, key_of=None)
    if kind == "exclusive":
        return replace(settings, routing=RoutingSettings("exclusive"), on_exhausted="block")
    if kind == "sticky":
        ranges = _ranges(names, chance)
        return replace(settings, routing=RoutingSettings("sticky", ranges, on_unmatched="skip"))
    if kind == "weights":
        weights = {name: chance.choice((0.5, 1.0, 4.0)) for name in names}
        return replace(settings, routing=RoutingSettings(weights=weights))
    if kind == "filters":
        filters = {name: tuple(chance.sample(PATTERNS, chance.randint(0, 3))) for name in names}
        # Also for workers that may come, which otherwise would take records that no worker takes.
        # Their keys are those of a worker that is there at the end, or records would be held.
        for name in worker_names(WORKERS_MOST):
            filters.setdefault(name, filters[chance.choice(names)])
        by: RoutingMode = "ring" if chance.random() < 0.5 else "auto-split"
        chosen = RoutingSettings(by, filters=filters, on_unmatched="skip")
        # If several workers have keys of a slot, its state has no single owner.
        return replace(settings, routing=chosen, hands_over=False)
    if kind == "unordered":
        return replace(settings, routing=RoutingSettings(kind), hands_over=False)
    return replace(settings, routing=RoutingSettings(kind))


def _ranges(names: tuple[str, ...], chance: Random) -> dict[str, tuple[tuple[int, int], ...]]:
    """Cut the slots into parts, and assign most of them."""
    cuts = sorted(chance.sample(range(1, SLOTS), 3 * len(names)))
    ranges: dict[str, list[tuple[int, int]]] = {}
    for first, end in zip((0, *cuts), (*cuts, SLOTS), strict=True):
        if first == 0 or chance.random() < 0.8:
            ranges.setdefault(chance.choice(names), []).append((first, end - 1))
    return {name: tuple(those) for name, those in ranges.items()}


def whole_ranges(
    names: tuple[str, ...], chance: Random, on_unmatched: OnUnmatched = "hold"
) -> RoutingSettings:
    """Return ranges that cover all slots; ``on_unmatched`` is for slots that lose their worker."""
    ranges = _ranges(names, chance)
    taken = sorted(span for spans in ranges.values() for span in spans)
    ends = [last + 1 for _, last in taken]
    begins = [*(first for first, _ in taken[1:]), SLOTS]
    rest = tuple((end, first - 1) for end, first in zip(ends, begins, strict=True) if end < first)
    one = next(iter(ranges))
    return RoutingSettings(
        "sticky", {**ranges, one: (*ranges[one], *rest)}, on_unmatched=on_unmatched
    )


def may_be_withdrawn(settings: SubscriptionSettings) -> bool:
    """Return whether an order may leave slots without a worker: all slots were declared.

    Otherwise such records would look like records that no worker was declared to take, which are
    skipped.
    """
    spans = sorted(span for spans in settings.routing.ranges.values() for span in spans)
    return settings.routing.mode == "sticky" and sum(b - a + 1 for a, b in spans) == SLOTS


def resized_to(chance: Random) -> list[str]:
    """Draw the workers for a resize, with old names and new ones."""
    return chance.sample(worker_names(WORKERS_MOST), chance.randint(1, WORKERS_MOST))


def may_filter_later(settings: SubscriptionSettings) -> bool:
    """Return whether joining workers may filter, and none does at first."""
    by_key = settings.routing.mode in ("ring", "auto-split") and not settings.routing.filters
    return by_key and settings.at_least_once and not (settings.hands_over or settings.shares)


def filters_of_one_more(settings: SubscriptionSettings) -> Sequence[str | bytes] | None:
    """Return the filters of a worker that joins: those of another one.

    A worker that takes every key would take records that no worker is to take.
    """
    return settings.routing.filters.get(settings.workers[0])
