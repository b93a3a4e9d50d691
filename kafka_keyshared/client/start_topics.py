"""Check of subscribed topics at the start: missing, or DESCRIBE refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]

from kafka_keyshared.client.patterns import is_pattern, matching, visible
from kafka_keyshared.client.port import RightRefusal, refused_right
from kafka_keyshared.core.contract.events import Right
from kafka_keyshared.errors import TopicMissingError
from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")


def find(
    consumer: Consumer,
    metadata: ClusterMetadata,
    topics: Sequence[str],
    timeout: float,
    *,
    refresh_seconds: float,
) -> list[RightRefusal]:
    """Look up the topics of a subscription in a cluster's metadata.

    A pattern (``^...``) that matches nothing gets a warning. Its topic may be created later; the
    client looks again every ``refresh_seconds``. A topic that this user may not DESCRIBE is
    returned as refused, because the right may also be granted later. ``timeout`` is for each
    request, in seconds.

    Raises :class:`TopicMissingError` naming a topic that does not exist.
    """
    return list(_refused(consumer, metadata, topics, timeout, refresh_seconds))


def _refused(
    consumer: Consumer,
    metadata: ClusterMetadata,
    topics: Sequence[str],
    timeout: float,
    refresh_seconds: float,
) -> Iterator[RightRefusal]:
    there = sorted(metadata.topics)
    for topic in topics:
        if is_pattern(topic):
            if not matching(topic, there):
                log.warning(
                    "pattern %s matches none of the %d topics there; waiting for one, looked for "
                    "again every %g s (topic.metadata.refresh.interval.ms)",
                    topic,
                    len(there),
                    refresh_seconds,
                )
            continue
        found = metadata.topics.get(topic)
        if found is not None and found.error is None:
            continue
        refusal = _refusal(consumer, topic, timeout)
        if refusal is None:
            shown = ", ".join(visible(there)[:10])
            raise TopicMissingError(
                f"topic {topic!r} does not exist on the cluster (topics there: "
                f"{shown or 'none'}); create it, or mend the name"
            )
        yield refusal


def _refusal(consumer: Consumer, topic: str, timeout: float) -> RightRefusal | None:
    """Return the refusal of a topic that is not listed because this user may not DESCRIBE it.

    A metadata listing omits such topics, while a request for a committed position is refused. The
    topic's own metadata is not requested, because a cluster may create the topic for that.
    """
    try:
        (answer,) = consumer.committed([ClientPartition(topic, 0)], timeout=timeout)
    except KafkaException as error:
        log.debug("topic %s: not listed, and no committed position: %s", topic, error)
        return None
    if answer.error is None or refused_right(answer.error) is None:
        return None
    return RightRefusal(Right.TOPIC, topic, None, answer.error.str())
