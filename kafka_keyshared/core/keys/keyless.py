"""Counts by topic of records without a key from the key function.

A topic that mixes records with and without a key loses its order without any error. A delete of a
change event has no key under ``json:/payload/after/id``. It may run before the update in front of
it. The first such mixture of each topic is logged, and so is a topic without a single key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.contract.facts import KeysMissing
from kafka_keyshared.model import Record

ALL_KEYLESS = 1_000
"""Keyless records of a topic without any keyed record that trigger a log line."""


class Keyless:
    """Keyless records of one subscription, counted only in chunks that have any.

    ``counts`` has the records without a key by topic. ``one_lane`` says that they share a lane of
    their own.
    """

    def __init__(self, *, one_lane: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self.news = False
        self._one_lane = one_lane
        self._keyed: set[str] = set()
        self._told: set[str] = set()

    def note(
        self, records: Sequence[Record], keys: Sequence[bytes | None], keyless: Sequence[Record]
    ) -> None:
        """Count a chunk: its records, the key of each, and the ``keyless`` records."""
        if records and keys[0] is not None:
            self._keyed.add(records[0].topic())
        if not keyless and self._told.issuperset(self.counts):
            return
        self.counts.update([each.topic() for each in keyless if each.error() is None])
        if not self._told.union(self._keyed).issuperset(self.counts):
            gone = set(map(id, keyless))
            self._keyed.update(
                each.topic()
                for each, key in zip(records, keys, strict=True)
                if key is not None and id(each) not in gone
            )
        self.news = any(self._to_tell())

    def _to_tell(self) -> Iterator[str]:
        for topic, count in self.counts.items():
            if topic not in self._told and (topic in self._keyed or count >= ALL_KEYLESS):
                yield topic

    def tell(self) -> Iterator[Notice]:
        """Yield the notices that are due, one for each topic."""
        for topic in [*self._to_tell()]:
            self._told.add(topic)
            yield Notice(
                KeysMissing(topic, self.counts[topic], topic in self._keyed, self._one_lane)
            )
        self.news = False
