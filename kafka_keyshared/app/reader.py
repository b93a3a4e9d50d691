"""``Reader``: reads the records of some slots without a group."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Self, TypeAlias

from kafka_keyshared.app.reader_bounds import bound_of
from kafka_keyshared.client.bounds import ReadingBound, check_pair
from kafka_keyshared.client.log_reader import LogReader
from kafka_keyshared.clock import Clock
from kafka_keyshared.config import client_conf, make_options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.core.keys.extraction import KeyOf, UnreadableKey
from kafka_keyshared.core.keys.selection import SelectionCounts, SlotSelection
from kafka_keyshared.core.routing.slot_ranges import check_ranges, parse_ranges
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.hashing import SLOT_FUNCTIONS, SlotFunction
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import Record, Retry, TopicPartition, UnknownFormat, name_of
from kafka_keyshared.platform.green import refuse_green_threads

log = log_of("kafka_keyshared.reader")

WAIT = 0.5
"""Longest wait in seconds, after which :meth:`Reader.stop` takes effect."""

KEY_AGAIN_AFTER = 1.0
"""Seconds until an unreadable key is tried again, unless its function gives the delay."""

GivenBound: TypeAlias = (
    Literal["earliest", "latest"]
    | int
    | datetime
    | Mapping[int, int]
    | Mapping[tuple[str, int], int]
    | ReadingBound
)
"""A start or an end of the reading.

