"""One admin client is asked for topic ids, from the first question to the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client import kept_admin
from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.client.topic_ids import KafkaTopicIds

ROOM = 30.0


class Uuid:
    """An id as the client gives it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text

    def get_most_significant_bits(self) -> int:
        return len(self.text)

    get_least_significant_bits = get_most_significant_bits


class Admins:
    """Makes admin clients, when ``token`` is set; ``fails`` is what the next ones raise."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.token = threading.Event()
        self.token.set()
        self.fails: Exception | None = None
        self.asked: list[Future[Any]] = []
        self.listed: Callable[[], None] = lambda: None

    def __call__(self, conf: dict[str, Any]) -> Admins:
        self.made.append(conf)
        self.token.wait(ROOM)
        if self.fails is not None:
            raise self.fails
        return self

    def poll(self, _timeout: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> None:
        del timeout
        self.listed()

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        del topics, request_timeout
        self.asked.append(Future())
        return {"orders": self.asked[-1]}


@pytest.fixture
def admins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Admins]:
    made = Admins()
    monkeypatch.setattr(kept_admin, "AdminClient", made)
    yield made
    made.token.set()


def told(admins: Admins, asked: KafkaTopicIds) -> dict[str, str] | None:
    """Return what is answered once the broker has told the id."""
    assert asked._question.begin(ROOM)
    admins.asked[-1].set_result(SimpleNamespace(topic_id=Uuid("id")))
    return asked.answer(ROOM)


def test_one_client_serves_all_questions(admins: Admins) -> None:
    client = KeptAdmin({"bootstrap.servers": "b:1", "group.id": "g", "logger": object()})
    for _ in range(5):
        assert told(admins, KafkaTopicIds(client, ["orders"])) == {"orders": "id"}
    assert admins.made == [
        {"bootstrap.servers": "b:1", "log_level": 2, "enable.metrics.push": False}
    ]
    client.close()
    assert told(admins, KafkaTopicIds(client, ["orders"])) == {"orders": "id"}
    assert len(admins.made) == 2


def test_whoever_asks_does_not_wait_for_a_client_that_waits_for_a_token(admins: Admins) -> None:
    admins.token.clear()
    client = KeptAdmin({"oauth_cb": repr})
    asked = KafkaTopicIds(client, ["orders"])
    assert asked.answer(0.0) is None
    assert KafkaTopicIds(client, ["orders"]).answer(0.0) is None
    admins.token.set()
    assert told(admins, asked) == {"orders": "id"}
    assert len(admins.made) == 1


def test_a_client_that_could_not_be_made_is_made_again_for_the_next_question(
    admins: Admins,
) -> None:
    admins.fails = KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "no token"))
    client = KeptAdmin({})
    asked = KafkaTopicIds(client, ["orders"])
    assert asked._question.begin(ROOM)
    assert asked.answer(0.0) == {}
    admins.fails = None
    assert told(admins, KafkaTopicIds(client, ["orders"])) == {"orders": "id"}
    assert len(admins.made) == 2


def test_an_answer_that_was_refused_names_no_topic_and_keeps_the_client(admins: Admins) -> None:
    client = KeptAdmin({})
    asked = KafkaTopicIds(client, ["orders"])
    assert asked._question.begin(ROOM)
    admins.asked[-1].set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
    assert asked.answer(ROOM) == {}
    assert told(admins, KafkaTopicIds(client, ["orders"])) == {"orders": "id"}
    assert len(admins.made) == 1


def test_a_late_answer_lets_the_client_list_the_brokers_until_it_comes(
    admins: Admins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_admin, "LATE_AFTER", 0.0)
    client = KeptAdmin({})
    asked = KafkaTopicIds(client, ["orders"])
    assert asked._question.begin(ROOM)
    admins.listed = lambda: admins.asked[-1].set_result(SimpleNamespace(topic_id=Uuid("id")))
    assert asked.answer(ROOM) == {"orders": "id"}
    assert len(admins.made) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_keeps_the_parents_client_and_has_none(admins: Admins) -> None:
    client = KeptAdmin({})
    assert told(admins, KafkaTopicIds(client, ["orders"])) == {"orders": "id"}
    kept = len(kept_admin._PARENTS)
    client.forked()
    assert len(kept_admin._PARENTS) == kept + 1
    kept_admin._PARENTS.pop()
    assert client._made is None
