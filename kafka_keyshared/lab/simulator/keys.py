"""Derived keys in a simulation: header values and key functions.

Several own keys of records become one, and some have none. Keys that cannot be read follow the
policy. Keys that cannot be read for a while hold partitions: a schema registry is away, or does not
know a schema yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from kafka_keyshared.config.keys.sources import HeaderKey
from kafka_keyshared.core.keys.extraction import NullKeys, UndecodablePolicy
from kafka_keyshared.core.routing.modes import KEYLESS_MODES
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.records import GROUP, group_of
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat

Kind = Literal["own", "header", "function"]

KIND_SHARES: tuple[Kind, ...] = ("own", "own", "header", "function", "function")
NULLS: tuple[NullKeys, ...] = ("any", "any", "one-lane", "reject")

UNREADABLE, LATER, LACKING = 11, 3, 13
"""One own key of this many is affected.

``UNREADABLE``: a function can never read it. ``LATER``: one is unreadable while a registry is away,
another while its schema is unknown. ``LACKING``: a function finds no key.
"""

PATIENCE = 1_000.0
"""Seconds for which a schema may still be registered: longer than any run."""

BACK_WITHIN = 1.0
"""Seconds after which an unreadable key is read again."""

_HEADER = HeaderKey(GROUP)


@dataclass(slots=True)
class DerivedKey:
    """A key function: the product's own for a header, or a user's.

    ``groups`` is how many keys a function makes in all. ``fails`` says that it cannot read some,
    and ``lacks`` that it finds none in others. ``away`` says that it cannot read some for now, and
    ``unregistered`` that it does not know the schema of others yet.
    """

    header: bool
    groups: int = 1
    fails: bool = False
    away: bool = False
    lacks: bool = False
    unregistered: bool = False

    def __call__(self, record: Record) -> bytes | None:
        """Return the key of one record."""
        if self.header:
            return _HEADER(record)
        if self.away and _number(record.key()) % LATER == 1:
            raise Retry
        if self.unregistered and self.has_new_schema(record.key()):
            raise UnknownFormat(
                "schema 2", "schema 2: no such schema", BACK_WITHIN, patience=PATIENCE
            )
        return self.of(record.key())

    def has_new_schema(self, own: bytes | None) -> bool:
        """Return whether a record with this own key has the schema that may be unknown."""
        return not self.header and _number(own) % LATER == 2

    def of_all(self, records: Sequence[Record]) -> list[bytes | None]:
        """Return the keys of many; raise if one of them needs a closer look."""
        return _HEADER.of_all(records) if self.header else [*map(self, records)]

    def of(self, own: bytes | None) -> bytes | None:
        """Return the key of a record with this own key, once it can be read.

        Raises :class:`Undecodable` for a key that never can be read.
        """
        if own is None:
            return None
        if self.header:
            return group_of(own)
        number = _number(own)
        if self.fails and number % UNREADABLE == 4:
            raise Undecodable("as the seed has it")
        if self.lacks and number % LACKING == 9:
            return None
        return b"key-%d" % (number % self.groups)


def _number(own: bytes | None) -> int:
    return 0 if own is None else int(own.rpartition(b"-")[2])


def key_by(settings: SubscriptionSettings, own: bytes | None) -> bytes | None:
    """Return the routing key of a record; raise :class:`Undecodable` if none can be read."""
    derived = settings.key_of
    if not isinstance(derived, DerivedKey):
        return own
    try:
        return derived.of(own)
    except Undecodable:
        if settings.undecodable != "null_key":
            raise
        return None


def registries(subscriptions: Sequence[SubscriptionSettings]) -> list[DerivedKey]:
    """Return the key functions that may be unable to read a key for a while."""
    those = [each.key_of for each in subscriptions]
    return [each for each in those if isinstance(each, DerivedKey) and not each.header]


def keyed(settings: SubscriptionSettings, chance: Random) -> SubscriptionSettings:
    """Return the settings with keys, and with policies for records without one.

    A record that is blocked for its key stays blocked: a restart does not mend it.
    """
    kind, nulls, groups = (
        chance.choice(KIND_SHARES),
        chance.choice(NULLS),
        chance.choice((1, 7, 50)),
    )
    fails, which, lacks = chance.random() < 0.5, chance.random(), chance.random() < 0.5
    if settings.routing.mode in KEYLESS_MODES:
        return settings
    policies: list[UndecodablePolicy] = ["drop"]
    policies += ["dead_letter"] if settings.dlq else []
    policies += ["null_key"] if nulls != "reject" else []
    function = None
    if kind != "own":
        function = DerivedKey(kind == "header", groups, fails, lacks=lacks and kind == "function")
    return replace(
        settings,
        key_of=function,
        null_keys=nulls,
        undecodable=policies[int(which * len(policies))],
    )
