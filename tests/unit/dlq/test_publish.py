"""Dead letters on their way to the broker: nothing is settled without its acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from kafka_keyshared.config.tokens import TokenCallback
from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.dlq import publish as module
from kafka_keyshared.dlq.avro import decode
from kafka_keyshared.dlq.publish import (
    CODECS,
    DeadLetterPublisher,
    Form,
    best_codec,
    producer_conf,
)
from kafka_keyshared.dlq.topics import require_topics
from kafka_keyshared.errors import BrokerUnavailableError, TopicMissingError
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.conftest import Eventually
from tests.support.letters import a_publish
from tests.support.live_cluster import read_all


class FakeProducer:
    """A producer that keeps what it was given, or refuses it."""

    made = 0
    answer: KafkaError | None = None
    fatal: KafkaError | None = None
    refusal: BaseException | None = None
    letter = Message(topic="orders.dlq", partition=1, offset=7)

    def __init__(self, conf: dict[str, Any]) -> None:
        type(self).made += 1
        self.conf = conf
        self.waiting: list[tuple[str, dict[str, Any], Callable[..., None]]] = []

    def produce(self, topic: str, on_delivery: Callable[..., None], **what: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.waiting.append((topic, what, on_delivery))

    def poll(self, _timeout: float) -> None:
        if self.fatal is not None and self.answer is None:
            raise KafkaException(self.fatal)
        waiting, self.waiting = self.waiting, []
        for _, _, on_delivery in waiting:
            on_delivery(self.answer, self.letter)

    def flush(self, timeout: float) -> None:
        self.poll(timeout)

    def purge(self) -> None:
        self.answer = KafkaError(KafkaError._PURGE_QUEUE)


class Desk:
    """A publisher over the fake producer, and what it was told."""

    def __init__(self, kind: type[FakeProducer]) -> None:
        self.kind = kind
        self.told: list[DeadLetterAnswer] = []
        conf = {"bootstrap.servers": "b:1", "group.id": "g"}
        self.now = 0.0
        self.publisher = DeadLetterPublisher(
            conf, lambda topic: f"{topic}.dlq", self.told.append, lambda: self.now
        )

    @property
    def producers(self) -> list[FakeProducer]:
        producers: list[Any] = [line.producer for line in self.publisher._lines]
        return producers

    @property
    def producer(self) -> FakeProducer:
        return self.producers[0]


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    class Producer(FakeProducer): ...

    monkeypatch.setattr(module, "Producer", Producer)
    return Desk(Producer)


def test_a_letter_is_settled_when_the_broker_has_acknowledged_it(desk: Desk) -> None:
    sent = a_publish([("h", b"1")])
    desk.publisher.publish(sent)
    ((topic, what, _),) = desk.producer.waiting
    assert topic == "orders.dlq"
    assert (what["key"], what["value"]) == (b"k", b"v")
    assert what["headers"][0] == ("h", b"1")
    assert (desk.told, desk.publisher.unanswered()) == ([], 1)
    desk.publisher.serve()
    assert desk.told == [DeadLetterAnswer(sent, None, "orders.dlq-1@7")]
    assert desk.publisher.unanswered() == 0


@pytest.mark.parametrize(
    ("code", "for_good"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, True),
        (KafkaError._UNKNOWN_TOPIC, True),
        (KafkaError._UNKNOWN_PARTITION, True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, True),
        (KafkaError.MSG_SIZE_TOO_LARGE, True),
        (KafkaError.INVALID_RECORD, True),
        (KafkaError.POLICY_VIOLATION, True),
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, False),
        (KafkaError.NOT_LEADER_FOR_PARTITION, False),
        (KafkaError._TRANSPORT, False),
    ],
)
def test_a_refusal_says_whether_another_try_may_help(desk: Desk, code: int, for_good: bool) -> None:
    desk.kind.answer = KafkaError(code)
    desk.publisher.publish(a_publish([]))
    for _ in range(2):
        desk.publisher.serve()
    (told,) = desk.told
    assert told.for_good is for_good


@pytest.mark.parametrize(
    ("refusal", "for_good"), [(BufferError("Queue full"), False), (ValueError("a header"), True)]
)
def test_what_the_client_does_not_take_is_refused_for_good_unless_its_queue_is_full(
    desk: Desk, refusal: Exception, for_good: bool
) -> None:
    desk.kind.refusal = refusal
    desk.publisher.publish(a_publish([]))
    assert [each.for_good for each in desk.told] == [for_good]


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "allow this user to WRITE"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "create it again"),
        (KafkaError._MSG_TIMED_OUT, "see that it still exists"),
        (KafkaError.INVALID_RECORD, "cleanup.policy"),
        (KafkaError.POLICY_VIOLATION, "keyshared doctor"),
    ],
)
def test_a_refused_letter_is_told_with_topic_reason_and_cure(
    desk: Desk, code: int, cure: str
) -> None:
    sent = a_publish([])
    desk.publisher.publish(sent)
    desk.producer.answer = KafkaError(code)
    desk.publisher.serve()
    (told,) = desk.told
    assert told.publish is sent
    assert told.error is not None
    assert told.error.startswith(f"'orders.dlq': {KafkaError(code).str()}; ")
    assert cure in told.error
    assert desk.publisher.unanswered() == 0


def test_what_was_refused_for_its_size_in_company_is_sent_again_alone(desk: Desk) -> None:
    first, second = a_publish([]), a_publish([])
    for each in (first, second):
        desk.publisher.publish(each)
    desk.producer.answer = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    desk.publisher.serve()
    shared, alone = desk.producers
    assert (len(shared.waiting), len(alone.waiting), desk.publisher.unanswered()) == (0, 2, 2)
    of_both = {name: value for name, value in shared.conf.items() if name != "logger"}
    own = {"batch.num.messages": 1, "logger": alone.conf["logger"]}
    assert alone.conf == {**of_both, **own}
    desk.publisher.serve()
    assert [(each.publish, each.error) for each in desk.told] == [(first, None), (second, None)]
    assert desk.publisher.unanswered() == 0


def test_what_is_too_large_alone_is_told_once_with_its_size(desk: Desk) -> None:
    desk.kind.answer = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    desk.publisher.publish(a_publish([]))
    for _ in range(3):
        desk.publisher.serve()
    (told,) = desk.told
    assert "raise its max.message.bytes: 2 bytes and the headers" in str(told.error)
    assert desk.publisher.unanswered() == 0


def test_what_is_on_its_way_again_is_waited_for_at_the_end(desk: Desk) -> None:
    desk.publisher.publish(a_publish([]))
    desk.producer.answer = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    desk.publisher.close(1.0)
    assert [told.error for told in desk.told] == [None]


@pytest.mark.parametrize("at_once", [True, False], ids=["when sent", "when answered"])
def test_after_a_fatal_error_the_next_letter_goes_with_a_new_producer(
    desk: Desk, at_once: bool
) -> None:
    fatal = KafkaError(KafkaError._FATAL)
    desk.publisher.publish(a_publish([]))
    broken = desk.producer
    if at_once:
        desk.kind.refusal = KafkaException(fatal)
        desk.publisher.publish(a_publish([]))
        desk.kind.refusal = None
        assert len(desk.told) == 1
    else:
        broken.answer = fatal
        desk.publisher.serve()
    desk.now += module.REMAKE_AFTER
    desk.publisher.publish(a_publish([]))
    assert desk.kind.made == 2
    desk.publisher.serve()
    desk.publisher.serve()
    assert [told.error is None for told in desk.told] == [False, *[True] * (1 + at_once)]
    assert broken not in desk.producers


def test_a_fatal_error_that_the_client_raises_ends_no_instance(desk: Desk) -> None:
    """The client raises what is fatal out of poll, for a user who may write nowhere for one."""
    denied = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "no permission", fatal=True)

    desk.kind.fatal = denied
    sent = [a_publish([]), a_publish([])]
    for each in sent:
        desk.publisher.publish(each)
    desk.publisher.serve()
    assert (desk.told, desk.publisher.unanswered()) == ([], 2)
    desk.publisher.serve()
    assert [told.publish for told in desk.told] == sent
    for told in desk.told:
        # Why it failed, not that its queue was emptied.
        assert told.error == "'orders.dlq': no permission; allow this user to WRITE to it"
    assert desk.publisher.unanswered() == 0


def test_producers_are_not_made_in_a_spin_when_each_one_fails(desk: Desk) -> None:
    desk.kind.answer = KafkaError(KafkaError._FATAL)
    desk.publisher.publish(a_publish([]))
    desk.publisher.serve()
    for _ in range(50):
        desk.publisher.publish(a_publish([]))
        desk.publisher.serve()
    assert desk.kind.made == 1
    assert len(desk.told) == 51
    assert all("Fatal error" in str(told.error) for told in desk.told)


def test_a_producer_that_cannot_be_made_is_told_and_not_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_conf: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    monkeypatch.setattr(module, "Producer", refuse)
    sent = a_publish([])
    desk.publisher.publish(sent)
    (told,) = desk.told
    assert told.publish is sent
    assert "Invalid argument" in str(told.error)


@pytest.mark.parametrize(
    "refusal",
    [
        BufferError("queue full"),
        KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)),
        ValueError("headers"),
        TypeError("headers"),
    ],
)
def test_a_letter_that_cannot_even_be_sent_is_told_and_not_lost(
    desk: Desk, refusal: BaseException
) -> None:
    desk.kind.refusal = refusal
    sent = a_publish([])
    desk.publisher.publish(sent)
    (told,) = desk.told
    assert told.publish is sent
    assert told.error is not None
    reason = refusal.args[0]
    assert f"'orders.dlq': {reason.str() if isinstance(reason, KafkaError) else ''}" in told.error
    assert isinstance(refusal, KafkaException) or f"{type(refusal).__name__}: " in told.error
    assert desk.publisher.unanswered() == 0


NULL_NAME = type("Pair", (), {"__repr__": lambda self: "(<NULL>, b'v')"})()
"""What the client returns when it is asked again for a name that it could not read."""


@pytest.mark.parametrize("form", ["headers", "avro"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_headers_that_cannot_be_read_are_told_and_not_lost(
    desk: Desk, form: Form, asked_before: bool
) -> None:
    class Unreadable:
        def headers(self) -> list[Any]:
            if not asked_before:
                raise SystemError("<method 'headers'> returned a result with an exception set")
            return [("fine", b"v"), NULL_NAME]

        def __getattr__(self, name: str) -> Callable[[], Any]:
            return lambda: "orders"

    source: Any = Unreadable()
    whole = a_publish([])
    sent = Publish("default", whole.lane, source, 1, whole.first, whole.last)
    publisher = DeadLetterPublisher({}, lambda topic: f"{topic}.dlq", desk.told.append, form=form)
    publisher.publish(sent)
    (told,) = desk.told
    assert told.publish is sent
    assert "a header has a name that is not UTF-8" in str(told.error)
    assert publisher.unanswered() == 0


class Refuses:
    """What nobody can look into."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("not now")


