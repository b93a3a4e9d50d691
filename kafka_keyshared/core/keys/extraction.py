"""Keys by which records are routed: their own or derived.

A subscription keeps one key object for its whole life. The object routes fetched records to the
backlogs. It also returns the key and lane of a record in all cases outside the fast path. Workers
call it from their threads for the records that they hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Literal, NamedTuple, TypeAlias

import mmh3

from kafka_keyshared.core.keys.key_cache import KeptKeys
from kafka_keyshared.core.keys.keyless import Keyless
from kafka_keyshared.core.keys.unknown_formats import Judge
from kafka_keyshared.core.records.lane_identity import NULL_KEY, Lane, OrderScope, OwnLanes, lane_by
from kafka_keyshared.core.records.pristine import AsItCame, Chunk
from kafka_keyshared.hashing import SLOT_SEED, SLOTS, slot_of
from kafka_keyshared.model import Record, Retry, TopicPartition, Undecodable, UnknownFormat

SLOT_MASK = SLOTS - 1

KeyOf: TypeAlias = Callable[[Record], bytes | None]
"""A key function: it returns the record's key, or None for a null key.

It raises :class:`Undecodable` for a record that will never have a readable key; any other exception
counts as that. It raises :class:`Retry` while the key cannot be read yet. It raises
:class:`UnknownFormat` for a value that the reader cannot judge. For a message that is a client
error and no record it returns None or raises.
"""

KeysOfAll: TypeAlias = Callable[[Sequence[Record]], list[bytes | None]]
"""The ``of_all`` of a key function: many keys at once; if it raises, each record is read alone."""


NullKeys: TypeAlias = Literal["any", "one-lane", "reject"]
"""Meaning of a null key: a lane for each such record, one lane for all, or undecodable."""

UndecodablePolicy: TypeAlias = Literal["dead_letter", "block", "drop", "null_key"]
"""Policy for a record whose key cannot be read."""

Rows: TypeAlias = Sequence[list[Record]] | Mapping[int, list[Record]]
"""For each slot the backlog of the worker that owns it."""


class UnreadableKey(NamedTuple):
    """A record whose key cannot be read, and the reason."""

    record: Record
    reason: str


@dataclass(slots=True)
class UnreadableTail:
    """The records of a partition from the first one whose key cannot be read yet.

    The records behind it wait too, because they may have the same key. ``due`` is when the key is
    read again, in monotonic seconds; None until that is decided.
    """

    records: list[Record]
    cause: Retry
    due: float | None = None


class OwnKeys:
    """Keys for records that are routed by their own key.

    ``refused`` has undecodable records whose policy is not applied yet. ``judge`` is set for keys
    read by a key function. ``keyless`` is set if that function may find no key.
    """

    judge: Judge | None = None
    keyless: Keyless | None = None

    def __init__(
        self, scope: OrderScope, nulls: NullKeys, slot: Callable[[bytes], int] = slot_of
    ) -> None:
        self.slot = slot
        self._scope = scope
        self._nulls = nulls
        self.refused: list[UnreadableKey] = []
        self.unread: dict[TopicPartition, UnreadableTail] = {}
        self.key: Callable[[Record], bytes | None]
        self.lane: Callable[[Record], Lane]
        if nulls == "one-lane":
            self.key, self.lane = self._key, self._lane
        else:
            self.key, self.lane = methodcaller("key"), OwnLanes(scope)

    def _key(self, record: Record) -> bytes | None:
        key: bytes | None = record.key()
        return NULL_KEY if key is None else key

    def _lane(self, record: Record) -> Lane:
        return lane_by(record, self.key(record), self._scope)

    def route(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        """Append the records to their backlogs; return those that are client events.

        ``alone`` takes the records that go to no particular worker. Hashing a missing key raises
        TypeError. This replaces the checks for a null key and for an error event, so that neither
        runs per record. This is the fast path of :meth:`_route_plainly`.
        """
        keyed = zip(chunk.records, chunk.keys, strict=True)
        if self.slot is not slot_of:
            return self._route_plainly(keyed, rows, alone)
        hash_key, seed, mask = mmh3.hash, SLOT_SEED, SLOT_MASK
        try:
            for record, key in keyed:
                rows[hash_key(key, seed) & mask].append(record)
        except TypeError:
            return self._route_plainly(itertools.chain(((record, key),), keyed), rows, alone)
        return []

    def _route_plainly(
        self, keyed: Iterable[tuple[Record, bytes | None]], rows: Rows, alone: list[Record]
    ) -> list[Record]:
        """Route each record without shortcuts: record, key, slot, row."""
        slot, nulls = self.slot, self._nulls
        events: list[Record] = []
        for record, key in keyed:
            if key is not None:
                rows[slot(key)].append(record)
            elif record.error() is not None:
                events.append(record)
            elif nulls == "any":
                alone.append(record)
            else:
                self._route_null(record, rows)
        return events

    def _route_null(self, record: Record, rows: Rows) -> None:
        if self._nulls == "one-lane":
            rows[self.slot(NULL_KEY)].append(record)
        else:
            self.refused.append(UnreadableKey(record, "its key is null"))

    def waiting(self) -> Iterator[Record]:
        """Yield the records not routed yet, because their key or an earlier one is not known."""
        for unread in self.unread.values():
            yield from unread.records
        for refused in self.refused:
            yield refused.record

    def empty(self) -> bool:
        """Return whether all received records are routed."""
        return not (self.unread or self.refused)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the unread records of these partitions."""
        for partition in partitions:
            self.unread.pop(partition, None)
        if self.judge is not None:
            self.judge.forget(partitions)

    def next_due(self) -> float | None:
        """Return when a key is to be read again, in monotonic seconds."""
        if not self.unread:
            return None
        return min(
            (each.due for each in self.unread.values() if each.due is not None), default=None
        )

    def crowded(self) -> bool:
        """Return whether there are keys to forget; then :meth:`keep` is due."""
        return False

    def keep(self, strays: Iterable[Record]) -> None:
        """Forget the keys of records that are no longer held.

        ``strays`` are held records that have left the chunk they were fetched in.
        """

    def knows(self, record: Record) -> bool:
        """Return whether the key of a held record is known."""
        del record
        return True


