"""A sample of the newest records of live topics.

Sampling joins no group, and commits and writes nothing. It is not known beforehand how many records
can be read in the given time. Therefore rounds read the newest records of all partitions first,
then the records before them. Each round is sized to take a few seconds. Whenever the time is over,
the sample is one range at the end of each partition, proportional to its size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.cli.advice.count import SampleCounts
from kafka_keyshared.cli.advice.logs import LogQueries, PartitionLog
from kafka_keyshared.client.silence_log import Silence
from kafka_keyshared.client.standalone import READ_ONLY, address_of, outsider
from kafka_keyshared.client.topics import unreadable
from kafka_keyshared.config.client import fetch_bytes
from kafka_keyshared.config.keys.sampled import KeySample
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import TopicPartition

Progress = Callable[[str], None]
Clock = Callable[[], float]

FIRST_ROUND = 20_000
ROUND_SECONDS = 3.0
GROWTH = 10
"""Maximum ratio of a round's size to the size of the last round."""

LIVE_SECONDS = 5.0
"""Minimum seconds of observation for deriving arrivals from the log ends."""
HISTORY_SECONDS = 60.0
"""Minimum age of the oldest sampled record for deriving arrivals from timestamps."""

_BATCH_BYTES = 4 << 20
_BATCH_MAX = 2_000
_WAIT = 0.1
_SAY_EVERY = 5.0

# Small limits, so that the sample fits on the machine of the consumer it advises on. A small record
# takes several times its size in the client's queue.
_MODEST: Mapping[str, Any] = {
    "queued.max.messages.kbytes": 2_048,
    "queued.min.messages": 5_000,
    "fetch.message.max.bytes": 131_072,
    "fetch.max.bytes": 2_097_152,
    "fetch.min.bytes": 1,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 50,
}
# Retention may delete records before they are read.
_FROM_START = {"auto.offset.reset": "earliest"}
_STRANGER = "keyshared-advise"


class Sample(NamedTuple):
    """The result of a reading, beside the counts.

    ``offsets`` is the number of offsets that were covered. There are fewer records when compaction
    or transaction markers use some of them. ``arrivals`` is in records per second by partition, or
    None when it is unknown. ``arrivals_from`` is its source: ``ends`` or ``timestamps``.
    """

    logs: list[PartitionLog]
    complete: bool
    offsets: int
    seconds: float
    arrivals: dict[TopicPartition, float] | None
    arrivals_from: str | None


def take(
    conf: Mapping[str, Any],
    topics: Iterable[str],
    group: str | None,
    seconds: float,
    tally: SampleCounts,
    *,
    progress: Progress,
    clock: Clock = time.monotonic,
    keys: KeySample | None = None,
) -> Sample:
    """Count the records of the topics into ``tally`` for at most ``seconds`` seconds.

    ``keys`` reads the keys; None uses the records' own keys.

    Raises :class:`~kafka_keyshared.errors.TopicMissingError` and
    :class:`~kafka_keyshared.errors.ConfigError` for a topic that is missing or may not be read.
    Raises :class:`~kafka_keyshared.errors.KeySharedError` when no answer came in all the time.
    """
    own = {**conf, **_MODEST, **READ_ONLY, **_FROM_START, "group.id": group or _STRANGER}
    own["fetch.max.bytes"] = fetch_bytes(own, _MODEST["fetch.max.bytes"])
    own.pop("group.instance.id", None)
    reasons: list[str] = []
    consumer = outsider(own, reasons)
    try:
        logs = LogQueries(consumer, own, clock)
        found = logs.look(topics, with_group=group is not None)
        silence = Silence(address_of(conf), reasons, progress, clock)
        return _Reader(consumer, tally, silence, progress, clock, keys).read(found, logs, seconds)
    finally:
        consumer.close()


