"""Workers that may take each record, as the settings declare.

This looks at every worker for every key. The core looks up fewer workers, so a mistake in that
lookup is not repeated here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOTS
from kafka_keyshared.lab.simulator.keys import key_by
from kafka_keyshared.model import Undecodable

EVERYTHING = b"everything"
"""The key of every record where everything is one lane."""


class Declared:
    """The declarations of one subscription."""

    def __init__(self, settings: SubscriptionSettings) -> None:
        self._settings = settings
        self._slot_of = SLOT_FUNCTIONS[settings.slot_function]
        self._takers: dict[bytes | None, frozenset[str]] = {}
        self._sets: list[frozenset[str]] = []

    @property
    def may_be_away(self) -> bool:
        """Whether a record may have to wait for a worker that is away."""
        return bool(self._settings.routing.ranges or self._settings.routing.filters)

    def read(self, own: bytes | None) -> tuple[bytes | None, bool]:
        """Return the routing key for a record's own key, and whether no worker gets the record."""
        try:
            key = key_by(self._settings, own)
        except Undecodable:
            return None, True
        return key, key is None and self._settings.null_keys == "reject"

    def alone(self, key: bytes | None) -> bool:
        """Return whether a record with this key is a lane of its own."""
        mode = self._settings.routing.mode
        nulls = key is None and self._settings.null_keys != "one-lane"
        return mode == "unordered" or (mode != "exclusive" and nulls)

    def key(self, key: bytes | None) -> bytes | None:
        """Return the key of a record's lane."""
        return EVERYTHING if self._settings.routing.mode == "exclusive" else key

    def takers(self, key: bytes | None) -> frozenset[str]:
        """Return the workers that were declared to take the key."""
        found = self._takers.get(key)
        if found is None:
            names = dict.fromkeys(
                (
                    *self._settings.workers,
                    *self._settings.routing.ranges,
                    *self._settings.routing.filters,
                )
            )
            found = frozenset(name for name in names if self._takes(name, key))
            self._takers[key] = found
        return found

    def _takes(self, name: str, key: bytes | None) -> bool:
        routing = self._settings.routing
        if key is None and self._settings.null_keys == "one-lane":
            key = b""
        patterns = [str(pattern) for pattern in routing.filters.get(name, ())]
        if key is None:
            return not patterns
        if patterns and not any(fnmatchcase(key.decode(), pattern) for pattern in patterns):
            return False
        slot = self._slot_of(key)
        own = routing.ranges.get(name, ())
        return routing.mode != "sticky" or any(first <= slot <= last for first, last in own)

    def slot(self, key: bytes | None) -> int:
        """Return a number from slot and takers. Two keys share it only if they have one owner."""
        takers = self.takers(key)
        if takers not in self._sets:
            self._sets.append(takers)
        return self._sets.index(takers) * SLOTS + self._slot_of(key or b"")
