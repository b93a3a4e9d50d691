"""``keyshared demo load``: writes the year of flights to any cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_keyshared.demo.data import records
from kafka_keyshared.local.cluster import await_metadata, create_by_admin
from kafka_keyshared.local.producer import MeteredProducer

PARTITIONS = 16
ANSWER_TIMEOUT = 8.0
FLUSH_TIMEOUT = 120.0
NO_LIMIT = 1 << 50


def load(
    conf: dict[str, Any], topic: str, partitions: int, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Create the topic where it is missing and write 362,891 records to it.

    Raises :class:`~kafka_keyshared.errors.KeySharedError` when no broker answers or a record is
    refused; what was written until then stays.
    """
    bootstrap = conf["bootstrap.servers"]
    there = await_metadata(
        bootstrap, lambda _metadata: True, timeout=ANSWER_TIMEOUT, what="the cluster"
    )
    created = topic not in there.topics
    if created:
        create_by_admin(bootstrap, topic, partitions, ANSWER_TIMEOUT)
        await_metadata(
            bootstrap,
            lambda metadata: (
                len(metadata.topics[topic].partitions) == partitions
                if topic in metadata.topics
                else False
            ),
            timeout=ANSWER_TIMEOUT,
            what=f"topic {topic}",
        )
    written = 0
    with MeteredProducer({"linger.ms": 20, **conf}, limit_bytes=NO_LIMIT) as producer:
        for record in records():
            producer.produce(topic, record.key, record.value)
            written += 1
            if written % 10_000 == 0:
                progress(written)
        producer.flush(FLUSH_TIMEOUT)
    progress(written)
    return {"topic": topic, "records": written, "created": created}