- A word.
- A number below 0: that many offsets before the end.
- A time: the first record at that time or later.
- Offsets by partition. Then only these partitions are read.
"""


class Reader:
    """Reads the records whose keys lie in some slots, in order within a partition.

    It joins no group, commits nothing and changes nothing on the cluster. ``conf`` is the dict that
    ``confluent_kafka.Consumer`` takes; it needs no ``group.id``. ``ranges`` are pairs of a first
    and a last slot, or text such as ``"0-10000,20001-30000"``. ``slot_function``, ``key`` and
    ``key_schema`` mean the same as in :class:`~kafka_keyshared.KeyShared`, so that the slots agree.

    Reading stops before ``until``. Ends of logs are those at the start of the reading. With None it
    goes on until :meth:`stop`. Records without a key are left out unless ``keyless`` is set.
    Records whose key cannot be read are left out and logged.

    Problems are logged, or passed to ``tell``. Raises :class:`ConfigError` for settings that cannot
    work. Use it from one thread, except for :meth:`stop`. Example::

        with Reader({"bootstrap.servers": "localhost:9092"}, ["orders"], [(0, 10_000)],
                    until="latest") as reader:
            for record in reader:
                print(record.key(), record.value())
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        ranges: str | Iterable[tuple[int, int]],
        *,
        start: GivenBound = "earliest",
        until: GivenBound | None = None,
        slot_function: SlotFunction = "mmh3",
        key: str | Callable[[Any], Any] = "record",
        key_schema: str | None = None,
        keyless: bool = False,
        tell: Callable[[str], None] = log.warning,
    ) -> None:
        refuse_green_threads("Reader()")
        if isinstance(topics, str) or not topics:
            raise ConfigError(f"topics={topics!r}: give a list with at least one topic name")
        parsed = parse_ranges(ranges) if isinstance(ranges, str) else check_ranges(ranges)
        self._stopping = threading.Event()
        self._seldom = Seldom(log)
        self._selection = SlotSelection(
            parsed,
            SLOT_FUNCTIONS[make_options({"slot_function": slot_function}).slot_function],
            self._patient(_key_function(key, key_schema)),
            keyless=keyless,
            hold=self._hold,
        )
        clock = Clock()
        now = clock.wall()
        begin = bound_of("start", start, topics, now)
        end = None if until is None else bound_of("until", until, topics, now)
        check_pair(begin, end)
        named = client_conf({"group.id": "keyshared-read", **conf})
        self._logs = LogReader(named, topics, (begin, end), tell, clock.monotonic)
        self._opened = self._closed = False
        self._failure: KeySharedError | None = None

    @property
    def counts(self) -> SelectionCounts:
        """How many records were read so far, and how many of them were chosen or left out why."""
        return self._selection.counts

    @property
    def done(self) -> bool:
        """Whether the reading is over: all records were read, or the reader was stopped."""
        if self._failure is not None:
            return False  # the error is still to be raised
        return self._closed or self._stopping.is_set() or (self._opened and self._logs.done)

    def key(self, record: Record) -> bytes | None:
        """Return the routing key of a record."""
        return self._selection.key(record)

    def slot(self, record: Record) -> int | None:
        """Return the slot of a record's key, None where it has none."""
        key = self._selection.key(record)
        return None if key is None else self._selection.slot(key)

    def open(self) -> dict[TopicPartition, int]:
        """Start reading, if not started yet; return the start offset of each partition.

        Raises:

        - :class:`~kafka_keyshared.errors.BrokerUnavailableError` when no broker answers;
        - :class:`~kafka_keyshared.errors.TopicMissingError` for a missing topic;
        - :class:`ConfigError` for a start or an end that is not valid there.
        """
        if not self._opened:
            refuse_green_threads("Reader.open()")
            try:
                self._starts = self._logs.open()
            except BaseException:
                self.close()
                raise
            self._opened = True
        return dict(self._starts)

    def read(self, timeout: float = WAIT) -> list[Record]:
        """Return the records received within ``timeout`` seconds, possibly none.

        They are the client's own messages. :attr:`done` says whether more may come.
        """
        if self._closed:
            return []
        self.open()
        if self._failure is not None:
            raise self._failure
        if self.done:
            return []
        batch = self._logs.take(timeout)
        if not batch:
            return []
        try:
            found = self._selection.choose(batch)
        except Retry:  # stopped while a key could not be read
            return []
        if found.refused:
            self._tell_refused(found.refused)
        try:
            self._logs.heard(found.events)
        except KeySharedError as error:
            if not found.records:
                raise
            self._failure = error  # records that came before it are returned first
        return found.records

    def __iter__(self) -> Iterator[Record]:
        """Yield the records one by one."""
        while not self.done:
            yield from self.read()

    def stop(self) -> None:
        """End the reading within half a second, from any thread."""
        self._stopping.set()

    def close(self) -> None:
        """Close the connections. A closed reader yields no records."""
        self._closed, self._failure = True, None
        self._logs.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _patient(self, key_of: KeyOf | None) -> KeyOf | None:
        """Return the key function wrapped to wait while a key cannot be read."""
        if key_of is None or getattr(key_of, "of_all", None) is not None:
            return key_of

        def patient(record: Record) -> bytes | None:
            while True:
                try:
                    return key_of(record)
                except UnknownFormat:
                    raise  # the records around it show the cause
                except Retry as error:
                    self._hold(record, error)

        return patient

    def _hold(self, record: Record, error: Retry) -> float:
        """Wait at a record whose key cannot be read yet; return the seconds waited.

        Raises the error when the reader was stopped.
        """
        delay = error.delay()
        why = error.reason if isinstance(error, UnknownFormat) else error.__cause__
        self._seldom.warning(
            "key",
            f"{name_of(record)}: its key cannot be read yet "
            f"({why or 'its function says so'}); the read is retried",
        )
        seconds = KEY_AGAIN_AFTER if delay is None else delay
        if self._stopping.wait(seconds):
            raise error
        return seconds

    def _tell_refused(self, refused: Sequence[UnreadableKey]) -> None:
        first = refused[0]
        others = f", and {len(refused) - 1} more of the same batch" if len(refused) > 1 else ""
        self._seldom.warning(
            "undecodable",
            f"{name_of(first.record)} is left out: its key cannot be read: {first.reason}{others}",
        )


def _key_function(key: Any, schema: str | None) -> KeyOf | None:
    if callable(key) and schema is None:
        # it imports Avro, which most programs do not need
        from kafka_keyshared.config.keys import key_function

        return key_function(key)
    return subscription_settings(make_options({"key": key, "key_schema": schema})).key_of
