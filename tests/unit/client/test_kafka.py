"""The client's edge: the error classifier, shields, answers of commits, messages for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client import kafka
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import (
    CommittedOffset,
    EventKind,
    classify_commit,
    classify_event,
    is_cooperative,
)
from kafka_keyshared.client.safe_callbacks import shielded
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.errors import BrokerUnavailableError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.testing.clusters.node import free_ports
from tests.support.records import P0, P1

P2 = TopicPartition(P0.topic, 2)

E = KafkaError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (E._PARTITION_EOF, EventKind.END_OF_PARTITION),
        (E._MAX_POLL_EXCEEDED, EventKind.MAX_POLL_EXCEEDED),
        (E.TOPIC_AUTHORIZATION_FAILED, EventKind.REFUSED),
        (E.GROUP_AUTHORIZATION_FAILED, EventKind.REFUSED),
        (E.CLUSTER_AUTHORIZATION_FAILED, EventKind.TRANSIENT),
        (E.SASL_AUTHENTICATION_FAILED, EventKind.TRANSIENT),
        (E._AUTHENTICATION, EventKind.TRANSIENT),
        (E._FATAL, EventKind.FATAL),
        (E.FENCED_INSTANCE_ID, EventKind.FATAL),
        (E._ALL_BROKERS_DOWN, EventKind.TRANSIENT),
        (E._TRANSPORT, EventKind.TRANSIENT),
        (E.UNKNOWN_TOPIC_OR_PART, EventKind.TRANSIENT),
        (E.NOT_COORDINATOR, EventKind.TRANSIENT),
        (E._TIMED_OUT, EventKind.TRANSIENT),
    ],
)
def test_what_an_event_means(code: int, kind: EventKind) -> None:
    assert classify_event(KafkaError(code)) is kind


def test_an_error_that_the_client_calls_fatal_is_fatal_whatever_its_code() -> None:
    assert classify_event(KafkaError(E._TRANSPORT, "gone", True)) is EventKind.FATAL


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (E.UNKNOWN_MEMBER_ID, CommitResult.LOST),
        (E._FATAL, CommitResult.LOST),
        (E.ILLEGAL_GENERATION, CommitResult.LOST),
        (E.FENCED_INSTANCE_ID, CommitResult.LOST),
        (E._ASSIGNMENT_LOST, CommitResult.LOST),
        (E._MAX_POLL_EXCEEDED, CommitResult.LOST),
        (E.OFFSET_METADATA_TOO_LARGE, CommitResult.TOO_LARGE),
        (E.GROUP_AUTHORIZATION_FAILED, CommitResult.DENIED),
        (E.TOPIC_AUTHORIZATION_FAILED, CommitResult.DENIED),
        (E.REBALANCE_IN_PROGRESS, CommitResult.RETRY),
        (E.COORDINATOR_LOAD_IN_PROGRESS, CommitResult.RETRY),
        (E._TIMED_OUT, CommitResult.RETRY),
        (E._TRANSPORT, CommitResult.RETRY),
    ],
)
def test_what_the_answer_to_a_commit_means(code: int, result: CommitResult) -> None:
    assert classify_commit(KafkaError(code)) is result


def test_no_error_means_accepted() -> None:
    assert classify_commit(None) is CommitResult.ACCEPTED


@pytest.mark.parametrize(
    ("conf", "cooperative"),
    [
        ({}, False),
        ({"partition.assignment.strategy": "range,roundrobin"}, False),
        ({"partition.assignment.strategy": "cooperative-sticky"}, True),
        ({"group.protocol": "consumer"}, True),
        ({"group.protocol": "Classic"}, False),
    ],
)
def test_how_partitions_come_and_go(conf: dict[str, Any], cooperative: bool) -> None:
    assert is_cooperative(conf) is cooperative


def test_no_exception_leaves_a_shielded_callback(caplog: pytest.LogCaptureFixture) -> None:
    def callback(*_args: Any) -> None:
        raise ZeroDivisionError

    ended: list[BaseException] = []
    shielded(callback, "stats_cb", ended.append)("statistics")
    assert "stats_cb failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert ended == []


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_is_to_end_the_program_does_not_leave_a_shielded_callback_either(
    kind: type[BaseException],
) -> None:
    def callback(*_args: Any) -> None:
        raise kind

    ended: list[BaseException] = []
    shielded(callback, "error_cb", ended.append)("error")
    assert [type(each) for each in ended] == [kind]


# --- the real client, with nobody at the other end ---


class Nowhere:
    """A client whose consumer's methods are replaced as a test needs them."""

    def __init__(self, **more: Any) -> None:
        self.answers: list[CommitAnswer] = []
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        conf = {"bootstrap.servers": self.address, "group.id": "g", "log_level": 0, **more}
        self.client = KafkaClient(conf, ["orders"], self.answers.append)


