"""Selection of the records whose keys lie in given slots, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import NamedTuple

import mmh3

from kafka_keyshared.core.keys.extraction import SLOT_MASK, KeyOf, KeysOfAll, UnreadableKey
from kafka_keyshared.core.keys.unknown_formats import LOOK_AHEAD, is_broken, look_around
from kafka_keyshared.core.routing.slot_ranges import SlotRange, membership
from kafka_keyshared.hashing import SLOT_SEED, slot_of
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat


class SelectedRecords(NamedTuple):
    """The result for a batch: chosen records, client events, records whose key is refused."""

    records: list[Record]
    events: list[Record]
    refused: list[UnreadableKey]


@dataclass(slots=True)
class SelectionCounts:
    """How many records were read, and how many of them were chosen.

    ``keyless`` records have no key, ``undecodable`` ones a key that cannot be read. Both are left
    out, except keyless records when the caller asks for them.
    """

    read: int = 0
    chosen: int = 0
    keyless: int = 0
    undecodable: int = 0


class SlotSelection:
    """Takes the records of some slots; ``key_of`` is None where the record's own key is used.

    With ``keyless`` it also takes records without a key. ``hold`` waits at a record whose format is
    unknown, and returns the seconds waited; it raises when the reading ends. Without ``hold`` the
    error is raised.
    """

    def __init__(
        self,
        ranges: Iterable[SlotRange],
        slot: Callable[[bytes], int] = slot_of,
        key_of: KeyOf | None = None,
        *,
        keyless: bool = False,
        hold: Callable[[Record, Retry], float] | None = None,
    ) -> None:
        self._hold = hold
        self._read_any = False
        self._wanted = membership(ranges)
        self.slot = slot
        self._key_of = key_of
        self._of_all: KeysOfAll | None = getattr(key_of, "of_all", None)
        self.key: KeyOf = key_of or methodcaller("key")
        """Returns the key of a record, for callers that need it again."""
        self._keyless = keyless
        self.counts = SelectionCounts()

    def choose(self, batch: Sequence[Record]) -> SelectedRecords:
        """Return the chosen records of a batch, which may contain client events.

        The hash of a missing key raises TypeError. That replaces a test per record for a null key
        and for an event.
        """
        try:
            found = SelectedRecords(self._plainly(batch), [], [])
        except UnknownFormat:
            found = self._closely(batch)
        except Retry:
            raise
        except Exception:  # noqa: BLE001 - the record that caused it is searched for
            found = self._closely(batch)
        counts = self.counts
        self._read_any = self._read_any or bool(found.records)
        counts.read += len(batch) - len(found.events)
        counts.chosen += len(found.records)
        counts.undecodable += len(found.refused)
        return found

    def _plainly(self, batch: Sequence[Record]) -> list[Record]:
        wanted, slot = self._wanted, self.slot
        hash_key, seed, mask = mmh3.hash, SLOT_SEED, SLOT_MASK
        if self._key_of is None:
            if slot is slot_of:  # the same without a call for each
                return [each for each in batch if wanted[hash_key(each.key(), seed) & mask]]
            return [each for each in batch if wanted[slot(each.key())]]
        keys = self._of_all(batch) if self._of_all is not None else map(self._key_of, batch)
        if slot is slot_of:
            return [
                each
                for each, key in zip(batch, keys, strict=True)
                if wanted[hash_key(key, seed) & mask]  # type: ignore[arg-type]
            ]
        return [each for each, key in zip(batch, keys, strict=True) if wanted[slot(key)]]  # type: ignore[arg-type]

    def _closely(self, batch: Sequence[Record]) -> SelectedRecords:
        """Choose record by record, handling each error and missing key."""
        wanted, slot = self._wanted, self.slot
        found, keyless = SelectedRecords([], [], []), 0
        for at, record in enumerate(batch):
            try:
                key = self._judged(record, batch[at + 1 : at + 1 + LOOK_AHEAD])
            except Retry:
                raise
            except Exception as error:  # noqa: BLE001 - after any error this record has no key
                if record.error() is not None:
                    found.events.append(record)
                else:
                    found.refused.append(UnreadableKey(record, _told(error)))
                continue
            self._read_any = self._read_any or record.value() is not None
            if key is not None:
                if wanted[slot(key)]:
                    found.records.append(record)
            elif record.error() is not None:
                found.events.append(record)
            else:
                keyless += 1
                if self._keyless:
                    found.records.append(record)
        self.counts.keyless += keyless
        return found

    def _judged(self, record: Record, behind: Sequence[Record]) -> bytes | None:
        """Return the key of a record; wait while its format is unknown.

        Raises :class:`Undecodable` if the record is an exception among readable records.
        """
        waited = 0.0
        while True:
            try:
                return self.key(record)
            except UnknownFormat as error:
                around = look_around(self.key, error, behind)
                if is_broken(error, around, read_before=self._read_any, waited=waited):
                    raise Undecodable(error.reason) from error
                if self._hold is None:
                    raise
                waited += self._hold(record, error)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, Undecodable) else f"{type(error).__name__}: {error}"
