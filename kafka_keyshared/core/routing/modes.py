"""Routing settings of a subscription, and the checks of their combinations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from kafka_keyshared.core.routing.autosplit import AutoSplit
from kafka_keyshared.core.routing.exclusive import Exclusive
from kafka_keyshared.core.routing.filters import (
    Filters,
    OnUnmatched,
    check_filters,
    check_unmatched,
    filters_of,
)
from kafka_keyshared.core.routing.port import Routing, checked
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.routing.slot_ranges import check_ranges, parse_ranges
from kafka_keyshared.core.routing.unordered import Unordered
from kafka_keyshared.errors import ConfigError

RoutingMode: TypeAlias = Literal["ring", "sticky", "auto-split", "exclusive", "unordered"]
"""How slots are assigned to workers; each mode is a module of this package."""

MODES: tuple[RoutingMode, ...] = ("ring", "sticky", "auto-split", "exclusive", "unordered")

KEYLESS_MODES: frozenset[RoutingMode] = frozenset({"exclusive", "unordered"})
"""Modes that ignore keys: all records are one lane, or each record is one."""

SHARED_MODES: frozenset[RoutingMode] = frozenset({"ring", "auto-split", "unordered"})
"""Modes without declared owners, so that workers may share slots."""


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """The routing of a subscription.

    ``ranges`` are for ``sticky``: inclusive pairs of first and last slot by worker name.
    ``weights`` are for ``ring``: a worker with 2 gets about twice the slots of one with 1.
    ``filters`` are glob patterns by worker name; a worker that is not named takes every key.
    ``ranges`` and ``filters`` may name workers that are away: the records declared for such a
    worker wait for it. ``on_unmatched`` is the policy for records that no worker was declared to
    take. ``vnodes`` are for ``ring``; they are no user setting: simulations use fewer.
    """

    mode: RoutingMode = "ring"
    ranges: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    filters: Mapping[str, Sequence[str | bytes]] = field(default_factory=dict)
    on_unmatched: OnUnmatched | None = None
    vnodes: int = ROUTING_VNODES

    def of(self, workers: Sequence[str]) -> Routing:
        """Return the routing of these workers.

        Raises :class:`ConfigError` for no workers, a name given twice, and ranges or weights that
        the routing refuses.
        """
        if self.mode == "sticky":
            return StickyRanges(self.ranges, workers)
        if self.mode == "auto-split":
            return AutoSplit(workers)
        if self.mode == "exclusive":
            return Exclusive(workers)
        if self.mode == "unordered":
            return Unordered(workers)
        return VnodeRing(workers, self.vnodes, self.weights)

    def declared(self, workers: Iterable[str]) -> Filters | None:
        """Return the filters of these and of absent workers; None if there are none."""
        return filters_of(dict.fromkeys(workers, ()) | dict(self.filters))

    def with_member(
        self,
        name: str,
        filters: Sequence[str | bytes] | None,
        ranges: str | Iterable[tuple[int, int]] | None,
    ) -> RoutingSettings:
        """Return the settings with the declarations of one more worker; None declares nothing.

        Raises :class:`ConfigError` for an invalid filter or range, or a range that another worker
        has. Also for a declaration that the routing does not take.
        """
        found = self
        if filters is not None:
            found = replace(found, filters={**found.filters, name: filters})
            Filters(found.filters)
        if ranges is not None:
            own = parse_ranges(ranges) if isinstance(ranges, str) else check_ranges(ranges)
            found = replace(found, ranges={**found.ranges, name: own})
            StickyRanges(found.ranges)
        found.check(())
        return found

    def check(self, workers: Sequence[str]) -> None:
        """Raise :class:`ConfigError` for settings that do not go together.

        Empty ``workers`` are not known yet: then only the settings themselves are checked.
        """
        if self.mode not in MODES:
            raise ConfigError(f"routing={self.mode!r}: give one of {', '.join(map(repr, MODES))}")
        for given, name, only in (
            (self.ranges, "ranges", "sticky"),
            (self.weights, "weights", "ring"),
        ):
            if given and self.mode != only:
                raise ConfigError(
                    f"{name} are given and routing={self.mode!r} takes none: leave them out, or "
                    f"choose routing={only!r}"
                )
        filtering = [name for name, patterns in self.filters.items() if patterns]
        if filtering and self.mode in KEYLESS_MODES:
            raise ConfigError(
                f"filters are given for {', '.join(filtering)} and routing={self.mode!r} takes "
                "none, because it looks at no key: leave them out, or choose another routing"
            )
        if not workers:
            return
        checked(workers, "the subscription")
        routing, filters = self.of(workers), self.declared(workers)
        if filters is not None:
            check_filters(routing, filters)
        check_unmatched(routing, filters, self.on_unmatched)
