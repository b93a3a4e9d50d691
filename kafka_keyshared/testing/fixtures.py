"""The fixtures, for projects that ask for them (PYTEST_DONT_REWRITE)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_keyshared.testing.cluster import EmbeddedKafka


@pytest.fixture
def keyshared_brokers() -> int:
    """How many brokers ``keyshared_cluster`` has: 1, unless a test or a module overrides this."""
    return 1


@pytest.fixture
def keyshared_cluster(keyshared_brokers: int) -> Iterator[EmbeddedKafka]:
    """An embedded Kafka for this test alone, so that no fault or record outlives it."""
    with EmbeddedKafka(keyshared_brokers) as cluster:
        yield cluster


@pytest.fixture
def keyshared_topic(keyshared_cluster: EmbeddedKafka) -> str:
    """A topic of 4 partitions in ``keyshared_cluster``; its dead-letter topic is there too."""
    topic = keyshared_cluster.create_topic("keyshared-topic")
    keyshared_cluster.create_topic(f"{topic}.dlq", 1)
    return topic
