"""What the client's port asks of ``confluent_kafka.Consumer``, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, Right
from kafka_keyshared.errors import ConfigError, TopicMissingError
from kafka_keyshared.model import TopicPartition
from tests.support.offline_instance import CONF
from tests.support.records import P0, P1


class Scripted:
    """Has the methods of a consumer, and answers as a test says; keeps what it was asked.

    ``answers`` has for a method what it returns or raises, a callable gets the arguments. A method
    that a consumer does not have is a mistake of the caller.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        assert hasattr(Consumer, name), f"a consumer has no {name}"

        def call(*given: Any, **named: Any) -> Any:
            self.asked.append((name, given, named))
            answer = self.answers.get(name)
            if isinstance(answer, BaseException):
                raise answer
            return answer(*given, **named) if callable(answer) else answer

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The arguments that a method was called with."""
        return [given for method, given, _ in self.asked if method == name]


Made = tuple[KafkaClient, Scripted]
Make = Callable[..., Made]


@pytest.fixture
def make() -> Iterator[Make]:
    live: list[Consumer] = []

    def one(*topics: str, **conf: Any) -> Made:
        settings = {**CONF, **{name.replace("_", "."): value for name, value in conf.items()}}
        client, scripted = KafkaClient(settings, topics or ["orders"], answered.append), Scripted()
        live.append(client.consumer)
        client.consumer = scripted  # type: ignore[assignment]
        return client, scripted

    answered: list[CommitAnswer] = []
    yield one
    for each in live:
        each.close()


def no_answer() -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT))


# --- the ends of logs ---


def test_the_ends_of_logs_come_from_what_the_client_has_heard(make: Make) -> None:
    client, scripted = make()
    client.assign({P0: 0, P1: 0, TopicPartition("orders", 2): 0})

    def bounds(asked: ClientPartition, cached: bool) -> tuple[int, int]:
        assert cached, "a status must not wait for a broker"
        if asked.partition == 1:
            raise no_answer()
        return (0, 9) if asked.partition == 0 else (-1001, -1001)

    scripted.answers["get_watermark_offsets"] = bounds
    assert client.log_ends() == {P0: 9}


# --- positions ---


def test_positions_are_those_of_assigned_partitions_that_have_one(make: Make) -> None:
    client, scripted = make()
    assert client.positions() == {}
    assert scripted.asked == [], "nothing is assigned, so nothing is asked"
    client.assign({P0: 4, P1: None})
    scripted.answers["position"] = lambda asked: [
        ClientPartition(each.topic, each.partition, 7 if each.partition == 0 else -1001)
        for each in asked
    ]
    assert client.positions() == {P0: 7}
    before = len(scripted.asked)
    assert client.positions([P1]) == {}
    assert client.positions([P0, TopicPartition("others", 3)]) == {P0: 7}
    assert len(scripted.asked) == before + 2
    assert client.positions([TopicPartition("others", 3)]) == {}
    assert len(scripted.asked) == before + 2, "nothing of it is assigned, so nothing is asked"
    client.released([P0])
    assert client.positions() == {}


def test_an_error_in_an_answer_is_no_answer(make: Make) -> None:
    client, scripted = make()
    refused = SimpleNamespace(
        topic=P0.topic, partition=0, offset=9, metadata="", error=KafkaError(KafkaError._TIMED_OUT)
    )
    scripted.answers["committed"] = lambda asked, timeout: [refused]
    assert client.committed([P0], 1.0) == {}


def test_a_position_whose_metadata_cannot_be_read_is_known_without_a_set(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreadable:
        topic, partition, offset, error = P0.topic, P0.partition, 9, None
        leader_epoch = None

        @property
        def metadata(self) -> str:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    client, scripted = make()
    scripted.answers["committed"] = lambda asked, timeout: [Unreadable()]
    assert client.committed([P0], 1.0) == {P0: CommittedOffset(9, None)}
    assert "reading from the committed offset 9 without a settled set" in caplog.text


# --- commits ---


@pytest.mark.parametrize(
    ("held", "end", "committed"), [(7, 9, 7), (-1, 9, 9), (-1, None, -1)], ids=str
)
def test_the_leader_epoch_of_a_commit_is_the_held_records_or_that_of_the_end(
    make: Make, held: int, end: int | None, committed: int
) -> None:
    client, scripted = make()
    client.assign({P0: 0})
    scripted.answers["position"] = lambda asked: [
        SimpleNamespace(topic=P0.topic, partition=0, offset=5, leader_epoch=end)
    ]
    client.positions()
    client.commit(Commit({P0: CommitEntry(5, "set", held)}))
    (_, _, sent) = scripted.asked[-1]
    (entry,) = sent["offsets"]
    assert (entry.offset, entry.metadata, sent["asynchronous"]) == (5, "set", True)
    assert (entry.leader_epoch if entry.leader_epoch is not None else -1) == committed


def test_a_commit_of_many_partitions_looks_for_no_epoch_among_all_of_them(make: Make) -> None:
    """With a thousand of them that took the owner half a second, once a second."""
    many = [TopicPartition("orders", number) for number in range(100)]
    looked: list[int] = []

    class End:
        topic, error, leader_epoch = "orders", None, 3

        def __init__(self, partition: int) -> None:
            self.partition = partition

        @property
        def offset(self) -> int:
            looked.append(self.partition)
            return 5

    client, scripted = make()
    client.assign(dict.fromkeys(many, 0))
    scripted.answers["position"] = lambda asked: [End(each.partition) for each in asked]
    client.positions()
    looked.clear()
    client.commit(Commit(dict.fromkeys(many, CommitEntry(5, ""))))
    (_, _, sent) = scripted.asked[-1]
    assert {each.leader_epoch for each in sent["offsets"]} == {3}
    assert len(looked) == len(many)


# --- the group ---


def test_callbacks_of_ours_come_first_and_the_users_get_the_clients_partitions(make: Make) -> None:
    client, scripted = make()
    heard: list[tuple[str, list[Any]]] = []
    client.users = {"on_revoke": lambda given: heard.append(("theirs", given))}
    ours = {
        name: (lambda given, name=name: heard.append((name, given)))
        for name in ("on_assign", "on_revoke", "on_lost")
    }
    client.subscribe(*ours.values())
    ((_, (topics,), callbacks),) = scripted.asked
    assert topics == ["orders"]
    partitions = [ClientPartition(*P0)]
    for name in ours:
        callbacks[name](scripted, partitions)
    assert heard == [
        ("on_assign", [P0]),
        ("on_revoke", [P0]),
        ("theirs", partitions),
        ("on_lost", [P0]),
    ]


def test_a_pattern_that_the_client_does_not_take_is_named(make: Make) -> None:
    client, scripted = make("^orders(")
    scripted.answers["subscribe"] = KafkaException(KafkaError(KafkaError._INVALID_ARG))
    with pytest.raises(ConfigError, match=r"'\^orders\('"):
        client.subscribe(print, print, print)


def metadata(**topics: KafkaError | None) -> Any:
    return SimpleNamespace(
        brokers={1: None},
        topics={
            name: SimpleNamespace(error=error, partitions={0: None})
            for name, error in topics.items()
        },
    )


def test_a_topic_that_is_missing_is_named_with_those_that_are_there(make: Make) -> None:
    client, scripted = make("orders", "payments")
    gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    scripted.answers["list_topics"] = metadata(orders=None, payments=gone, returns=None)
    scripted.answers["committed"] = [ClientPartition("payments", 0)]
    with pytest.raises(TopicMissingError, match=r"'payments' does not exist.*returns"):
        client.check_topics(1.0)
    scripted.answers["list_topics"] = metadata(orders=None, payments=None)
    assert client.check_topics(1.0) == ["orders", "payments"]


def test_a_topic_that_may_not_be_described_is_noted_as_refused_and_not_called_missing(
    make: Make,
) -> None:
    client, scripted = make("orders", "payments")
    scripted.answers["list_topics"] = metadata(orders=None)
    hidden = SimpleNamespace(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    scripted.answers["committed"] = [hidden]
    assert client.check_topics(1.0) == ["orders"]
    (refusal,) = client.refusals()
    assert (refusal.right, refusal.topic, refusal.partition) == (Right.TOPIC, "payments", None)
    assert client.refusals() == []
    scripted.answers["committed"] = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(TopicMissingError, match="'payments' does not exist"):
        client.check_topics(1.0)


def test_a_pattern_that_matches_nothing_yet_is_said_and_waited_for(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    client, scripted = make("^orders-.*")
    scripted.answers["list_topics"] = metadata(orders=None)
    assert client.check_topics(1.0) == ["orders"]
    assert "pattern ^orders-.* matches none of the 1 topics there" in caplog.text


@pytest.mark.parametrize("users", [False, True])
def test_a_consumer_is_not_asked_for_topics_inside_its_callbacks(make: Make, users: bool) -> None:
    """The next callback of the same poll would end the process."""
    client, scripted = make()
    scripted.answers["offsets_for_times"] = no_answer()
    found: list[object] = []

    def ask(_partitions: object) -> None:
        found.append(client.log_bounds([P0, P1], 0.1))

    def seek(_partitions: object) -> None:
        client.calls.chosen[P0] = 1

    def ours(partitions: object) -> None:
        if not users:
            ask(partitions)

    client.users, client.start_at = ({"on_assign": seek} if users else {}), ask
    client.subscribe(ours, ours, ours)
    on_assign = next(named for method, _, named in scripted.asked if method == "subscribe")
    on_assign["on_assign"](client.consumer, [ClientPartition(*P0)])
    assert found == [{}]
    assert scripted.of("list_topics") == []


def test_outside_callbacks_the_consumer_itself_learns_new_leaders(make: Make) -> None:
    client, scripted = make()
    scripted.answers["offsets_for_times"] = no_answer()
    scripted.answers["list_topics"] = metadata(orders=None)
    assert client.log_bounds([P0, P1], 0.1) == {}
    assert scripted.of("list_topics")


# --- what the client says of itself ---


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_whoever_reads_looks_after_an_outage_and_the_last_reason_is_kept(
    make: Make, call: str
) -> None:
    """An owner whose workers are busy consumes and does not poll, for minutes."""
    client, scripted = make()
    client._outages.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    client._outages._ask_at = 0.0
    getattr(client, call)(0)
    assert scripted.of("list_topics") == [("orders",)], "it asks whether a broker is back"
    client._outages.heard(KafkaError(KafkaError._FATAL, "fenced", fatal=True))
    assert client.last_error == "fenced"
