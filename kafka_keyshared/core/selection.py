"""Chooses the records whose keys lie in some slots, a batch at a time, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import NamedTuple

import mmh3

from kafka_keyshared.core.keying import SLOT_MASK, KeyOf, KeysOfAll, Refused
from kafka_keyshared.core.routing.slot_ranges import SlotRange, membership
from kafka_keyshared.core.unknown_formats import LOOK_AHEAD, is_broken, look_around
from kafka_keyshared.hashing import SLOT_SEED, slot_of
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat


class Chosen(NamedTuple):
    """What a batch came to: the records that are meant, the client's events, what has no key."""

    records: list[Record]
    events: list[Record]
    refused: list[Refused]


@dataclass(slots=True)
class Counts:
    """How many records were looked at, and how many of them were chosen.

    ``keyless`` had no key and ``undecodable`` none that can be read; both are left out, but for
    keyless ones that are asked for.
    """

    read: int = 0
    chosen: int = 0
    keyless: int = 0
    undecodable: int = 0


class Selection:
    """Takes the records of some slots; ``key_of`` is None where they go by their own key.

    With ``keyless`` it also takes those that have no key. ``hold`` waits at a record whose format
    is unknown, and returns for how many seconds; it raises where the reading ends. Without it the
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
        """The key that a record goes by, for whoever wants it again."""
        self._keyless = keyless
        self.counts = Counts()

    def choose(self, batch: Sequence[Record]) -> Chosen:
        """Return what is meant of a batch, which may have events of the client among its records.

        The hash of a missing key raises TypeError. That stands for the tests for a null key and for
        an event, neither of which is then made per record.
        """
        try:
            found = Chosen(self._plainly(batch), [], [])
        except UnknownFormat:
            found = self._closely(batch)
        except Retry:
            raise
        except Exception:  # noqa: BLE001 - which record it is, and what that means, is looked up
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

    def _closely(self, batch: Sequence[Record]) -> Chosen:
        """Do the same as it is meant, record by record."""
        wanted, slot = self._wanted, self.slot
        found, keyless = Chosen([], [], []), 0
        for at, record in enumerate(batch):
            try:
                key = self._judged(record, batch[at + 1 : at + 1 + LOOK_AHEAD])
            except Retry:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, this record has no key
                if record.error() is not None:
                    found.events.append(record)
                else:
                    found.refused.append(Refused(record, _told(error)))
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
        """Return the key of a record, waiting while its format is unknown and it is no exception.

        Raises :class:`Undecodable` for an exception.
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
