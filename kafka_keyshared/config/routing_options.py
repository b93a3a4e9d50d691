"""Routing and key function made from a program's options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.core.routing.filters import OnUnmatched
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.routing.slot_ranges import SlotRange, parse_ranges
from kafka_keyshared.errors import ConfigError


class Routed(Protocol):
    """The options that define the routing."""

    @property
    def routing(self) -> RoutingMode:
        """How keys find their workers."""

    @property
    def ranges(self) -> Mapping[str, str]:
        """The ranges of each worker, as text."""

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each worker."""

    @property
    def filters(self) -> Mapping[str, Sequence[str]]:
        """The key patterns of each worker."""

    @property
    def on_unmatched(self) -> OnUnmatched | None:
        """The policy for records that no worker takes."""


class Keyed(Protocol):
    """The options that define a record's key."""

    @property
    def key(self) -> str:
        """Where the key is."""

    @property
    def key_schema(self) -> str | None:
        """The path of its Avro schema."""


def routing_settings(given: Routed) -> RoutingSettings:
    """Return the routing settings. Raise :class:`ConfigError` for invalid ranges."""
    ranges = {worker: _ranges_of(worker, text) for worker, text in given.ranges.items()}
    filters, on_unmatched = given.filters, given.on_unmatched
    return RoutingSettings(given.routing, ranges, given.weights, filters, on_unmatched)


def key_of(given: Keyed) -> KeyOf | None:
    """Return the key function; None for the record's own key."""
    if given.key == "record" and given.key_schema is None:
        return None
    from kafka_keyshared.config.keys import (
        parse_key,  # it imports Avro, which most programs do not need
    )

    return parse_key(given.key, None if given.key_schema is None else Path(given.key_schema))


def _ranges_of(worker: str, text: str) -> tuple[SlotRange, ...]:
    try:
        return parse_ranges(text)
    except ConfigError as error:
        raise ConfigError(f"ranges of worker {worker!r}: {error}") from error
