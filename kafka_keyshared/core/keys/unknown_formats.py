"""Judgement of records whose format the key reader does not know.

Either the record is broken, or the reader's setting is wrong. One record alone does not show which,
so it is compared with the records around it. **A record is broken only if it is an exception:
others of its topic can be read, and no other is of its kind.** Otherwise the reader is at fault.
The partition is then held until the setting, the registry or the producer is corrected.

The comparison covers the records received behind it in its partition, at most :data:`LOOK_AHEAD`.
It also covers the kinds found broken within the last :data:`LATELY` records of the subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from kafka_keyshared.model import Record, Retry, TopicPartition, UnknownFormat

LOOK_AHEAD = 50
"""Maximum records to read behind the judged one."""

ENOUGH = 20
"""Readable records, with none of its kind among them, that make a record an exception."""

LATELY = 1_000
"""A kind that occurs again within this number of records is not an exception."""

NOTHING_BEHIND = 60.0
"""Seconds until a record is judged although no record has been received behind it."""

KINDS_MAX = 100
"""Maximum number of broken kinds to remember."""


class Around(NamedTuple):
    """The records behind one: the number read, the number of its kind, whether there are any."""

    read: int
    alike: int
    any: bool


def look_around(
    key_of: Callable[[Record], object], error: UnknownFormat, behind: Iterable[Record]
) -> Around:
    """Read the records behind the one that raised the error, until the answer is known."""
    read = alike = 0
    found = False
    for record in islice(behind, LOOK_AHEAD):
        if record.error() is not None:
            continue
        found = True
        other = _error_of(key_of, record)
        if other is None:
            read += record.value() is not None  # a tombstone does not show the format
            if read >= (1 if error.vague else ENOUGH):
                break
        elif isinstance(other, UnknownFormat):
            alike += other.kind == error.kind
            if alike and not error.vague:
                break
        elif isinstance(other, Retry):
            break  # the registry is away, and every record would query it
    return Around(read, alike, found)


def _error_of(key_of: Callable[[Record], object], record: Record) -> Exception | None:
    try:
        key_of(record)
    except Exception as error:  # noqa: BLE001 - a key function may raise anything
        return error
    return None


def is_broken(
    error: UnknownFormat, around: Around, *, read_before: bool, waited: float, seen: bool = False
) -> bool:
    """Return whether the record is at fault, and not its reader.

    ``read_before`` says that records of its topic were read. ``waited`` is how many seconds it has
    been held. ``seen`` says that a record of its kind was found broken recently.
    """
    if error.vague:
        late = not around.any and waited >= NOTHING_BEHIND
        return bool(around.read) or read_before or late
    if around.alike or seen:
        return False
    if error.patience > 0:
        return False
    return bool(around.read) if around.any else read_before and waited >= NOTHING_BEHIND


class Judge:
    """The state for judging records of one subscription: topics read and kinds found broken.

    Times are monotonic seconds. ``topics_read`` are topics with at least one readable record.
    """

    def __init__(self, key_of: Callable[[Record], object]) -> None:
        self._key_of = key_of
        self.topics_read: set[str] = set()
        # By topic and kind, the number of records received when a record was found broken.
        self._broken_at: dict[tuple[str, str], int] = {}
        # By partition, the offset of the held record and the time since when it is held.
        self._held: dict[TopicPartition, tuple[int, float]] = {}

    def finds_broken(
        self, error: UnknownFormat, records: Sequence[Record], now: float, received: int
    ) -> bool:
        """Say whether the first of these records of a partition, which raised the error, is broken.

        ``received`` is how many records the subscription has ever received.
        """
        record = records[0]
        partition, kind = TopicPartition(record.topic(), record.partition()), error.kind
        offset, since = self._held.get(partition, (-1, now))
        if offset != record.offset():
            since = now
        at = self._broken_at.get((partition.topic, kind))
        broken = is_broken(
            error,
            look_around(self._key_of, error, islice(records, 1, None)),
            read_before=partition.topic in self.topics_read,
            waited=now - since,
            seen=at is not None and received - at < LATELY,
        )
        if broken:
            self._held.pop(partition, None)
            self._note(partition.topic, kind, received)
        else:
            self._held[partition] = record.offset(), since
        return broken

    def _note(self, topic: str, kind: str, received: int) -> None:
        self._broken_at.pop((topic, kind), None)
        while len(self._broken_at) >= KINDS_MAX:
            del self._broken_at[next(iter(self._broken_at))]
        self._broken_at[topic, kind] = received

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the held records of these partitions."""
        for partition in partitions:
            self._held.pop(partition, None)
