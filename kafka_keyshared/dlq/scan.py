"""A full reading of a dead-letter topic in constant memory.

It joins no group. The ends are fixed when the reading begins. A partition is done when a record at
or beyond its end arrives, or the client reports its end. Behind the last record there may be
transaction markers, which are offsets without a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.standalone import outsider, polled
from kafka_keyshared.config.options import DLQ_SUFFIX
from kafka_keyshared.dlq.filter import Choice
from kafka_keyshared.dlq.letter import Letter, read_letter
from kafka_keyshared.dlq.read_timeout import ReadTimeout
from kafka_keyshared.errors import BrokerUnavailableError, ConfigError, TopicMissingError

ANSWER_TIMEOUT = 10.0

_WAIT = 0.5
_CHUNK = 500

_REFUSALS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow this user to READ it",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "it was deleted while it was read",
    KafkaError._UNKNOWN_TOPIC: "it was deleted while it was read",
}

Bounds = Mapping[int, tuple[int, int]]
"""The first offset and the end of each partition."""


def reader_conf(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a consumer that only reads its assigned partitions."""
    return {
        "group.id": "keyshared-dlq",
        **conf,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # A query must not create a topic.
        "allow.auto.create.topics": False,
        # Used when retention has deleted records since the reading began.
        "auto.offset.reset": "earliest",
        # A replay with a low rate polls rarely.
        "max.poll.interval.ms": 86_400_000,
        "queued.max.messages.kbytes": 16_384,
    }


def connected(conf: Mapping[str, Any], patience: ReadTimeout | None = None) -> Consumer:
    """Return a consumer without a group, closed by the caller; ``patience`` gets its errors."""
    return outsider(reader_conf(conf), [], patience.heard if patience else lambda _: None)


def partitions_of(consumer: Consumer) -> dict[str, int]:
    """Return the number of partitions of each topic."""
    topics = consumer.list_topics(timeout=ANSWER_TIMEOUT).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}


def bounds_of(
    consumer: Consumer,
    topic: str,
    timeout: float = ANSWER_TIMEOUT,
    clock: Callable[[], float] = time.monotonic,
) -> Bounds:
    """Return the current begin and end of each partition.

    Raises :class:`TopicMissingError` when there is no such topic, and :class:`ConfigError` when
    this user may not see it. Raises :class:`BrokerUnavailableError` when no broker answers within
    ``timeout`` seconds, or not all partitions within twice that.
    """
    give_up = clock() + 2 * timeout
    try:
        there = consumer.list_topics(timeout=timeout).topics
        if topic not in there or not there[topic].partitions:
            _require_sight(consumer, topic, timeout)
            raise TopicMissingError(f"there is no topic {topic!r}: {_hint(topic, there)}")
        found: dict[int, tuple[int, int]] = {}
        for partition in sorted(there[topic].partitions):
            left = min(timeout, give_up - clock())
            asked = ClientPartition(topic, partition)
            answer = consumer.get_watermark_offsets(asked, left) if left > 0 else None
            if answer is None:
                raise BrokerUnavailableError(
                    f"no answer in time where {topic}-{partition} ends ({len(found)} of "
                    f"{len(there[topic].partitions)} partitions have answered); see whether its "
                    "leader is up"
                )
            found[partition] = answer
    except KafkaException as error:
        raise BrokerUnavailableError(
            f"the ends of {topic!r} could not be asked for: {error.args[0].str()}; see that the "
            "cluster is up and that this user may DESCRIBE the topic"
        ) from error
    return found


def _require_sight(consumer: Consumer, topic: str, timeout: float) -> None:
    """Raise :class:`ConfigError` if a topic is missing in the list because it is hidden.

    A broker hides a topic in the list from a user without the right to see it. When the topic is
    queried by name, the broker says which is the case.
    """
    asked = consumer.list_topics(topic, timeout).topics.get(topic)
    error = None if asked is None else asked.error
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise ConfigError(f"{topic!r}: {error.str()}: allow this user to READ it, if it is there")