@pytest.fixture
def nowhere() -> Iterator[Callable[..., Nowhere]]:
    made: list[Nowhere] = []

    def make(**more: Any) -> Nowhere:
        names = {name: name if name.endswith("_cb") else name.replace("_", ".") for name in more}
        made.append(Nowhere(**{names[name]: value for name, value in more.items()}))
        return made[-1]

    yield make
    for each in made:
        each.client.close()


Make = Callable[..., Nowhere]


class FakeConsumer:
    """Records what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fails: list[BaseException] = []
        self.shown: list[dict[int, int]] = []
        self.found: Callable[[list[ClientPartition]], list[ClientPartition]] = lambda asked: asked

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> None:
            self.calls.append((name, args[0] if args else kwargs))
            if self.fails:
                raise self.fails.pop(0)

        return call

    def position(self, asked: list[ClientPartition]) -> list[ClientPartition]:
        """Return what the client shows: nothing, unless a test says otherwise."""
        shown = self.shown.pop(0) if self.shown else {}
        offsets = [shown.get(each.partition, OFFSET_INVALID) for each in asked]
        return [
            ClientPartition(each.topic, each.partition, offset)
            for each, offset in zip(asked, offsets, strict=True)
        ]

    def committed(self, asked: list[ClientPartition], timeout: float) -> list[ClientPartition]:
        self.calls.append(("committed", len(asked)))
        if self.fails:
            raise self.fails.pop(0)
        return self.found(asked)


@pytest.fixture
def fake(nowhere: Make) -> tuple[Nowhere, FakeConsumer]:
    made, consumer = nowhere(), FakeConsumer()
    made.client.close()
    made.client.consumer = consumer  # type: ignore[assignment]
    return made, consumer


def test_an_unreachable_cluster_is_named_with_what_to_try(nowhere: Make) -> None:
    made = nowhere()
    with pytest.raises(BrokerUnavailableError) as caught:
        made.client.check_topics(0.5)
    said = str(caught.value)
    assert made.address in said
    assert "no broker answered" in said
    assert "security.protocol" in said
    assert "Connection refused" in said, "the reason, not that every broker is down"
    assert caught.value.exit_code == 1


def test_the_users_callbacks_are_kept_and_shielded(
    nowhere: Make, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def users(error: KafkaError) -> None:
        seen.append(error.str())
        raise ZeroDivisionError

    made = nowhere(error_cb=users)
    deadline = 100
    while not seen and deadline:
        made.client.poll(0.1)
        deadline -= 1
    assert seen
    assert made.client.last_error
    assert "error_cb failed" in caplog.text


def entry(position: int) -> CommitEntry:
    return CommitEntry(position, "")


def test_a_fetch_takes_what_is_there_without_waiting(fake: tuple[Nowhere, FakeConsumer]) -> None:
    made, consumer = fake
    asked: list[tuple[object, ...]] = []
    consumer.consume = lambda *args: asked.append(args)  # type: ignore[attr-defined]
    made.client.consume(1_000)
    assert asked == [(1_000, 0)]


def test_each_answer_finds_its_commit(fake: tuple[Nowhere, FakeConsumer]) -> None:
    made, _ = fake
    first, second = Commit({P0: entry(5), P1: entry(7)}), Commit({P0: entry(6)})
    assert made.client.commit(first) is None
    assert made.client.commit(second) is None
    made.client._on_commit(KafkaError(E._TIMED_OUT), [ClientPartition(*P0, 6)])
    made.client._on_commit(None, [ClientPartition(*P1, 7), ClientPartition(*P0, 5)])
    made.client._on_commit(None, [ClientPartition(*P0, 6)])
    assert [(each.commit, each.result) for each in made.answers] == [
        (second, CommitResult.RETRY),
        (first, CommitResult.ACCEPTED),
    ]


def test_commits_of_one_partition_are_told_apart_by_their_positions(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    """Two are in flight at a stop; the wrong one taken as accepted would be more than is stored."""
    made, _ = fake
    lower, higher = Commit({P0: entry(5)}), Commit({P0: entry(6)})
    for each in (lower, higher):
        made.client.commit(each)
    made.client._on_commit(None, [ClientPartition(*P0, 4)])
    assert made.answers == [], "an answer to nothing that was sent"
    made.client._on_commit(KafkaError(E._TIMED_OUT), [ClientPartition(*P0, 6)])
    made.client._on_commit(None, [ClientPartition(*P0, 5)])
    assert [(each.commit, each.result) for each in made.answers] == [
        (higher, CommitResult.RETRY),
        (lower, CommitResult.ACCEPTED),
    ]


def test_commits_of_one_position_are_told_apart_by_their_sets(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    """Behind a slow record only the set grows, and the client may repeat the earlier one last."""
    made, _ = fake
    earlier, later = Commit({P0: CommitEntry(5, "")}), Commit({P0: CommitEntry(5, "set")})
    for each in (earlier, later):
        made.client.commit(each)
    made.client._on_commit(None, [ClientPartition(*P0, 5, "set")])
    made.client._on_commit(None, [ClientPartition(*P0, 5)])
    assert [each.commit for each in made.answers] == [later, earlier]


def test_an_error_of_one_partition_is_an_error_of_the_commit(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    made, _ = fake
    made.client.commit(Commit({P0: entry(5)}))

    class Refused:
        topic, partition, offset, metadata = P0.topic, P0.partition, 5, None
        error = KafkaError(E.OFFSET_METADATA_TOO_LARGE)

    made.client._on_commit(None, [Refused()])  # type: ignore[list-item]
    assert [each.result for each in made.answers] == [CommitResult.TOO_LARGE]


def test_a_commit_that_fails_at_once_is_answered_at_once(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    made, consumer = fake
    consumer.fails.append(KafkaException(KafkaError(E.UNKNOWN_MEMBER_ID)))
    commit = Commit({P0: entry(5)})
    answer = made.client.commit(commit)
    assert answer is not None
    assert (answer.commit, answer.result) == (commit, CommitResult.LOST)
    made.client._on_commit(None, [ClientPartition(*P0, 5)])
    assert made.answers == [], "it is not answered twice"


def test_metadata_that_cannot_be_read_costs_only_its_own_partition(
    fake: tuple[Nowhere, FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    made, consumer = fake

    def found(asked: list[ClientPartition]) -> list[ClientPartition]:
        if any(each.partition == 0 for each in asked):
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        return [ClientPartition(each.topic, each.partition, 9, "text") for each in asked]

    consumer.found = found
    # Without a position it would start where the reset policy says, and leave records out.
    assert made.client.committed([P0, P1], 1.0) == {P1: CommittedOffset(9, "text")}
    assert f"{P0}: the commit metadata cannot be read" in caplog.text


def test_no_committed_offset_is_none(fake: tuple[Nowhere, FakeConsumer]) -> None:
    made, consumer = fake
    consumer.found = lambda asked: [ClientPartition(*P0, OFFSET_INVALID)]
    assert made.client.committed([P0], 1.0) == {P0: CommittedOffset(None, None)}


def test_only_assigned_partitions_are_paused_and_resumed(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    made, consumer = fake
    made.client.assign({P0: 4, P1: None})
    made.client.released([P1])
    made.client.pause([P0, P1, TopicPartition("other", 3)])
    made.client.resume([P1])
    (_, assigned), (name, paused) = consumer.calls
    assert [(each.partition, each.offset) for each in assigned] == [(0, 4), (1, OFFSET_END)]
    assert name == "pause"
    assert [(each.topic, each.partition) for each in paused] == [tuple(P0)]


@pytest.mark.parametrize(
    ("reset", "logical"),
    [("earliest", OFFSET_BEGINNING), ("latest", OFFSET_END), (None, OFFSET_END)],
)
def test_a_seek_without_a_position_follows_the_reset_policy(
    nowhere: Make, reset: str | None, logical: int
) -> None:
    made = nowhere(**({"auto_offset_reset": reset} if reset else {}))
    made.client.close()
    consumer = FakeConsumer()
    made.client.consumer = consumer  # type: ignore[assignment]
    made.client.seek(P0, None)
    made.client.seek(P0, 17)
    assert [each.offset for _, each in consumer.calls] == [logical, 17]


@pytest.fixture
def group_of(nowhere: Make) -> Callable[[str], tuple[KafkaClient, FakeConsumer]]:
    """A client of a group with this assignment strategy, over a consumer that records."""

    def make(strategy: str) -> tuple[KafkaClient, FakeConsumer]:
        made = nowhere(partition_assignment_strategy=strategy, auto_offset_reset="latest")
        made.client.close()
        consumer = FakeConsumer()
        made.client.consumer = consumer  # type: ignore[assignment]
        return made.client, consumer

    return make


def told(consumer: FakeConsumer) -> list[tuple[str, list[tuple[int, int]]]]:
    """What the consumer was told since it was last asked: the call, and partitions with offsets."""
    calls = [
        (name, [(each.partition, each.offset) for each in asked]) for name, asked in consumer.calls
    ]
    consumer.calls.clear()
    return calls


def test_an_eager_assignment_is_given_anew_as_a_whole_at_the_places_that_are_given(
    group_of: Callable[[str], tuple[KafkaClient, FakeConsumer]],
) -> None:
    client, consumer = group_of("range")
    client.assign({P0: 8, P1: 5, P2: None})
    consumer.calls.clear()
    client.restart({P0: 3, P1: 5}, {P0})
    assert told(consumer) == [("assign", [(0, 3), (1, 5), (2, OFFSET_END)])]


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_a_restart_is_over_when_the_client_shows_no_old_position_any_more(
    group_of: Callable[[str], tuple[KafkaClient, FakeConsumer]], protocol: str
) -> None:
    """What an old position says would count as received, and be passed unread."""
    client, consumer = group_of(protocol)
    client.assign({P0: 8, P1: 5})
    consumer.shown = [{0: 900, 1: 7}, {0: 900, 1: 7}, {0: 900}, {1: 6}]
    client.restart({P0: 3, P1: 7}, [P0])
    assert consumer.shown in ([], [{1: 6}])
    assert P0 not in client.positions()


def test_a_restart_that_the_client_does_not_carry_out_is_refused(
    group_of: Callable[[str], tuple[KafkaClient, FakeConsumer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka, "MOVE_TIMEOUT", 0.0)
    client, consumer = group_of("range")
    client.assign({P0: 8})
    consumer.shown = [{0: 900}] * 10
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        client.restart({P0: 3}, [P0])


def test_of_a_cooperative_assignment_only_what_moved_is_given_anew(
    group_of: Callable[[str], tuple[KafkaClient, FakeConsumer]],
) -> None:
    client, consumer = group_of("cooperative-sticky")
    client.assign({P0: 8, P1: 5, P2: 1})
    consumer.calls.clear()
    client.restart({P0: 3, P1: 5, P2: 2}, [P0, P2])
    (gone, old), (come, new) = told(consumer)
    assert (gone, [number for number, _ in old]) == ("incremental_unassign", [0, 2])
    assert (come, new) == ("incremental_assign", [(0, 3), (2, 2)])


def test_the_epoch_of_what_was_received_is_known_also_before_anything_is_received(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    made, consumer = fake
    consumer.found = lambda asked: [ClientPartition(*P0, 9, "", 4)]
    assert made.client.received_epoch(P0) == -1
    made.client.committed([P0], 1.0)
    assert made.client.received_epoch(P0) == 4
    made.client._ends = {P0: ClientPartition(*P0, 12, "", 6)}
    assert made.client.received_epoch(P0) == 6


def test_a_partition_is_new_that_was_not_there_when_the_topics_were_checked(
    fake: tuple[Nowhere, FakeConsumer],
) -> None:
    made, _ = fake
    assert not made.client.is_new(P1), "nobody has looked"
    made.client._counts = {P0.topic: 1}
    assert not made.client.is_new(P0)
    assert made.client.is_new(P1)
    assert made.client.is_new(TopicPartition("later", 0))


def test_a_partition_that_the_broker_refuses_to_tell_of_is_left_out(
    fake: tuple[Nowhere, FakeConsumer], caplog: pytest.LogCaptureFixture
) -> None:
    made, consumer = fake

    class Refused:
        topic, partition, offset, leader_epoch = P0.topic, P0.partition, -1, None
        error = KafkaError(E.UNSTABLE_OFFSET_COMMIT)

    answer: Any = [Refused(), ClientPartition(*P1, 9)]
    consumer.found = lambda asked: answer
    assert made.client.committed([P0, P1], 1.0) == {P1: CommittedOffset(9, None)}
    assert f"{P0}: no committed position" in caplog.text
