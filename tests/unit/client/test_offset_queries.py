"""What is asked of the brokers at a start: how many questions, and whom a silent broker costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.offset_queries import ask_bounds, log
from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.logs import Seldom
from kafka_keyshared.model import TopicPartition

TIMED_OUT = KafkaException(KafkaError(KafkaError._TIMED_OUT))
NO_LEADER = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)


class Brokers:
    """As the client shows them: partitions have leaders, and a silent one fails a whole question.

    Partition n has ``n`` as its log's start and ``100 + n`` as its end.
    """

    def __init__(self, leaders: dict[int, int], silent: int | None = None) -> None:
        self.leaders = leaders
        self.silent = silent
        self.questions: list[list[int]] = []

    def offsets_for_times(self, asked: list[ClientPartition], timeout: float) -> list[Any]:
        self.questions.append([each.partition for each in asked])
        if self.silent in {self.leaders[each.partition] for each in asked}:
            raise TIMED_OUT
        return [self._answer(each) for each in asked]

    def _answer(self, asked: ClientPartition) -> Any:
        number = asked.partition
        offset = {OFFSET_BEGINNING: number, OFFSET_END: 100 + number}[asked.offset]
        error = NO_LEADER if self.leaders[number] < 0 else None
        return SimpleNamespace(
            topic=asked.topic, partition=number, offset=offset, error=error, leader_epoch=3
        )

    def list_topics(self, timeout: float) -> Any:
        partitions = {each: SimpleNamespace(leader=by) for each, by in self.leaders.items()}
        return SimpleNamespace(topics={"orders": SimpleNamespace(partitions=partitions)})


def ask(brokers: Any, count: int, seldom: Seldom | None = None) -> dict[int, LogBounds]:
    asked = [TopicPartition("orders", number) for number in range(count)]
    told = seldom or Seldom(log)
    found = ask_bounds(brokers, asked, 1.0, told, brokers.list_topics)
    return {each.partition: bounds for each, bounds in found.items()}


def test_two_questions_do_for_any_number_of_partitions() -> None:
    brokers = Brokers({number: number % 3 for number in range(400)})
    found = ask(brokers, 400)
    assert len(brokers.questions) == 2
    assert found == {number: LogBounds(number, 100 + number, 3) for number in range(400)}


def test_nothing_is_asked_for_nothing() -> None:
    brokers = Brokers({})
    assert ask(brokers, 0) == {}
    assert brokers.questions == []


def test_a_broker_that_is_silent_costs_its_own_partitions_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers = Brokers({0: 1, 1: 2, 2: 1, 3: 3}, silent=2)
    assert set(ask(brokers, 4)) == {0, 2, 3}
    assert "the bounds of 1 logs are not known (orders-1)" in caplog.text
    assert "_TIMED_OUT" in caplog.text


def test_a_broker_that_stays_silent_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again every second."""
    now = 0.0
    seldom = Seldom(log, lambda: now)
    brokers = Brokers({0: 1, 1: 2, 2: 1, 3: 3}, silent=2)
    for _ in range(130):
        now += 1.0
        assert set(ask(brokers, 4, seldom)) == {0, 2, 3}
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 3
    assert lines[1].startswith("the bounds of 1 logs are not known (orders-1)")
    assert lines[1].endswith(" (59 lines like this left out)")


def test_partitions_of_one_silent_broker_are_asked_for_once() -> None:
    brokers = Brokers({0: 2, 1: 2}, silent=2)
    assert ask(brokers, 2) == {}
    assert brokers.questions == [[0, 1]]


def test_a_partition_without_a_leader_is_left_out() -> None:
    assert set(ask(Brokers({0: 1, 1: -1}), 2)) == {0}
    assert set(ask(Brokers({0: 1, 1: -1, 2: 2}, silent=2), 3)) == {0}
