"""What the loop relies on in its client: the real one on both clusters, and those that stand in.

Each test runs against ``KafkaClient``, against ``SimClient`` of the simulation and against
``FakeClient`` of the loop's tests, as a member of an eager and of a cooperative group. What stands
in may be simpler than the real client; it may not be kinder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException

from kafka_keyshared.client import topic_ids
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.testing.clusters.cluster import Cluster, admin_client
from kafka_keyshared.testing.clusters.node import free_ports
from tests.conformance.client_sides import (
    PATIENCE,
    Fake,
    Real,
    Side,
    Simulated,
    offsets,
    read,
    take,
)
from tests.support.live_cluster import client_conf, group_name
from tests.support.loop_ports import FakeClient


@pytest.fixture(params=["eager", "cooperative"])
def protocol(request: pytest.FixtureRequest) -> str:
    """How partitions come and go."""
    return str(request.param)


@pytest.fixture(params=["double", "simulated", "embedded", "real"])
def side(request: pytest.FixtureRequest, protocol: str, topic: str) -> Iterator[Side]:
    """The client under test."""
    if request.param == "double":
        yield Fake(cooperative=protocol == "cooperative")
        return
    if request.param == "simulated":
        yield Simulated(protocol=protocol)
        return
    made = Real(request.getfixturevalue(f"{request.param}_cluster"), topic, protocol=protocol)
    yield made
    made.client.close()


def rounds(side: Side, live: TopicPartition, begin: int, times: int = 4) -> list[Record]:
    """Take new records of the one partition, some fetches long; return all that came."""
    found: list[Record] = []
    for number in range(times):
        side.write(live, 1)
        found += read(side, live, begin + number)
    return found


# --- pauses ---


def test_a_partition_that_was_paused_when_it_went_is_paused_when_it_comes_back(
    side: Side,
) -> None:
    first, second = side.first, side.second
    side.write(first, 5)
    side.write(second, 5)
    side.client.assign({first: 0, second: 0})
    side.client.pause([first])
    assert offsets(read(side, second, 4), first) == []
    side.take_away(first, second)
    side.client.assign({first: 2, second: 5})
    assert offsets(rounds(side, second, 5), first) == []
    side.client.resume([first])
    assert offsets(read(side, first, 4), first) == [2, 3, 4]


def test_pausing_ends_the_delivery_at_once_and_loses_nothing(side: Side) -> None:
    first, second = side.first, side.second
    side.write(first, 300)
    side.client.assign({first: 0, second: 0})
    begun = offsets(take(side, bool), first)
    side.client.pause([first])
    assert offsets(rounds(side, second, 0), first) == []
    side.client.resume([first])
    if begun[-1] < 299:
        begun += offsets(read(side, first, 299), first)
    assert begun == list(range(300))


def test_a_resume_of_what_was_not_paused_loses_and_repeats_nothing(side: Side) -> None:
    first = side.first
    side.write(first, 300)
    side.client.assign({first: 0})
    side.client.resume([first])
    found: list[int] = []
    deadline = side.now() + PATIENCE
    while not found or found[-1] < 299:
        assert side.now() < deadline, found
        found += offsets(side.client.consume(20), first)
        side.client.resume([first])
        side.meanwhile()
    assert found == list(range(300))


def test_what_is_not_assigned_is_neither_paused_nor_resumed(side: Side) -> None:
    first, second = side.first, side.second
    side.write(first, 3)
    side.client.pause([first, second])
    side.client.assign({first: 0, second: 0})
    assert offsets(read(side, first, 2), first) == [0, 1, 2]
    side.client.pause([first])
    side.take_away(first, second)
    side.client.resume([first, second])
    side.client.assign({first: 0, second: 0})
    assert offsets(rounds(side, second, 0), first) == []


def test_a_pause_outlasts_a_seek_and_a_restart(side: Side) -> None:
    first, second = side.first, side.second
    side.write(first, 5)
    side.write(second, 1)
    side.client.assign({first: 0, second: 0})
    take(side, lambda found: len(found) == 6)
    side.client.pause([first])
    side.client.seek(first, 1)
    assert offsets(rounds(side, second, 1), first) == []
    side.client.restart({first: 2, second: 1}, [first])
    assert offsets(rounds(side, second, 5), first) == []
    side.client.resume([first])
    assert offsets(read(side, first, 4), first) == [2, 3, 4]


# --- assigning ---


def test_an_assignment_replaces_in_an_eager_group_and_adds_in_a_cooperative_one(
    side: Side, protocol: str
) -> None:
    first, second = side.first, side.second
    side.write(first, 2)
    side.client.assign({first: 0})
    assert offsets(read(side, first, 1), first) == [0, 1]
    side.client.assign({second: 0})
    side.write(first, 1)
    if protocol == "eager":
        assert offsets(rounds(side, second, 0), first) == []
        assert first not in side.client.positions()
    else:
        assert offsets(read(side, first, 2), first) == [2]
        assert offsets(rounds(side, second, 0), second) == [0, 1, 2, 3]


def test_a_partition_that_comes_back_starts_where_its_assignment_says(side: Side) -> None:
    side.write(side.first, 10)
    side.client.assign({side.first: 0})
    read(side, side.first, 9)
    side.take_away(side.first)
    side.client.assign({side.first: 4})
    assert offsets(read(side, side.first, 9), side.first) == [4, 5, 6, 7, 8, 9]


def test_a_restart_moves_the_one_and_the_other_goes_on(side: Side) -> None:
    first, second = side.first, side.second
    side.write(first, 5)
    side.write(second, 5)
    side.client.assign({first: 0, second: 0})
    take(side, lambda found: len(found) == 10)
    side.client.restart({first: 3, second: 5}, [first])
    side.write(second, 1)
    found = take(side, lambda found: len(found) >= 3)
    assert offsets(found, first) == [3, 4]
    assert offsets(found, second) == [5]


# --- places ---


def test_a_position_is_known_once_something_was_taken(side: Side) -> None:
    """Neither an assignment nor a seek nor a restart is a position; what is gone has none."""
    first, second = side.first, side.second
    side.write(first, 5)
    assert side.client.positions() == {}
    side.client.assign({first: 1, second: 0})
    assert side.client.positions() == {}
    read(side, first, 4)
    assert side.client.positions() == side.client.positions([first]) == {first: 5}
    assert side.client.positions([second]) == {}
    side.client.pause([first])
    side.client.seek(first, 2)
    assert side.client.positions() == {}
    side.client.resume([first])
    read(side, first, 4)
    assert side.client.positions() == {first: 5}
    side.client.restart({first: 3}, [first])
    assert side.client.positions() == {}
    read(side, first, 4)
    assert side.client.positions() == {first: 5}
    side.take_away(first, second)
    assert side.client.positions() == {}
    side.client.assign({first: 5, second: 0})
    assert side.client.positions() == {}


def test_a_seek_of_what_is_not_assigned_is_refused(side: Side) -> None:
    side.client.assign({side.first: 0})
    with pytest.raises(KafkaException):
        side.client.seek(side.second, 0)


def test_a_seek_without_a_position_goes_where_a_start_without_one_would(side: Side) -> None:
    side.write(side.first, 3)
    side.client.assign({side.first: None})
    assert offsets(read(side, side.first, 2), side.first) == [0, 1, 2]
    side.client.seek(side.first, None)
    assert offsets(read(side, side.first, 2), side.first) == [0, 1, 2]


def test_no_call_returns_more_than_it_was_asked_for(side: Side) -> None:
    side.write(side.first, 50)
    side.client.assign({side.first: 0})
    take(side, bool)  # a seek is refused before the partition is being fetched from
    side.client.seek(side.first, 0)
    found: list[int] = []
    sizes: list[int] = []
    deadline = side.now() + PATIENCE
    while len(found) < 50:
        assert side.now() < deadline, found
        side.meanwhile()
        chunk = side.client.consume(7)
        sizes.append(len(chunk))
        found += offsets(chunk, side.first)
    assert max(sizes) == 7
    assert found == list(range(50))


# --- the ends of the log ---


def test_the_bounds_of_a_log_and_its_end_as_last_heard(side: Side) -> None:
    first, second = side.first, side.second
    side.write(first, 4)
    side.client.assign({first: 0, second: 0})
    read(side, first, 3)
    assert side.client.log_ends()[first] == 4
    side.write(first, 2)
    assert side.client.log_bounds([first], PATIENCE)[first][:2] == (0, 6)
    side.take_away(first, second)
    assert first not in side.client.log_ends()


def test_of_a_paused_partition_no_new_end_is_heard(side: Side) -> None:
    """So what is not fetched from shows no lag but what it had when it was paused."""
    first, second = side.first, side.second
    side.write(first, 4)
    side.client.assign({first: 0, second: 0})
    read(side, first, 3)
    side.client.pause([first])
    rounds(side, second, 0)  # what was asked for before the pause has been answered
    side.write(first, 2)
    rounds(side, second, 4)
    assert side.client.log_ends()[first] == 4
    side.client.resume([first])
    read(side, first, 5)
    assert side.client.log_ends()[first] == 6


# --- which topic it is ---


def ids_of(side: Side, *topics: str) -> dict[str, str]:
    """Ask, and wait for the answer in turns, as whoever has other things to do."""
    asked = side.client.ask_topic_ids(topics)
    deadline = side.now() + PATIENCE
    while (found := asked.answer(0.0)) is None:
        assert side.now() < deadline, "not even that nobody answers is said"
        side.meanwhile()
    assert asked.answer(PATIENCE) == found, "it is told again"
    return found


def test_a_topic_has_an_id_that_stays_where_brokers_have_ids(
    side: Side, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not there has none, and an embedded cluster tells none of anything."""
    monkeypatch.setattr(topic_ids, "ANSWER_WITHIN", 2.0)
    topic = side.first.topic
    found = ids_of(side, topic, "nowhere")
    if request.node.callspec.params["side"] == "embedded":
        assert found == {}
        return
    assert list(found) == [topic]
    assert ids_of(side, topic) == found