@pytest.mark.parametrize("form", ["headers", "avro"])
@pytest.mark.parametrize(
    "headers", [7, Refuses(), ["h"], [("h", 7)], [(5, b"v")], [("h", b"v", 1)]]
)
def test_what_a_handler_has_set_in_place_of_headers_refuses_the_letter_and_nothing_else(
    desk: Desk, form: Form, headers: Any
) -> None:
    sent = a_publish(headers)
    publisher = DeadLetterPublisher({}, lambda topic: f"{topic}.dlq", desk.told.append, form=form)
    publisher.publish(sent)
    (told,) = desk.told
    assert told.publish is sent
    assert "its handler has put something in the place of its headers" in str(told.error)
    assert publisher.unanswered() == 0


def test_in_the_avro_form_the_key_stays_and_the_value_has_all_the_rest(desk: Desk) -> None:
    publisher = DeadLetterPublisher(
        {"group.id": "g"}, lambda topic: f"{topic}.dlq", desk.told.append, form="avro"
    )
    publisher.publish(a_publish([("h", b"1")]))
    line: Any = publisher._lines[0].producer
    ((topic, what, _),) = line.waiting
    assert (topic, what["key"]) == ("orders.dlq", b"k")
    assert what["headers"] == [("keyshared.content", b"avro")]
    assert decode(what["value"])["headers"] == [{"name": "h", "value": b"1"}]


