"""The pytest fixtures, for projects that request them (PYTEST_DONT_REWRITE)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_keyshared.testing.cluster import EmbeddedKafka


@pytest.fixture
def keyshared_brokers() -> int:
    """Return the number of brokers of ``keyshared_cluster``: 1, unless overridden."""
    return 1


@pytest.fixture
def keyshared_cluster(keyshared_brokers: int) -> Iterator[EmbeddedKafka]:
    """Yield an embedded Kafka for this test alone, so that no fault or record outlives it."""
    with EmbeddedKafka(keyshared_brokers) as cluster:
        yield cluster


@pytest.fixture
def keyshared_topic(keyshared_cluster: EmbeddedKafka) -> str:
    """Return a topic of 4 partitions in ``keyshared_cluster``; its dead-letter topic exists too."""
    topic = keyshared_cluster.create_topic("keyshared-topic")
    keyshared_cluster.create_topic(f"{topic}.dlq", 1)
    return topic
