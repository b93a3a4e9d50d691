"""The known limit of the brokers on commit metadata.

A broker refuses longer metadata than its ``offset.metadata.max.bytes`` (default 4,096) with
OFFSET_METADATA_TOO_LARGE. The limit is a broker setting, so a refusal for one partition applies to
all of them. The limit is read at the start if the broker's settings may be queried. Otherwise each
refusal lowers it by a quarter. It never grows again; a restart queries it again.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_keyshared.core.contract.commands import Command, Notice
from kafka_keyshared.core.contract.commit_facts import MetadataLimitLowered
from kafka_keyshared.core.offsets.commit_metadata import (
    SET_BUDGET,
    TEXT_LIMIT,
    set_budget_of,
    set_rooms,
)

ROOM_LEAST = 16
"""Minimum bytes for a settled set, some 40 offsets; with less room no set is written."""


class TextLimit:
    """The limit, and the part of it that settled sets may take.

    ``set_budget`` bounds the sets, in characters, if the brokers accept more. ``names`` are the ids
    of the subscriptions that share it.
    """

    def __init__(self, names: Collection[str], set_budget: int = SET_BUDGET) -> None:
        self.chars = TEXT_LIMIT
        self._names = names
        self._wanted = set_budget
        self._noted: set[bool] = set()

    @property
    def set_budget(self) -> int:
        """Maximum characters of the settled sets of all subscriptions together."""
        if self.chars >= TEXT_LIMIT:
            return self._wanted
        return min(self._wanted, set_budget_of(self.chars))

    @property
    def without_sets(self) -> bool:
        """Whether the brokers accept too little for a useful settled set."""
        return self.chars < TEXT_LIMIT and min(self._rooms().values(), default=0) < ROOM_LEAST

    def rooms(self) -> dict[str, int]:
        """Return the bytes that the ceilings leave for the set of each subscription.

        If no set fits, holding records back for it would stop the partition. In that case these are
        the rooms of the full budget.
        """
        return set_rooms(self._names, self._wanted) if self.without_sets else self._rooms()

    def told(self, limit: int) -> bool:
        """Apply a broker's ``offset.metadata.max.bytes``; return whether it lowers the limit.

        The client ends each text with a NUL, which counts.
        """
        return self._lower(limit - 1)

    def refused(self, length: int) -> bool:
        """Apply a refusal of a text of ``length`` characters; return whether it lowers the limit.

        From 4,095 to 100 it takes 13 refusals, each answered within a round trip.
        """
        return self._lower(3 * length // 4)

    def notices(self, *, accepted: int | None = None, refused: int | None = None) -> list[Command]:
        """Return the notices for a lowered limit: one, and another once no sets fit.

        ``accepted`` is the limit in bytes that a broker reported, ``refused`` the length in
        characters that it refused.
        """
        if self.without_sets in self._noted:
            return []
        self._noted.add(self.without_sets)
        return [Notice(MetadataLimitLowered(accepted, refused, self.without_sets))]

    def _lower(self, chars: int) -> bool:
        lower = 0 <= chars < self.chars
        if lower:
            self.chars = chars
        return lower

    def _rooms(self) -> dict[str, int]:
        return set_rooms(self._names, self.set_budget)