def test_one_producer_is_made_for_the_first_letter_and_flushed_at_the_end(desk: Desk) -> None:
    desk.publisher.serve()
    assert desk.kind.made == 0
    desk.publisher.publish(a_publish([]))
    desk.publisher.publish(a_publish([]))
    assert desk.kind.made == 1
    desk.publisher.close(1.0)
    assert [told.error for told in desk.told] == [None, None]
    desk.publisher.close(1.0)


def test_the_producer_takes_over_the_connection_and_nothing_else() -> None:
    conf = producer_conf(
        {
            "bootstrap.servers": "b:1",
            "security.protocol": "SASL_SSL",
            "sasl.username": "u",
            "ssl.ca.location": "/ca.pem",
            "client.id": "c",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "error_cb": print,
            "oauth_cb": (guard := TokenCallback(repr)),
        }
    )
    assert conf == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.username": "u",
        "ssl.ca.location": "/ca.pem",
        "client.id": "c",
        "oauth_cb": guard,  # without it the broker lets the producer in no more than a stranger
        "compression.type": "zstd",  # what fits its topic compressed has to fit again
        "partitioner": "murmur2_random",  # by which Spark chooses, too
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.max.bytes": 64 << 20,
        "delivery.timeout.ms": 30_000,
    }


@pytest.mark.parametrize(
    "given",
    [{"compression.type": "lz4"}, {"compression.codec": "none"}, {"compression.type": "none"}],
)
def test_letters_are_compressed_as_the_user_says(given: dict[str, str]) -> None:
    conf = producer_conf({"bootstrap.servers": "b:1", **given, "compression.level": 3})
    found = {name: value for name, value in conf.items() if name.startswith("compression.")}
    assert found == {**given, "compression.level": 3}


