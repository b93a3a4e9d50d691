"""Log bounds are asked again while a partition gets a leader, and for no other reason."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.cli.advice import logs
from kafka_keyshared.cli.advice.logs import ANSWER_TIMEOUT, LogQueries
from kafka_keyshared.errors import KeySharedError, TopicMissingError
from kafka_keyshared.model import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Admin:
    """Answers a query of P0 with these errors, one a query, and then with an offset."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.asked: list[list[int]] = []

    def list_offsets(self, asked: dict[Any, Any], request_timeout: float) -> dict[Any, Future[Any]]:
        del request_timeout
        self.asked.append([each.partition for each in asked])
        return {each: self._answer(each.partition) for each in asked}

    def _answer(self, partition: int) -> Future[Any]:
        answer: Future[Any] = Future()
        if partition == 0 and self.errors:
            answer.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=7))
        return answer


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which pauses between queries pass."""
    seconds = [0.0]

    def sleep(wait: float) -> None:
        seconds[0] += wait

    monkeypatch.setattr("kafka_keyshared.cli.advice.logs.time.sleep", sleep)
    return seconds


def asking(admin: Admin, now: list[float], monkeypatch: pytest.MonkeyPatch) -> LogQueries:
    monkeypatch.setattr(logs, "AdminClient", lambda conf: admin)
    return LogQueries(SimpleNamespace(), {"bootstrap.servers": "here:1"}, lambda: now[0])  # type: ignore[arg-type]


@pytest.mark.parametrize("error", logs.NO_LEADER_YET)
def test_a_partition_without_a_leader_is_asked_again_alone(
    error: int, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(error, error)
    assert asking(admin, now, monkeypatch).ends([P0, P1]) == {P0: 7, P1: 7}
    assert admin.asked == [[0, 1], [0], [0]]


def test_a_leader_that_does_not_come_is_an_error_after_the_time_of_an_answer(
    now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 1_000)
    with pytest.raises(KeySharedError, match=r"orders-0: .* unknown: .*have a leader"):
        asking(admin, now, monkeypatch).ends([P0])
    assert now[0] == pytest.approx(ANSWER_TIMEOUT, abs=0.2)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissingError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KeySharedError),
        (KafkaError._TIMED_OUT, KeySharedError),
    ],
)
def test_what_no_election_mends_is_an_error_at_once(
    error: int, kind: type[Exception], now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = Admin(error)
    with pytest.raises(kind, match="orders"):
        asking(admin, now, monkeypatch).ends([P0, P1])
    assert (now, len(admin.asked)) == ([0.0], 1)
