"""Results of a key function on sampled records, counted by topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat

REASONS_MAX = 20
"""Maximum number of different reasons kept for each topic."""


@dataclass(slots=True)
class TopicKeys:
    """The records of one topic: ``keyed`` have a key, and ``keyless`` have none.

    ``broken`` counts undecodable records by reason. ``unknown`` counts those that the reader cannot
    judge, and ``unread`` those that it cannot read yet.
    """

    keyed: int = 0
    keyless: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)

    @property
    def without(self) -> int:
        """Number of records without a readable key."""
        return sum(sum(each.values()) for each in (self.broken, self.unknown, self.unread))

    @property
    def mixed(self) -> bool:
        """Whether some records have a key and others have none."""
        return bool(self.keyed and self.keyless)


class KeySample:
    """Reads the keys of samples with a key function, and counts by topic."""

    def __init__(self, key_of: KeyOf) -> None:
        self._key_of = key_of
        self.topics: dict[str, TopicKeys] = {}

    def keys(self, topic: str, records: Sequence[Record]) -> list[bytes | None]:
        """Return the keys of one topic's records, without the unreadable ones."""
        return [*self._keys(self.topics.setdefault(topic, TopicKeys()), records)]

    def _keys(self, counts: TopicKeys, records: Sequence[Record]) -> Iterator[bytes | None]:
        for record in records:
            try:
                key = self._key_of(record)
            except UnknownFormat as error:
                _count(counts.unknown, error.reason)
            except Retry as error:
                why = error.__cause__ or error
                _count(counts.unread, f"{type(why).__name__}: {why}")
            except Undecodable as error:
                _count(counts.broken, str(error))
            except Exception as error:  # noqa: BLE001 - a key function may raise anything
                _count(counts.broken, f"{type(error).__name__}: {error}")
            else:
                counts.keyed += key is not None
                counts.keyless += key is None
                yield key


def _count(reasons: Counter[str], reason: str) -> None:
    if reason not in reasons and len(reasons) >= REASONS_MAX:
        reason = "other reasons"
    reasons[reason] += 1