def test_letters_are_compressed_with_the_best_codec_that_the_client_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for without, best in (((), "zstd"), (("zstd",), "lz4"), (CODECS, "none")):
        best_codec.cache_clear()
        monkeypatch.setattr(
            module,
            "client_error",
            lambda conf, without=without: "no" if conf["compression.type"] in without else None,
        )
        assert best_codec() == best
    best_codec.cache_clear()


def test_letters_arrive_unchanged_on_a_live_topic(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    told: list[DeadLetterAnswer] = []
    conf = {"bootstrap.servers": embedded_cluster.bootstrap, "group.id": "g"}
    publisher = DeadLetterPublisher(conf, lambda _: topic, told.append)
    own: list[tuple[str, Any]] = [("h", b"1"), ("h", None)]
    publisher.publish(a_publish(own))

    def answered() -> bool:
        publisher.serve()
        return publisher.unanswered() == 0

    eventually(answered, 30.0)
    publisher.close(5.0)
    assert [each.error for each in told] == [None]
    (found,) = read_all(embedded_cluster, topic, 1)
    assert (found.key(), found.value()) == (b"k", b"v")
    headers: Any = found.headers()
    assert headers[:2] == own


def test_an_unreachable_cluster_ends_the_look_up_of_topics() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    conf = {"bootstrap.servers": address, "log_level": 0}
    with pytest.raises(BrokerUnavailableError, match=address):
        require_topics(conf, ["orders.dlq"], create=False, timeout=0.5)


class FakeAdmin:
    """An admin client whose topics appear as a test says."""

    def __init__(self, there: list[str], refusal: int | None) -> None:
        self.there = there
        self.refusal = refusal
        self.asked: list[str] = []

    def list_topics(self, timeout: float) -> Any:
        topics = {name: SimpleNamespace(error=None) for name in self.there}
        return SimpleNamespace(topics=topics, controller_id=1, brokers={1: None})

    def create_topics(self, topics: list[Any], **_timeouts: float) -> dict[str, Future[None]]:
        made: dict[str, Future[None]] = {}
        for each in topics:
            self.asked.append(each.topic)
            future: Future[None] = Future()
            made[each.topic] = future
            if self.refusal is None:
                future.set_result(None)
            else:
                future.set_exception(KafkaException(KafkaError(self.refusal)))
        return made


Admin = Callable[..., FakeAdmin]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Admin:
    def make(*there: str, refusal: int | None = None) -> FakeAdmin:
        made = FakeAdmin(list(there), refusal)
        monkeypatch.setattr("kafka_keyshared.dlq.topics.AdminClient", lambda conf: made)
        return made

    return make


def required(*, create: bool) -> None:
    topics = ["orders.dlq", "payments.dlq"]
    require_topics({"bootstrap.servers": "b:1"}, topics, create=create, timeout=1.0)


def test_dead_letter_topics_that_are_there_are_left_alone(admin: Admin) -> None:
    made = admin("orders.dlq", "payments.dlq")
    required(create=True)
    assert made.asked == []


def test_only_what_is_missing_is_made_and_only_when_that_is_wanted(admin: Admin) -> None:
    made = admin("orders.dlq")
    with pytest.raises(TopicMissingError, match=r"'payments\.dlq' does not exist.*dlq_create"):
        required(create=False)
    assert made.asked == []
    required(create=True)
    assert made.asked == ["payments.dlq"]


def test_a_topic_that_another_instance_has_just_made_is_no_failure(admin: Admin) -> None:
    admin(refusal=KafkaError.TOPIC_ALREADY_EXISTS)
    required(create=True)
    admin(refusal=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicMissingError, match="could not be created"):
        required(create=True)