class _Reader:
    """Reads rounds into a tally."""

    def __init__(  # noqa: PLR0917 - what one reading is made of
        self,
        consumer: Consumer,
        tally: SampleCounts,
        silence: Silence,
        progress: Progress,
        clock: Clock,
        keys: KeySample | None,
    ) -> None:
        self._consumer = consumer
        self._tally = tally
        self._silence = silence
        self._progress = progress
        self._keys = keys
        self._deadline = 0.0
        self._batch = 100
        self._offsets = 0
        self._left: dict[TopicPartition, tuple[int, int]] = {}
        self._paused: list[TopicPartition] = []
        self._answered = False
        self._oldest: dict[TopicPartition, int] = {}
        self._untimed = False
        self._clock = clock
        self._said = clock()

    def read(self, found: list[PartitionLog], logs: LogQueries, seconds: float) -> Sample:
        started = self._clock()
        self._deadline = started + seconds
        total = sum(log.size for log in found)
        done, size = 0.0, float(FIRST_ROUND)
        while done < 1 and total and self._clock() < self._deadline:
            to = min(1.0, done + size / total)
            began, before = self._clock(), self._offsets
            self._round({log.partition: log.stretch(done, to) for log in found})
            took = max(0.001, self._clock() - began)
            rate = (self._offsets - before) / took
            size = max(FIRST_ROUND, min(size * GROWTH, rate * ROUND_SECONDS))
            done = to
        self._tally.close()
        complete = not total or (done >= 1 and not self._left)
        if not complete and not self._answered:
            why = (self._silence.reasons or ["no broker sent a record"])[-1]
            raise KeySharedError(
                f"nothing could be read within {seconds:g} s: {why}; see that the brokers run "
                "and answer, give it longer with --seconds, or look with keyshared doctor"
            )
        if self._silence.told:
            self._progress("the sample ended early; the result uses the records read so far")
        elapsed = self._clock() - started
        arrivals, told_from = self._arrivals(found, logs)
        return Sample(found, complete, self._offsets, elapsed, arrivals, told_from)

    def _round(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Read these offset ranges until all are read or the time is over."""
        # A new assignment keeps earlier pauses.
        self._consumer.resume([ClientPartition(*partition) for partition in self._paused])
        self._paused.clear()
        self._left = {partition: span for partition, span in ranges.items() if span[0] < span[1]}
        self._consumer.assign(
            [
                ClientPartition(*partition, offset=first)
                for partition, (first, _) in self._left.items()
            ]
        )
        while self._left and self._clock() < self._deadline:
            first = self._consumer.poll(_WAIT)
            if first is None:
                self._silence.waited()
                continue
            batch = [first, *self._consumer.consume(self._batch, 0)]
            self._take(batch)
            if (now := self._clock()) - self._said >= _SAY_EVERY:
                self._said = now
                self._progress(f"read {self._tally.records:,} records")

    def _take(self, batch: list[Message]) -> None:
        runs: dict[tuple[str, int], list[Message]] = {}
        events = []
        for message in batch:
            if message.error() is None:
                partition: Any = (message.topic(), message.partition())
                runs.setdefault(partition, []).append(message)
            else:
                events.append(message)
        count = size = 0
        for partition, messages in runs.items():
            self._run(TopicPartition(*partition), messages)
            count += len(messages)
            size += sum(map(len, messages[::16])) * 16
        # After the records, because the end of a partition comes behind its last records.
        for message in events:
            self._event(message)
        if count:
            # Records of a megabyte must not come a thousand at a time.
            self._batch = max(10, min(_BATCH_MAX, _BATCH_BYTES * count // max(1, size)))

    def _run(self, partition: TopicPartition, messages: list[Message]) -> None:
        """Count the records of one partition."""
        span = self._left.get(partition)
        if span is None:
            return
        self._answered = True
        self._silence.came()
        first, end = span
        offsets: list[Any] = [message.offset() for message in messages]
        last = offsets[-1]
        if last >= end:
            messages = [each for each, at in zip(messages, offsets, strict=True) if at < end]
        self._time(partition, messages)
        records: list[Any] = messages
        if self._keys is None:
            self._tally.add(partition, [record.key() for record in records])
        else:
            self._tally.add(partition, self._keys.keys(partition.topic, records))
        if last >= end - 1:
            self._finish(partition)
        else:
            self._offsets += last + 1 - first
            self._left[partition] = (last + 1, end)

    def _finish(self, partition: TopicPartition) -> None:
        first, end = self._left.pop(partition)
        self._offsets += end - first
        # The records behind it were read in an earlier round, or are newer than the sample.
        self._consumer.pause([ClientPartition(*partition)])
        self._paused.append(partition)

    def _time(self, partition: TopicPartition, messages: list[Message]) -> None:
        if not messages:
            return
        kind, at = messages[0].timestamp()
        if kind == 0 or at <= 0:
            self._untimed = True
        else:
            self._oldest[partition] = min(at, self._oldest.get(partition, at))

    def _event(self, message: Message) -> None:
        error: KafkaError | None = message.error()
        if error is None:
            return
        if error.code() == KafkaError._PARTITION_EOF:
            partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
            self._answered = True
            self._silence.came()
            if partition in self._left:
                self._finish(partition)
            return
        if (cause := unreadable(error, message.topic())) is not None:
            raise cause
        self._silence.reasons.append(error.str())

    def _arrivals(
        self, found: list[PartitionLog], logs: LogQueries
    ) -> tuple[dict[TopicPartition, float] | None, str | None]:
        # The growth between two answers, divided by the time between them, because each takes time.
        since = logs.told_at
        if self._clock() - since >= LIVE_SECONDS:
            try:
                ends = logs.ends([log.partition for log in found])
            except KeySharedError as error:
                # The broker is gone. The records read so far are still reported.
                self._progress(
                    f"the arrival rate is unknown, because the log ends cannot be read: {error}"
                )
            else:
                watched = logs.told_at - since
                rates = {
                    log.partition: max(0, ends[log.partition] - log.end) / watched for log in found
                }
                return rates, "ends"
        now = time.time() * 1000
        if not self._oldest or self._untimed or max(self._oldest.values()) > now:
            return None, None
        if now - min(self._oldest.values()) < HISTORY_SECONDS * 1000:
            return None, None
        return {
            partition: self._tally.partitions[partition]
            / max(HISTORY_SECONDS, (now - oldest) / 1000)
            for partition, oldest in self._oldest.items()
        }, "timestamps"
