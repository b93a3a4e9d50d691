"""The routing that the options of a program come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.routing.slot_ranges import SlotRange, parse_ranges
from kafka_keyshared.errors import ConfigError


class Routed(Protocol):
    """The options that say it."""

    @property
    def routing(self) -> RoutingMode:
        """How keys find their workers."""

    @property
    def ranges(self) -> Mapping[str, str]:
        """By worker the ranges, as text."""

    @property
    def weights(self) -> Mapping[str, float]:
        """By worker its weight."""

    @property
    def filters(self) -> Mapping[str, Sequence[str]]:
        """By worker its patterns."""

    @property
    def on_unmatched(self) -> OnUnmatched | None:
        """What becomes of what nobody takes."""


def routing_settings(given: Routed) -> RoutingSettings:
    """Return the routing; raise :class:`ConfigError` for ranges that are none."""
    ranges = {worker: _ranges_of(worker, text) for worker, text in given.ranges.items()}
    filters, on_unmatched = given.filters, given.on_unmatched
    return RoutingSettings(given.routing, ranges, given.weights, filters, on_unmatched)


def _ranges_of(worker: str, text: str) -> tuple[SlotRange, ...]:
    try:
        return parse_ranges(text)
    except ConfigError as error:
        raise ConfigError(f"ranges of worker {worker!r}: {error}") from error