def meant(topic: str, there: Container[str]) -> str | None:
    """Return the dead-letter topic of a topic without dead letters, if it has one."""
    name = f"{topic}{DLQ_SUFFIX}"
    return name if name in there else None


def _hint(topic: str, there: Container[str]) -> str:
    """Return a hint about the topic that the user may have meant."""
    base = topic.removesuffix(DLQ_SUFFIX)
    if base.endswith(DLQ_SUFFIX) and base in there:
        source = base.removesuffix(DLQ_SUFFIX)
        return (
            f"-t names the source topic: give -t {source}, or for the "
            f"dead-letter topic itself --dlq {base}"
        )
    if base != topic and base in there:
        return (
            f"no record of {base!r} was given up with the setting dlq=true; where its dead "
            "letters go to another topic, name that with --dlq"
        )
    return "name the dead-letter topic with --dlq, or the source topic with -t"


def letters(
    consumer: Consumer,
    topic: str,
    choice: Choice,
    bounds: Bounds | None = None,
    *,
    patience: ReadTimeout | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Letter]:
    """Yield the chosen dead letters within ``bounds`` (None: the current bounds).

    Raises :class:`ConfigError` for a partition that does not exist and for a selection of another
    topic. Raises the errors of :func:`bounds_of` and :func:`messages`.
    """
    found = dict(bounds or bounds_of(consumer, topic))
    if choice.partition is not None:
        if choice.partition not in found:
            raise ConfigError(
                f"{topic!r} has no partition {choice.partition}: it has {len(found)}, from 0"
            )
        found = {choice.partition: found[choice.partition]}
    if choice.selection is not None:
        choice.selection.require(topic)
        found = {each: choice.selection.within(each, *bound) for each, bound in found.items()}
    if choice.offset is not None:
        at = choice.offset
        found = {
            partition: (max(low, at), min(high, at + 1)) for partition, (low, high) in found.items()
        }
    for message in messages(consumer, topic, found, patience=patience, stopped=stopped):
        letter = read_letter(message)
        if choice.takes(letter):
            yield letter


def messages(
    consumer: Consumer,
    topic: str,
    bounds: Bounds,
    *,
    patience: ReadTimeout | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Message]:
    """Yield the records within the bounds, each partition in the order of its offsets.

    Ends early when no record comes and ``stopped`` returns true. Raises :class:`ConfigError` when
    the topic may not be read, and :class:`BrokerUnavailableError` when ``patience`` is over.
    """
    patience = patience or ReadTimeout()
    left = {partition: bound for partition, bound in bounds.items() if bound[0] < bound[1]}
    consumer.assign([ClientPartition(topic, number, low) for number, (low, _) in left.items()])
    patience.began()
    reason = "no answer"
    try:
        while left:
            first = polled(consumer, _WAIT)
            if first is None:
                if stopped():
                    return
                if (why := patience.over()) is not None:
                    raise BrokerUnavailableError(
                        f"{topic!r} could not be read to its end: {why} ({reason}); partitions "
                        f"that are left: {', '.join(map(str, sorted(left)))}"
                    )
                continue
            for message in (first, *consumer.consume(_CHUNK, 0)):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    reason = _told(topic, error)
                    continue
                patience.came()
                partition, offset = message.partition(), message.offset()
                if partition not in left or offset is None:
                    continue
                end = left[partition][1]
                if error is not None or offset + 1 >= end:
                    del left[partition]
                    # Not paused, because a pause would outlast this reading.
                    consumer.incremental_unassign([ClientPartition(topic, partition)])
                if error is None and offset < end:
                    yield message
    finally:
        # The consumer is already closed when the caller has ended with an error.
        with suppress(RuntimeError):
            consumer.unassign()


def _told(topic: str, error: KafkaError) -> str:
    if error.code() in _REFUSALS:
        raise ConfigError(f"{topic!r}: {error.str()}: {_REFUSALS[error.code()]}")
    return error.str()
