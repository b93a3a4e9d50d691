"""A group-less reader of partition logs between two positions.

It assigns partitions and does not subscribe, so no group is involved and nothing on the cluster
changes. The end offsets are those at the start of the reading. A partition is done at a position at
or beyond its end. Transaction markers may follow the last record: they are offsets without a
record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.bounds import (
    Positions,
    ReadingBound,
    ask_at,
    ask_logs,
    meant,
    positions,
)
from kafka_keyshared.client.connection_log import OutageLog
from kafka_keyshared.client.port import LogBounds, refused_right
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.client.safe_callbacks import in_turn, shielded
from kafka_keyshared.client.silence_log import Silence
from kafka_keyshared.client.standalone import READ_ONLY, address_of, outsider, polled
from kafka_keyshared.client.topics import not_allowed, partitions_of, unreadable
from kafka_keyshared.core.offsets.commit import AUTHORIZATION_TIMEOUT
from kafka_keyshared.errors import BrokerUnavailableError, KeySharedError, TopicMissingError
from kafka_keyshared.model import Record, TopicPartition, in_words, partition_of, some

CHUNK = 10_000
LOOK_EVERY = 10.0
"""Seconds between two checks for missing topics and added partitions."""

MISSED_LOOKS = 3
"""Number of consecutive checks without the topic after which it counts as deleted."""

REFUSED_SAY_EVERY = 60.0
"""Seconds between two lines about a topic whose READ right is refused."""

_REASONS_KEPT = 20

_SETTINGS: Mapping[str, Any] = {
    **READ_ONLY,
    # The reader chooses every position. The client would skip offsets silently.
    "auto.offset.reset": "error",
    # There is no group that a slow caller could block.
    "max.poll.interval.ms": 86_400_000,
    "statistics.interval.ms": 0,
}
_STRANGER = {"group.id": "keyshared-read"}


class LogReader:
    """Reads partitions, for use by one thread. ``tell`` receives the lines for a person.

    ``bounds`` are where to begin and where to end. An end of None means that the reading goes on.
    It then also reads added partitions, from their start.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        bounds: tuple[ReadingBound, ReadingBound | None],
        tell: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._conf = conf
        self._topics = list(topics)
        self._start, self._until = bounds
        self._tell = tell
        self._clock = clock
        self._reasons: list[str] = []
        self._ended: BaseException | None = None
        self._outages = OutageLog(
            self._answers,
            clock,
            tell=lambda _level, text: tell(text),
            meanwhile="they are tried again and again",
        )
        self._consumer: Consumer | None = None
        # The partitions being read, in the client's type; and the end of each, if it has one.
        self._assigned: dict[TopicPartition, ClientPartition] = {}
        self._ends: Positions = {}
        self._known: set[TopicPartition] = set()
        self._positions: Positions = {}
        # Partitions whose next offset no longer exists, until their log bounds are queried.
        self._astray: set[TopicPartition] = set()
        self._look_at = clock() + LOOK_EVERY
        self._missed = 0
        # Topics that have delivered something. Those of them that are refused now, and since when.
        # When to log that again.
        self._came: set[str] = set()
        self._refused: dict[str, float] = {}
        self._refused_tell_at = 0.0

    # --- begin and end ---

    def open(self) -> Positions:
        """Query the logs and begin to read. Return the start offset of each partition.

        Raises :class:`~kafka_keyshared.errors.BrokerUnavailableError` when no broker answers,
        :class:`~kafka_keyshared.errors.TopicMissingError` for a topic that does not exist and
        :class:`~kafka_keyshared.errors.ConfigError` for bounds that have no meaning in these logs.
        """
        require_broker(self._conf)
        own = {**_STRANGER, **self._conf, **_SETTINGS}
        own.pop("group.instance.id", None)
        heard: Callable[[KafkaError], None] = self._heard
        if callable(users := own.get("error_cb")):
            heard = in_turn(heard, shielded(users, "error_cb", self._end))
        consumer = self._consumer = outsider(own, self._reasons, heard)
        there = partitions_of(consumer, self._topics)
        partitions = meant(there, self._start, self._until)
        logs = ask_logs(consumer, partitions)
        at = ask_at(consumer, logs)
        starts = positions(self._start, logs, at)
        for partition, begin in starts.items():
            if begin < (first := logs[partition].start):
                self._skipped(partition, begin, first)
                starts[partition] = first
        if self._until is not None:
            self._ends = {each: log.end for each, log in logs.items()}
            self._ends |= positions(self._until, logs, at)
        self._silence = Silence(address_of(self._conf), self._reasons, self._tell, self._clock)
        self._known = set(there)
        self._read({each: at for each, at in starts.items() if at < self._ends.get(each, at + 1)})
        return starts

    def close(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    @property
    def done(self) -> bool:
        """Whether everything up to the end has been read."""
        return self._until is not None and not self._assigned

    def _end(self, error: BaseException) -> None:
        self._ended = error

    # --- reading ---

    def take(self, timeout: float) -> list[Record]:
        """Return the records and client events that arrive within ``timeout`` seconds.

        The caller passes the events to :meth:`heard`. The records of a partition come in offset
        order, and none lies beyond its end.
        """
        consumer = self._open_consumer()
        if self._astray:
            self._find_again()
        if self._refused:
            self._wait_for_rights()
        first = polled(consumer, timeout)
        if self._ended is not None:
            raise self._ended
        if first is None:
            self._waited(consumer)
            return []
        batch: list[Any] = [first, *consumer.consume(CHUNK, 0)]
        if self._until is None:
            self._outages.look()
            self._look(consumer)
        else:
            self._silence.came()
        return self._within(batch) if self._advance(consumer) else batch

    def heard(self, events: Sequence[Record]) -> None:
        """Act on client events.

        The reader retries a refused topic that has delivered records before. The right may come
        back, as in a group (:mod:`kafka_keyshared.runtime.rights`).

        Raises :class:`ConfigError` when a topic may not be read, :class:`TopicMissingError` when it
        was deleted and :class:`KeySharedError` when its log was replaced.
        """
        for event in events:
            error, partition = event.error(), partition_of(event)
            if error.code() == KafkaError._PARTITION_EOF:
                continue  # :meth:`_advance` has read the moved position
            if error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._astray.add(partition)
                self._find_again()
            elif refused_right(error) is not None and partition.topic in self._came:
                if not self._refused:
                    self._refused_tell_at = self._clock()
                self._refused.setdefault(partition.topic, self._clock())
                self._reasons.append(error.str())
            elif (cause := unreadable(error, partition.topic)) is not None:
                raise cause
            else:
                self._reasons.append(error.str())

    def _open_consumer(self) -> Consumer:
        if self._consumer is None:
            raise KeySharedError("this reader is closed")
        return self._consumer

    def _read(self, starts: Mapping[TopicPartition, int]) -> None:
        found = [ClientPartition(*each, at) for each, at in starts.items()]
        self._positions |= starts
        self._assigned |= {each: ClientPartition(*each) for each in starts}
        if found:
            self._open_consumer().incremental_assign(found)

    def _finish(self, partitions: Sequence[TopicPartition]) -> None:
        gone = [self._assigned.pop(each) for each in partitions if each in self._assigned]
        if gone:
            self._open_consumer().incremental_unassign(gone)

    def _advance(self, consumer: Consumer) -> bool:
        """Update the positions. Return whether a partition has gone beyond its end.

        One position query per batch replaces a check of every record's offset.
        """
        if not self._assigned:
            return True  # the remaining records belong to partitions that are done
        beyond, done = False, []
        answers = consumer.position(list(self._assigned.values()))
        for partition, answer in zip(self._assigned, answers, strict=True):
            if answer.offset < 0:
                continue
            if answer.offset > self._positions[partition]:
                self._came.add(partition.topic)
                if self._refused.pop(partition.topic, None) is not None:
                    self._tell(f"topic {partition.topic}: no longer refused")
            self._positions[partition] = answer.offset
            if self._until is not None and answer.offset >= (end := self._ends[partition]):
                done.append(partition)
                beyond = beyond or answer.offset > end
        self._finish(done)
        return beyond

    def _within(self, batch: list[Record]) -> list[Record]:
        ends = self._ends
        return [
            each
            for each in batch
            if each.error() is not None or each.offset() < ends.get(partition_of(each), 0)
        ]

    # --- events during the reading ---

    def _wait_for_rights(self) -> None:
        """Report refused topics once a minute. Raise when a refusal has lasted too long."""
        now = self._clock()
        for topic, since in [*self._refused.items()]:
            if now - since < AUTHORIZATION_TIMEOUT:
                continue
            if self._something_to_read(topic):
                raise not_allowed(topic)
            del self._refused[topic]  # nothing to read, so nothing shows that it is still refused
        if not self._refused:
            return
        topics = sorted(self._refused)
        if now >= self._refused_tell_at:
            self._refused_tell_at = now + REFUSED_SAY_EVERY
            names = ", ".join(topics)
            self._tell(
                f"topic {names}: READ refused; the client asks again for up to "
                f"{in_words(AUTHORIZATION_TIMEOUT)}. Grant READ on topic {names} to this user"
            )

    def _something_to_read(self, topic: str) -> bool:
        partitions = [each for each in self._assigned if each.topic == topic]
        try:
            logs = ask_logs(self._open_consumer(), partitions)
        except BrokerUnavailableError as error:  # brokers that are down are reported elsewhere
            self._reasons.append(str(error))
            return False
        return any(logs[each].end > self._positions[each] for each in partitions)

    def _waited(self, consumer: Consumer) -> None:
        del self._reasons[:-_REASONS_KEPT]
        if self._until is not None:
            self._silence.waited()
        else:
            self._outages.look()
        self._look(consumer)

    def _heard(self, error: KafkaError) -> None:
        """Take a client error. Only "all brokers down" is reported here.

        With an end position, the silence check reports missing answers instead.
        """
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._outages.last_error = error.str()
        elif self._until is None:
            self._outages.heard(error)

    def _answers(self, timeout: float) -> bool:
        try:
            self._open_consumer().list_topics(timeout=timeout)
        except KafkaException:
            return False
        return True

    def _look(self, consumer: Consumer) -> None:
        """Check that the topics still exist, and read added partitions.

        Those are read from their start, as all their records are new. Raises
        :class:`TopicMissingError` when a topic was deleted, which the client does not report. One
        failed check is not enough, because a broker that has just restarted may not know all topics
        yet.
        """
        if (now := self._clock()) < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        try:
            there = partitions_of(consumer, self._topics)
            grows = self._until is None and self._start.everywhere is not None
            new = [each for each in there if grows and each not in self._known]
            starts = {each: log.start for each, log in ask_logs(consumer, new).items()}
        except TopicMissingError:
            self._missed += 1
            if self._missed >= MISSED_LOOKS:
                raise
        except KeySharedError as error:  # no answer, which is reported elsewhere
            self._reasons.append(str(error))
        else:
            self._missed = 0
            if new:
                self._tell(f"partitions were added: {some(new)}; they are read from their start")
                self._known.update(new)
                self._read(starts)

    def _find_again(self) -> None:
        """Continue at the log start where the next records to read were deleted."""
        consumer = self._open_consumer()
        for partition in sorted(self._astray & self._assigned.keys()):
            try:
                log = ask_logs(consumer, [partition])[partition]
            except BrokerUnavailableError as error:  # retried before the next wait
                self._reasons.append(str(error))
                continue
            self._go_on(partition, log)
            self._astray.discard(partition)

    def _go_on(self, partition: TopicPartition, log: LogBounds) -> None:
        was = self._positions[partition]
        if was > log.end:
            raise KeySharedError(
                f"{partition} ends at {log.end}, before offset {was} that was to be read next: it "
                "was cut off, or deleted and made anew; read it again"
            )
        now = max(was, log.start)
        end = self._ends.get(partition)
        if now > was:
            self._skipped(partition, was, now if end is None else min(now, end))
        self._finish([partition])
        if end is None or now < end:
            self._read({partition: now})

    def _skipped(self, partition: TopicPartition, first: int, end: int) -> None:
        self._tell(
            f"{partition}: offsets {first} to {end - 1} are no longer there; reading on behind them"
        )
