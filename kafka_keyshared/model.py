"""The values that every layer shares: records, positions, verdicts.

Nothing here depends on Kafka's client, threads or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, TypeAlias


class TopicPartition(NamedTuple):
    """A partition of a topic; the unit of assignment, position and commit."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Record(Protocol):
    """The record that a handler receives: the read methods of ``confluent_kafka.Message``.

    A worker gets the client's own message object, so nothing is copied per record.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> list[tuple[str, Any]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def leader_epoch(self) -> int | None: ...
    def error(self) -> Any: ...
    def __len__(self) -> int: ...


def name_of(record: Record) -> str:
    """Return the record's topic, partition and offset, as the log names it."""
    return f"{record.topic()}-{record.partition()}@{record.offset()}"


def names_of(records: Iterable[Record]) -> list[str]:
    """Return the records as the log names them."""
    return [name_of(each) for each in records]


class About(NamedTuple):
    """The one record that a log line is about; ``key`` is None where it is not known."""

    partition: TopicPartition
    offset: int
    key: object = None


def named_key(key: object) -> str:
    """Return a key as text, cut to length; say so for a record without one."""
    return "no key" if key is None else f"key {key!r:.80}"


def counted(count: int, what: str) -> str:
    """Return a count with its noun: ``1 topic``, ``2,000 topics``, ``2 processes``."""
    return f"{count:,} {what}" + ("" if count == 1 else "es" if what.endswith("s") else "s")


def does(count: int, verb: str) -> str:
    """Return the verb for a count: one ``waits``, several ``wait``."""
    return f"{verb}s" if count == 1 else verb


def in_words(seconds: float) -> str:
    """Return a duration as text: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def some(names: Iterable[object], most: int = 5, *, none: str = "none") -> str:
    """Return the first few names, and the number of further ones."""
    every = [str(each) for each in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return (", ".join(every[:most]) or none) + more


def partition_of(record: Record) -> TopicPartition:
    """Return the partition that the record came from."""
    return topic_partition(record.topic(), record.partition())


@lru_cache(maxsize=10_000)
def topic_partition(topic: str, partition: int) -> TopicPartition:
    """Return that partition, cached: it takes half as long as a new one."""
    return TopicPartition(topic, partition)


Coordinates: TypeAlias = tuple[TopicPartition, int]
"""The identity of a record: its partition, and its offset there."""


def coordinates_of(record: Record) -> Coordinates:
    """Return the identity of a record that no handler has seen."""
    return partition_of(record), record.offset()


class Verdict(Exception):  # noqa: N818 - a decision, not an error; raising it is one of two ways
    """The decision of a handler about its record. It may be returned or raised.

    Returning ``None`` means :class:`Ack`. Any other exception is a failed attempt.
    """


class Ack(Verdict):
    """The record is done."""


class Drop(Verdict):
    """The record is given up on purpose: settled, counted, not archived."""


RETRY_AFTER_MAX = 365 * 24 * 3600
"""Maximum in seconds. Longer delays are treated as mistakes, such as a time instead of a delay."""


class Retry(Verdict):
    """The attempt failed: run the record again, with its lane closed until then.

    ``after`` is the delay in seconds, from 0 to a year, as any real number (``Decimal`` too). None
    takes the subscription's back-off. With ``attempt=False`` the delay counts as no attempt,
    however often, and ``after`` is required. Raises :class:`ValueError` for anything else.
    """

    after: float | None = None  # also of a subclass that does not call this class's __init__
    attempt: bool = True

    def __init__(self, after: float | None = None, *, attempt: bool = True) -> None:
        super().__init__(after)
        self.after = after
        self.attempt = attempt
        self.delay()

    def __str__(self) -> str:
        """Return the text shown where errors are shown; a subclass may have its own."""
        if self.args not in ((), (self.after,)):
            return super().__str__()
        if self.after is None:
            return "to be tried again after the back-off"
        return f"to be tried again after {self.after} s"

    def delay(self) -> float | None:
        """Return the delay in seconds; raise :class:`ValueError` for an invalid ``after``.

        It is checked at each use, because a subclass may have set anything.
        """
        after = self.after
        if after is None:
            if not self.attempt:
                raise ValueError("Retry(attempt=False) needs a delay: pass after=SECONDS")
            return None
        try:
            seconds = float(after) if hasattr(type(after), "__float__") else -1.0
        except (ValueError, OverflowError):
            seconds = -1.0
        if not 0 <= seconds <= RETRY_AFTER_MAX:
            raise ValueError(
                f"Retry(after={_shown(after)}): give the delay in seconds, a number from 0 to "
                f"{RETRY_AFTER_MAX:,} (a year)"
            )
        return seconds


class UnknownFormat(Retry):
    """A key reader does not know the format of a record's value and cannot judge it.

    The record's partition is held. The record counts as undecodable only where it is an exception
    among records that can be read (:mod:`kafka_keyshared.core.keys.unknown_formats`).

    - ``kind`` names the format: records of the same format have the same kind.
    - ``reason`` names the format that was seen and the expected one.
    - ``after`` is the number of seconds until the key is read again.
    - ``patience`` is the number of seconds from now in which the record is not judged, since the
      format may become known.
    - ``vague`` says that the kind stands for any bytes that are not as expected.
    """

    def __init__(
        self,
        kind: str,
        reason: str,
        after: float | None = None,
        *,
        patience: float = 0.0,
        vague: bool = False,
    ) -> None:
        super().__init__(after)
        self.kind = kind
        self.reason = reason
        self.patience = patience
        self.vague = vague

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason

    def __reduce__(self) -> Any:
        made = partial(UnknownFormat, patience=self.patience, vague=self.vague)
        return made, (self.kind, self.reason, self.after)


class Attempt(NamedTuple):
    """An attempt of a record, as :func:`kafka_keyshared.attempt_of` tells its handler.

    ``number`` counts from 1. ``of`` is the maximum number of attempts, None for no limit. Of the
    failed attempts before this one, ``first_failed`` is when the first one failed, in seconds since
    1970, and ``last_error`` is the error of the last one. Both are empty where an earlier owner of
    the partition has made these attempts.
    """

    number: int = 1
    of: int | None = None
    first_failed: float | None = None
    last_error: str = ""


class DeadLetter(Verdict):
    """The record goes to the dead-letter topic at once, without further attempts."""

    reason: str = ""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Output:
    """A record that a handler emits. The handler returns one, or a list of them.

    ``value`` and ``key`` are bytes, text (encoded as UTF-8) or None. ``headers`` are pairs of a
    name and such a value. The option ``--outputs`` of ``keyshared run`` and ``keyshared spark run``
    says where outputs go. Raises :class:`TypeError` for anything else.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | str | None]] = ()

    def __post_init__(self) -> None:
        """Encode texts here, so that an unwritable output is the handler's failure."""
        made = [(name.encode().decode(), _as_bytes(value)) for name, value in self.headers]
        object.__setattr__(self, "value", _as_bytes(self.value))
        object.__setattr__(self, "key", _as_bytes(self.key))
        object.__setattr__(self, "headers", tuple(made))


def _as_bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8")
    raise TypeError(f"an Output takes bytes, text or None, and {_shown(value)} is neither")


def _shown(value: object) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # an int of thousands of digits, which Python does not print
        return f"<{type(value).__name__} too large to show>"


class Undecodable(Exception):  # noqa: N818 - describes a record, raised by the reader of its key
    """The key of this record cannot be read, and never will be; ``reason`` says why.

    Raised by a key function. The policy ``undecodable`` decides what happens to the record.
    """
