"""The assignment of records to Spark tasks, one task for each worker.

A record's slot is computed from its key as in pods (:mod:`kafka_keyshared.hashing`). The routing
assigns the slot to the same worker as in pods. However, Spark distributes rows by its own hash.
Therefore each worker has a *place*: the smallest number whose Spark hash is the worker's number.
Rows are repartitioned by their place into as many partitions as there are workers. Each partition
then has the rows of one worker. The task asserts it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import replace
from itertools import count

import mmh3

from kafka_keyshared.core.keys.extraction import KeyOf, of_length
from kafka_keyshared.core.records.lane_identity import NULL_KEY
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SLOT_KEY_BYTES
from kafka_keyshared.model import Record, Undecodable

SPARK_SEED = 42
"""The seed of Spark's ``hash``, by which it repartitions."""


def spark_partition(value: int, partitions: int) -> int:
    """Return the partition into which Spark puts a row by this 32-bit integer.

    The result is murmur3 (x86, 32 bits) of its four bytes, little-endian, modulo the number of
    partitions, and never negative.
    """
    return mmh3.hash(struct.pack("<i", value), SPARK_SEED) % partitions


def place_numbers(workers: int) -> tuple[int, ...]:
    """Return the place of each worker, the number that Spark maps to the worker's partition."""
    found: dict[int, int] = {}
    for value in count():
        found.setdefault(spark_partition(value, workers), value)
        if len(found) == workers:
            return tuple(found[worker] for worker in range(workers))
    raise AssertionError("count() does not end")


class RecordPlacement:
    """The places of the records of a subscription. It is small, and is sent to every executor.

    ``table`` has the place of each slot, ``numbers`` that of each worker. ``nulls`` is the place of
    the one lane of null keys, or None when null keys go to the workers in turn. ``whole`` means
    that one worker gets all records, ``turns`` that all records go to the workers in turn.

    Raises :class:`ConfigError` for a routing with filters or with slots that have no worker. Pods
    hold the records declared for an absent worker, and a batch would never end.
    """

    def __init__(self, settings: SubscriptionSettings) -> None:
        routing = settings.routing.of(settings.workers)
        if settings.routing.declared(settings.workers) is not None or routing.uncovered():
            raise ConfigError(
                "filters, and ranges that leave slots without a worker, do not run on Spark: give "
                "every key a worker, or use `keyshared run`"
            )
        self.numbers = place_numbers(len(settings.workers))
        mode = settings.routing.mode
        self.whole = mode == "exclusive"
        self.turns = mode == "unordered"
        table = [0] * len(routing.table()) if self.turns else routing.table()
        self.table = array("i", (self.numbers[owner] for owner in table))
        self.slot_function = settings.slot_function
        one_lane = settings.null_keys == "one-lane"
        slot = SLOT_FUNCTIONS[self.slot_function]
        self.nulls = self.table[slot(NULL_KEY)] if one_lane else None

    def of(
        self,
        keys: Iterable[bytes | None],
        partitions: Iterable[int],
        offsets: Iterable[int],
    ) -> list[int]:
        """Return the places of records with these keys; None is a null key.

        Records without a key go to the workers in turn, by offset. Therefore a repeated task gets
        the same records. The same applies to records with an unreadable key, which is also given as
        None.
        """
        slot, table, numbers = SLOT_FUNCTIONS[self.slot_function], self.table, self.numbers
        nulls = self.nulls
        if self.whole:
            return [table[0] for _ in keys]
        if self.turns:
            return [numbers[offset % len(numbers)] for offset in offsets]
        known = list(keys)
        if None not in known:
            return [table[slot(key)] for key in known if key is not None]
        return [
            table[slot(key)]
            if key is not None
            else (nulls if nulls is not None else numbers[(partition + offset) % len(numbers)])
            for key, partition, offset in zip(known, partitions, offsets, strict=True)
        ]


def derived_key(settings: SubscriptionSettings) -> KeyOf | None:
    """Return the function that derives keys; None when records go by their own key."""
    if settings.routing.mode in ("exclusive", "unordered"):
        return None
    if settings.slot_function in SLOT_KEY_BYTES:
        return of_length(settings.key_of, SLOT_KEY_BYTES[settings.slot_function])
    return settings.key_of


def alone(
    settings: SubscriptionSettings, worker: int, key_of: KeyOf | None
) -> SubscriptionSettings:
    """Return the settings for one worker alone: its task gets only its own records.

    ``key_of`` returns the keys that were derived when the records were placed.
    """
    routing = settings.routing
    mode = routing.mode if routing.mode in ("exclusive", "unordered") else "ring"
    return replace(
        settings,
        workers=(settings.workers[worker],),
        routing=replace(routing, mode=mode, ranges={}, weights={}, filters={}),
        key_of=key_of,
        pooled=False,
        breaker=False,  # a task has to end, and its job says what has failed
        wait_on=False,
        detach_after=None,
        shards=None,
        new_workers_wait=False,
    )


class MadeKeys:
    """The keys that were derived when the records were placed.

    The key function is not called again, because a different result would break the order.
    """

    def __init__(self) -> None:
        self._known: dict[int, bytes | str | None] = {}

    def note(self, record: Record, key: bytes | None, unreadable: str | None) -> None:
        """Store the key of a coming record, or the reason why its key is unreadable."""
        self._known[id(record)] = key if unreadable is None else unreadable

    def __call__(self, record: Record) -> bytes | None:
        """Return the key, once."""
        found = self._known.pop(id(record))
        if isinstance(found, str):
            raise Undecodable(found)
        return found
