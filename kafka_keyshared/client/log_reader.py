"""Reads logs from a position to a position: without a group, and nothing on the cluster changes.

Partitions are assigned and not subscribed to, so no group hears of it; the ends are those of the
moment when the reading began. A partition is done when a position at or beyond its end is reached:
behind its last record there may be transaction markers, which are offsets without a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.bounds import Bound, Positions, ask_at, ask_logs, meant, positions
from kafka_keyshared.client.groupless import READ_ONLY, address_of, outsider, polled
from kafka_keyshared.client.guarded import in_turn, shielded
from kafka_keyshared.client.outage import Outages
from kafka_keyshared.client.port import LogBounds, refused_right
from kafka_keyshared.client.reach import require_broker
from kafka_keyshared.client.silence import Silence
from kafka_keyshared.client.topics import not_allowed, partitions_of, unreadable
from kafka_keyshared.core.denials import AUTHORIZATION_TIMEOUT
from kafka_keyshared.errors import BrokerUnavailableError, KeySharedError, TopicMissingError
from kafka_keyshared.model import Record, TopicPartition, in_words, partition_of, some

CHUNK = 10_000
LOOK_EVERY = 10.0
"""Seconds between two looks for the topics: whether they are there, and have partitions added."""

MISSED_LOOKS = 3
"""So many looks in a row that do not find a topic mean that it is gone."""

REFUSED_SAY_EVERY = 60.0
"""Seconds between two lines about a topic that may not be read any more."""

_REASONS_KEPT = 20

_SETTINGS: Mapping[str, Any] = {
    **READ_ONLY,
    # What is read next is said by who reads, never by the client: it would skip without a word.
    "auto.offset.reset": "error",
    # There is no group that whoever is slow could hold up.
    "max.poll.interval.ms": 86_400_000,
    "statistics.interval.ms": 0,
}
_STRANGER = {"group.id": "keyshared-read"}


class LogReader:
    """Reads partitions; to be used by one thread. ``tell`` is told what a person wants to know.

    ``bounds`` are where to begin and where to end. None for the end means that it goes on, and
    reads partitions that are added, from their start.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        bounds: tuple[Bound, Bound | None],
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
        self._outages = Outages(
            self._answers,
            clock,
            tell=lambda _level, text: tell(text),
            meanwhile="they are tried again and again",
        )
        self._consumer: Consumer | None = None
        # What is read, as the client wants it named; where each ends, if it does.
        self._assigned: dict[TopicPartition, ClientPartition] = {}
        self._ends: Positions = {}
        self._known: set[TopicPartition] = set()
        self._positions: Positions = {}
        # Of which nothing is where it was to be read next, until their logs have been asked for.
        self._astray: set[TopicPartition] = set()
        self._look_at = clock() + LOOK_EVERY
        self._missed = 0
        # Topics of which something has come; those of them that may not be read, and since when;
        # when that is told again.
        self._came: set[str] = set()
        self._refused: dict[str, float] = {}
        self._refused_tell_at = 0.0

    # --- begin and end ---

    def open(self) -> Positions:
        """Ask where the logs are and begin to read; return where each partition is begun.

        Raises :class:`~kafka_keyshared.errors.BrokerUnavailableError` when no broker answers,
        :class:`~kafka_keyshared.errors.TopicMissingError` for a topic that is not there and
        :class:`~kafka_keyshared.errors.ConfigError` for bounds that mean nothing there.
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
        """Let go of the connections."""
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
        """Return what has come, after at most ``timeout`` seconds; events are among it.

        The events are to be given back to :meth:`heard`. The records of a partition come in the
        order of their offsets, and none beyond its end.
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
        """Act on events of the client.

        A topic that was read before and may not be any more is waited for: the right may come
        back, as in a group (:mod:`kafka_keyshared.owner.rights`).

        Raises :class:`ConfigError` when a topic may not be read, :class:`TopicMissingError` when
        it has gone and :class:`KeySharedError` when its log is another one.
        """
        for event in events:
            error, partition = event.error(), partition_of(event)
            if error.code() == KafkaError._PARTITION_EOF:
                continue  # it has moved the position, which was looked at
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
        """Take note of how far it is; say whether some partition has gone beyond its end.

        One question for a batch stands for a look at the offset of each record.
        """
        if not self._assigned:
            return True  # what still comes is of partitions that are done
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

    # --- what may happen meanwhile ---

    def _wait_for_rights(self) -> None:
        """Tell once a minute which topics are refused; raise when that has lasted too long."""
        now = self._clock()
        for topic, since in [*self._refused.items()]:
            if now - since < AUTHORIZATION_TIMEOUT:
                continue
            if self._something_to_read(topic):
                raise not_allowed(topic)
            del self._refused[topic]  # nothing waits, and nothing shows that it is still refused
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
        except BrokerUnavailableError as error:  # brokers that are away are told by themselves
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
        """Take an error of the client's; that nobody answers is all that is news here.

        Where there is an end, what does not come is told as a silence instead.
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
        """See whether the topics are still there, and read what partitions were added.

        Those are read from their start: all in them is new. Raises :class:`TopicMissingError` when
        a topic has gone, of which the client says nothing; not at once, because a broker that has
        just come back may not know of all topics yet.
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
        except KeySharedError as error:  # no answer, which is told by itself
            self._reasons.append(str(error))
        else:
            self._missed = 0
            if new:
                self._tell(f"partitions were added: {some(new)}; they are read from their start")
                self._known.update(new)
                self._read(starts)

    def _find_again(self) -> None:
        """Go on where logs begin now, of which what was to be read next has been deleted."""
        consumer = self._open_consumer()
        for partition in sorted(self._astray & self._assigned.keys()):
            try:
                log = ask_logs(consumer, [partition])[partition]
            except BrokerUnavailableError as error:  # asked again before the next wait
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
