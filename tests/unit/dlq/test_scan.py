"""Reading a dead-letter topic from a cluster that is slow to answer, without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from kafka_keyshared.dlq.scan import bounds_of
from kafka_keyshared.errors import BrokerUnavailableError, ConfigError, TopicMissingError


class Named:
    """A cluster that has these topics, all without a record."""

    def __init__(self, *topics: str, hidden: bool = False) -> None:
        self._topics = topics
        self._hidden = hidden

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        if topic is not None:
            denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
            code = denied if self._hidden else KafkaError.UNKNOWN_TOPIC_OR_PART
            return SimpleNamespace(topics={topic: SimpleNamespace(error=KafkaError(code))})
        return SimpleNamespace(
            topics={each: SimpleNamespace(partitions={0: None}) for each in self._topics}
        )


@pytest.mark.parametrize(
    ("topic", "there", "said"),
    [
        ("orders.dlq.dlq", ["orders", "orders.dlq"], "give -t orders, or .* --dlq orders.dlq"),
        ("orders.dlq", ["orders"], "no record of 'orders' was given up .* with --dlq"),
        ("orders.dlq", [], "name the dead-letter topic with --dlq, or the source topic"),
    ],
)
def test_a_topic_that_is_not_there_is_told_with_what_may_be_meant(
    topic: str, there: list[str], said: str
) -> None:
    named: Any = Named(*there)
    with pytest.raises(TopicMissingError, match=said):
        bounds_of(named, topic)


def test_a_topic_that_this_user_may_not_see_is_not_called_missing() -> None:
    named: Any = Named("orders", hidden=True)
    with pytest.raises(ConfigError, match="allow this user to READ it, if it is there") as raised:
        bounds_of(named, "orders.dlq")
    assert not isinstance(raised.value, TopicMissingError)


class SlowCluster:
    """Answers each question after as long as it is told, and never later than it is asked for."""

    def __init__(self, partitions: int, seconds: float) -> None:
        self._partitions = dict.fromkeys(range(partitions))
        self._seconds = seconds
        self.now = 0.0

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={"t": SimpleNamespace(partitions=self._partitions)})

    def get_watermark_offsets(
        self, _partition: TopicPartition, timeout: float
    ) -> tuple[int, int] | None:
        self.now += min(self._seconds, timeout)
        return (0, 5) if self._seconds <= timeout else None


def test_the_ends_of_all_partitions_are_asked_for_within_one_time_out() -> None:
    slow: Any = SlowCluster(400, 2.0)
    with pytest.raises(BrokerUnavailableError, match=r"t-10 ends \(10 of 400 partitions have"):
        bounds_of(slow, "t", 10.0, lambda: slow.now)
    assert slow.now == 20.0


def test_a_cluster_that_takes_its_time_is_waited_for() -> None:
    slow: Any = SlowCluster(4, 4.0)
    assert bounds_of(slow, "t", 10.0, lambda: slow.now) == dict.fromkeys(range(4), (0, 5))