# --- whether anybody is there ---


def test_a_broker_that_is_there_answers(side: Side) -> None:
    assert side.client.answers(PATIENCE)


def test_a_broker_answers_whoever_asks_by_a_pattern(
    real_cluster: Cluster, embedded_cluster: Cluster
) -> None:
    """A pattern is the name of no topic; the question is answered all the same."""
    pattern = "^orders-.*"
    for cluster in (real_cluster, embedded_cluster):
        client = KafkaClient(client_conf(cluster, group_name()), [pattern], lambda sent: None)
        assert client.answers(PATIENCE)
        assert pattern not in admin_client(cluster.bootstrap).list_topics().topics
        client.close()


def test_nobody_answers_for_a_broker_that_is_away() -> None:
    """The real client waits for as long as it was told, the others for as long in their time."""
    waited: list[float] = []
    simulated = Simulated(protocol="eager")
    simulated.cluster.outage(60)
    double = FakeClient(time.monotonic)
    double.there, double.wait = False, waited.append
    conf = {"bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}", "group.id": "g", "log_level": 0}
    real = KafkaClient(conf, ["orders"], lambda sent: None)
    assert not double.answers(0.2)
    assert waited == [0.2]
    began = simulated.now()
    assert not simulated.client.answers(0.2)
    assert simulated.now() - began == pytest.approx(0.2)
    assert not real.answers(0.2)
    real.close()
