"""Sending what is replayed: where to, what a refusal means, what is fatal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.cli.no_broker import LONGEST
from kafka_keyshared.dlq import send as module
from kafka_keyshared.dlq.letter import Letter
from kafka_keyshared.dlq.read_timeout import PATIENCE, ReadTimeout
from kafka_keyshared.dlq.replay import LetterRefusal
from kafka_keyshared.dlq.send import ANY_PARTITION, KafkaSender
from tests.support.letters import a_letter


class FakeProducer:
    """Keeps what it was given until it is polled, and answers with ``answer``."""

    made: list[FakeProducer]
    answer: KafkaError | None
    refusal: BaseException | None

    def __init__(self, conf: dict[str, Any]) -> None:
        self.conf = conf
        self.waiting: list[tuple[str, dict[str, Any], Callable[..., None]]] = []
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.fatal: KafkaError | None = None
        self.silent = False
        self.made.append(self)

    def __len__(self) -> int:
        return len(self.waiting)

    def produce(self, topic: str, on_delivery: Callable[..., None], **what: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append((topic, what))
        self.waiting.append((topic, what, on_delivery))

    def poll(self, _timeout: float) -> None:
        if self.fatal is not None:
            fatal, self.fatal = self.fatal, None
            raise KafkaException(fatal)
        if self.silent:
            return
        waiting, self.waiting = self.waiting, []
        for _, _, on_delivery in waiting:
            on_delivery(self.answer, None)

    def purge(self) -> None:
        self.silent = False
        self.answer = KafkaError(KafkaError._PURGE_QUEUE)


Kind = type[FakeProducer]


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch) -> Kind:
    class Producer(FakeProducer): ...

    Producer.made, Producer.answer, Producer.refusal = [], None, None
    monkeypatch.setattr(module, "Producer", Producer)
    return Producer


LETTER = a_letter((0, 0), ("orders", 2, 9), b"k")


def send(sender: KafkaSender, letter: Letter = LETTER) -> list[LetterRefusal | None]:
    told: list[LetterRefusal | None] = []
    sender.send(letter, [("h", b"1")], told.append)
    return told


@pytest.mark.parametrize(
    ("to", "partitioner", "count", "where"),
    [
        (None, None, 3, ("orders", 2)),
        (None, None, 2, ("orders", ANY_PARTITION)),  # the topic has fewer than it had
        (None, "murmur2_random", 3, ("orders", ANY_PARTITION)),
        ("again", None, 3, ("again", ANY_PARTITION)),
    ],
)
def test_where_a_record_goes(
    kind: Kind, to: str | None, partitioner: str | None, count: int, where: tuple[str, int]
) -> None:
    sender = KafkaSender({}, to, {"orders": count, "again": 9}, partitioner)
    told = send(sender)
    ((sent_to, what),) = kind.made[0].sent
    assert (sent_to, what["partition"]) == where
    assert (what["key"], what["value"], what["headers"]) == (b"k", b"v", [("h", b"1")])
    assert "timestamp" not in what  # an old one would be deleted by retention
    assert told == []
    sender.serve(1.0)
    assert told == [None]


def test_the_producer_is_idempotent_and_places_keys_as_java_does(kind: Kind) -> None:
    KafkaSender({"bootstrap.servers": "b:1", "group.id": "g"}, None, {})
    conf = kind.made[0].conf
    assert (conf["bootstrap.servers"], "group.id" in conf) == ("b:1", False)
    assert (conf["enable.idempotence"], conf["partitioner"]) == (True, "murmur2_random")


def test_what_is_too_large_in_company_is_sent_again_alone(kind: Kind) -> None:
    sender = KafkaSender({}, None, {"orders": 3})
    told = send(sender)
    kind.made[0].answer = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    sender.serve(0.1)
    shared, alone = kind.made
    assert (told, alone.conf) == ([], {**shared.conf, "batch.num.messages": 1})
    assert alone.sent == shared.sent
    sender.serve(0.1)
    assert told == [None]


def test_what_is_too_large_alone_is_refused(kind: Kind) -> None:
    kind.answer = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    sender = KafkaSender({}, None, {"orders": 3})
    told = send(sender)
    for _ in range(3):
        sender.serve(0.1)
    (refusal,) = told
    assert refusal is not None
    assert not refusal.everywhere
    assert refusal.why.endswith("raise its max.message.bytes")


@pytest.mark.parametrize(
    ("code", "everywhere"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False),
        (KafkaError.POLICY_VIOLATION, False),
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError._FATAL, True),
        (KafkaError.SASL_AUTHENTICATION_FAILED, True),
    ],
)
def test_what_a_refusal_means_for_the_others(kind: Kind, code: int, everywhere: bool) -> None:
    kind.answer = KafkaError(code)
    sender = KafkaSender({}, None, {"orders": 3})
    told = send(sender)
    sender.serve(0.1)
    (refusal,) = told
    assert refusal is not None
    assert refusal.everywhere is everywhere
    assert refusal.why.startswith("'orders': ")


def test_a_topic_that_is_not_there_is_not_made_by_writing_to_it(kind: Kind) -> None:
    (refusal,) = send(KafkaSender({}, None, {}))
    assert refusal is not None
    assert "there is no topic 'orders'" in refusal.why
    assert kind.made[0].sent == []


@pytest.mark.parametrize(
    "refusal", [BufferError("queue full"), KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))]
)
def test_what_cannot_even_be_sent_is_told_once(kind: Kind, refusal: BaseException) -> None:
    kind.refusal = refusal
    told = send(KafkaSender({}, None, {"orders": 3}))
    assert [each is not None and not each.everywhere for each in told] == [True]


def test_what_is_fatal_says_why_and_leaves_nothing_unanswered(kind: Kind) -> None:
    """The client raises it out of poll, and would answer nothing that it still has."""
    sender = KafkaSender({}, None, {"orders": 3})
    told: list[LetterRefusal | None] = []
    for _ in range(2):
        sender.send(LETTER, [], told.append)
    kind.made[0].fatal = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "denied", fatal=True)
    assert told == []
    sender.serve(0.1)
    sender.serve(0.1)
    assert [each and (each.everywhere, "denied" in each.why) for each in told] == [(True, True)] * 2


def test_a_letter_is_tried_for_longer_than_anybody_waits(kind: Kind) -> None:
    """Or the client gives it up before, and what is sent anew may be there twice."""
    KafkaSender({}, None, {})
    assert kind.made[0].conf["delivery.timeout.ms"] > 1_000 * LONGEST


def test_letters_without_an_answer_are_given_up_when_the_patience_is_over(kind: Kind) -> None:
    now = 0.0
    patience = ReadTimeout(lambda: now)
    sender = KafkaSender({}, None, {"orders": 3}, patience=patience)
    now = 5 * PATIENCE  # nothing was waited for until here
    told = send(sender)
    producer = kind.made[0]
    producer.silent = True
    sender.serve(0.1)
    now += PATIENCE
    sender.serve(0.1)
    assert told == []
    now += 1.0
    sender.serve(0.1)
    sender.serve(0.1)
    (refusal,) = told
    assert refusal is not None
    assert refusal.everywhere
    assert "nothing came for 31 s; they may or may not have been written" in refusal.why