class DerivedKeys(OwnKeys):
    """Keys that a key function derives from the record.

    The function runs once per received record, on the owner thread. Its result is kept as long as
    the record is held. A second call after a failure could return a different key and break the
    order. It would also run an expensive function twice. ``extracted`` says that the key is not the
    record's own.
    """

    def __init__(
        self,
        key_of: KeyOf,
        scope: OrderScope,
        nulls: NullKeys,
        *,
        undecodable_is_null: bool,
        window_records: int,
        slot: Callable[[bytes], int] = slot_of,
        extracted: bool = True,
    ) -> None:
        super().__init__(scope, nulls, slot)
        self._key_of = key_of
        # Set if the key function can return the keys of a whole chunk in one call.
        self._of_all: KeysOfAll | None = getattr(key_of, "of_all", None)
        self._undecodable_is_null = undecodable_is_null
        self._kept = KeptKeys(window_records)
        self.judge = Judge(key_of)
        if extracted and nulls != "reject":
            self.keyless = Keyless(one_lane=nulls == "one-lane")
        # The record with an unknown format that was found undecodable, while it is routed.
        self.broken: Record | None = None
        # The key stored for a record whose key is null.
        self._kept_null = NULL_KEY if nulls == "one-lane" else None
        self.key, self.lane = self._known_key, self._lane

    def _known_key(self, record: Record) -> bytes | None:
        return self._kept.of(_itself(record))

    def route(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        """Append the records to their backlogs; return those that are client events."""
        records = chunk.records
        if self._of_all is None or self.unread:
            return self._route_each(chunk, rows, alone)
        try:
            found = self._of_all(records)
        except Exception:  # noqa: BLE001 - the slow path finds the record and the reason
            return self._route_each(chunk, rows, alone)
        self._kept.add(records, self._as_kept(found), chunk)
        self._note_read(records[:1])
        hash_key, seed, mask, slot = mmh3.hash, SLOT_SEED, SLOT_MASK, self.slot
        events: list[Record] = []
        without: list[Record] = []
        keyed = zip(records, found, strict=True)
        while True:
            try:
                if slot is slot_of:  # the same, without a call for each
                    for record, key in keyed:
                        rows[hash_key(key, seed) & mask].append(record)  # type: ignore[arg-type]
                for record, key in keyed:
                    rows[slot(key)].append(record)  # type: ignore[arg-type]
            except TypeError:  # the hash of None
                self._keyless(record, rows, alone, events)
                without.append(record)
            else:
                if self.keyless is not None:
                    self.keyless.note(records, found, without)
                return events

    def _as_kept(self, found: list[bytes | None]) -> list[bytes | None]:
        if self._kept_null is None or None not in found:
            return found
        return [self._kept_null if key is None else key for key in found]

    def _route_each(self, chunk: Chunk, rows: Rows, alone: list[Record]) -> list[Record]:
        records = chunk.records
        key_of, slot = self._key_of, self.slot
        events: list[Record] = []
        known: list[Record] = []
        keys: list[bytes | None] = []
        without: list[Record] = []
        null = self._kept_null
        undecodable = null if self._undecodable_is_null else None
        refused = len(self.refused)
        stream = iter(self._not_behind_unread(records) if self.unread else records)
        while True:
            try:
                for record in stream:
                    key = key_of(record)
                    if key is not None:
                        rows[slot(key)].append(record)
                    else:
                        self._keyless(record, rows, alone, events)
                        without.append(record)
                    known.append(record)
                    keys.append(null if key is None else key)
            except Retry as error:
                if (broken := self._is_final(record, error)) is not None:
                    self._undecodable(record, broken, rows, alone, events)
                    known.append(record)
                    keys.append(undecodable)
                    continue
                self._cannot_now(record, error, events)
                stream = iter(self._not_behind_unread(stream))
            except Exception as error:  # noqa: BLE001 - for any error this record has no key
                self._undecodable(record, error, rows, alone, events)
                known.append(record)
                keys.append(undecodable)
            else:
                self._kept.add(known, keys, chunk)
                if self.unread or len(self.refused) > refused:
                    bad = {id(each.record) for each in self.refused[refused:]}
                    self._note_read([each for each in known if id(each) not in bad])
                else:
                    self._note_read(known[:1])
                if self.keyless is not None:
                    self.keyless.note(known, keys, without)
                return events

    def _note_read(self, records: Sequence[Record]) -> None:
        """Note the topics of records that have a value and whose key was read."""
        if self.judge is not None:
            self.judge.topics_read.update(
                each.topic() for each in records if each.error() is None and each.value()
            )

    def _is_final(self, record: Record, error: Retry) -> Exception | None:
        """Return why a record is undecodable although its key function raised Retry, else None."""
        if record is self.broken and isinstance(error, UnknownFormat):
            return error
        try:
            error.delay()
        except ValueError as broken:
            return broken
        return None

    def _keyless(
        self, record: Record, rows: Rows, alone: list[Record], events: list[Record]
    ) -> None:
        if record.error() is not None:
            events.append(record)
            return
        if self._nulls == "any":
            alone.append(record)
        else:
            self._route_null(record, rows)

    def _undecodable(
        self,
        record: Record,
        error: Exception,
        rows: Rows,
        alone: list[Record],
        events: list[Record],
    ) -> None:
        if record.error() is not None:
            events.append(record)
            return
        reason = str(error)
        if not isinstance(error, Undecodable | UnknownFormat):
            reason = f"{type(error).__name__}: {reason}"
        self.refused.append(UnreadableKey(record, reason))
        if self._undecodable_is_null:
            self._keyless(record, rows, alone, events)

    def _cannot_now(self, record: Record, error: Retry, events: list[Record]) -> None:
        if record.error() is not None:
            events.append(record)
        else:
            partition = TopicPartition(record.topic(), record.partition())
            self.unread[partition] = UnreadableTail([record], error)

    def _not_behind_unread(self, records: Iterable[Record]) -> list[Record]:
        """Hold back the records behind an unread one of their partition; they may share its key."""
        passed = []
        for record in records:
            behind = self.unread.get(TopicPartition(record.topic(), record.partition()))
            if behind is None or record.error() is not None:
                passed.append(record)
            else:
                behind.records.append(record)
        return passed

    def crowded(self) -> bool:
        """Return whether most of the kept keys must belong to settled records, by their number."""
        return self._kept.crowded()

    def keep(self, strays: Iterable[Record]) -> None:
        """Forget all keys but those of these records and of chunks that are still alive."""
        self._kept.keep(map(_itself, strays))

    def knows(self, record: Record) -> bool:
        """Return whether the key of a held record is known."""
        return self._kept.knows(_itself(record))


def _itself(record: Record) -> Record:
    return record.raw if isinstance(record, AsItCame) else record


def of_length(key_of: KeyOf | None, length: int) -> KeyOf:
    """Return a key function for which a key of any other length is undecodable.

    ``key_of`` is None for the record's own key.
    """
    read: KeyOf = methodcaller("key") if key_of is None else key_of

    def key(record: Record) -> bytes | None:
        found = read(record)
        if found is not None and len(found) != length:
            raise Undecodable(f"the key has {len(found)} bytes, and has to have {length}")
        return found

    return key
