"""Simulated logs: what a reader gets of them, and what the history is told."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException

from kafka_keyshared.client.port import EventKind, classify_event
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.history import (
    Appended,
    CutOff,
    Delivered,
    Misplaced,
    Remade,
    Removed,
)
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess
from kafka_keyshared.model import TopicPartition
from tests.support.simulated_members import TOPIC, Simulation

P0 = TopicPartition(TOPIC, 0)


class Reader:
    """A client that is in no group and reads one partition, and what the history says."""

    def __init__(self, simulation: Simulation, position: int | None = 0) -> None:
        self.simulation = simulation
        self.process = SimulatedProcess(simulation.timeline)
        self.client = SimClient(simulation.cluster, self.process, [TOPIC], lambda _: None, 1)
        self.client.assign({P0: position})
        self.taken: list[int] = []
        self.told: list[EventKind] = []
        self.history: list[Any] = []
        for kind in (Appended, CutOff, Delivered, Remade, Removed):
            simulation.history.listen(kind, self.history.append)

    def read(self, seconds: float = 2.0) -> list[int]:
        """Read for so long; return what has come."""
        until = self.simulation.timeline.now + seconds
        self.taken.clear()
        while (left := until - self.simulation.timeline.now) > 0:
            record = self.client.poll(left)
            if record is not None and record.error() is None:
                self.taken.append(record.offset())
            elif record is not None:
                self.told.append(classify_event(record.error()))
        return self.taken

    def of(self, kind: type[Any]) -> list[Any]:
        """What the history says of that kind."""
        return [each for each in self.history if type(each) is kind]


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(partitions=1)


def test_compaction_leaves_gaps_and_the_newest_record_of_each_key(simulation: Simulation) -> None:
    simulation.cluster.append(P0, [b"a", b"b", b"a", None, b"b", b"a"])
    reader = Reader(simulation)
    simulation.cluster.compact(P0)
    assert reader.read() == [3, 4, 5]
    assert [each.offsets for each in reader.of(Removed)] == [(0, 1, 2)]


def test_what_is_delivered_is_told_by_offsets(simulation: Simulation) -> None:
    simulation.cluster.append(P0, [b"a"] * 6)
    reader = Reader(simulation)
    simulation.cluster.remove(P0, [2, 3])
    found: list[int] = []
    simulation.run(1.0)
    while len(found) < 4:
        found += [each.offset() for each in reader.client.consume(100)]
        simulation.run(0.1)
    told = [offset for each in reader.of(Delivered) for offset in each.offsets]
    assert told == found == [0, 1, 4, 5]


def test_retention_moves_the_start_and_what_was_fetched_before_is_delivered(
    simulation: Simulation,
) -> None:
    simulation.cluster.append(P0, [b"a"] * 10)
    reader = Reader(simulation)
    simulation.run(1.0)
    simulation.cluster.retain_from(P0, 7)
    assert reader.read() == list(range(10))
    assert [each.offsets for each in reader.of(Removed)] == [tuple(range(7))]
    simulation.cluster.append(P0, [b"a"] * 5)
    assert reader.read() == list(range(10, 15))


def test_a_place_that_the_client_does_not_take_in_time_is_told_as_not_known(
    simulation: Simulation,
) -> None:
    """What comes from there is not used, and may be gone from the log when it is told again."""
    simulation.cluster.append(P0, [b"a"] * 5)
    reader = Reader(simulation)
    simulation.history.listen(Misplaced, reader.history.append)
    simulation.cluster.faults.restart_late = 1.0
    with pytest.raises(KafkaException):
        reader.client.restart({P0: 3}, [P0])
    assert reader.of(Misplaced) == [Misplaced(1, (P0,))]


def test_an_unclean_election_is_noticed_also_when_the_log_has_grown_again(
    simulation: Simulation,
) -> None:
    """The client compares epochs (KIP-320)."""
    simulation.cluster.append(P0, [b"a"] * 10)
    reader = Reader(simulation)
    assert reader.read() == list(range(10))
    simulation.cluster.cut_off(P0, 6)
    simulation.cluster.append(P0, [b"b"] * 20)
    assert reader.read() == []
    assert reader.told == [EventKind.OUT_OF_RANGE]
    assert [each.offsets for each in reader.of(Removed)] == [(6, 7, 8, 9)]
    assert reader.of(CutOff) == [CutOff(P0, 6)]
    reader.client.restart({P0: 6}, [P0])
    assert reader.read() == list(range(6, 26))
    assert reader.client.received_epoch(P0) == 1


def test_a_reader_before_the_cut_hears_nothing_of_it(simulation: Simulation) -> None:
    simulation.cluster.append(P0, [b"a"] * 5)
    reader = Reader(simulation)
    assert reader.read() == list(range(5))
    simulation.cluster.append(P0, [b"a"] * 5)
    simulation.cluster.cut_off(P0, 5)
    assert not {5, 6, 7, 8, 9} & set(reader.read())
    simulation.cluster.append(P0, [b"b"])
    assert reader.read() == [5]
    assert reader.told == []


def test_a_topic_made_anew_is_noticed_only_while_it_is_shorter(simulation: Simulation) -> None:
    simulation.cluster.append(P0, [b"a"] * 5)
    reader = Reader(simulation)
    assert reader.read() == list(range(5))
    simulation.cluster.remake(TOPIC)
    simulation.cluster.append(P0, [b"b"] * 8)
    assert reader.read() == [5, 6, 7], "the client cannot tell that it is another log"
    simulation.cluster.remake(TOPIC)
    reader.read()
    assert reader.told == [EventKind.OUT_OF_RANGE]
    assert len(reader.of(Remade)) == 2


def test_records_behind_an_open_transaction_wait_for_its_end(simulation: Simulation) -> None:
    reader = Reader(simulation)
    simulation.cluster.append(P0, [b"a", b"b"], in_transaction=True)
    simulation.cluster.append(P0, [b"c"])
    assert reader.read() == []
    assert not reader.of(Appended)
    simulation.cluster.end_transaction(P0, commit=False)
    assert reader.read() == [2]
    assert [(each.offset, each.key) for each in reader.of(Appended)] == [(2, b"c")]
    assert reader.client.positions() == {P0: 4}, "behind the marker"
    simulation.cluster.skip(P0, 3)
    simulation.cluster.append(P0, [b"d"])
    assert reader.read() == [7]


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", 4)])
def test_without_a_position_the_policy_says_where_it_begins(
    simulation: Simulation, reset: str, first: int
) -> None:
    simulation.cluster.append(P0, [b"a"] * 4)
    reader = Reader(simulation)
    client = SimClient(simulation.cluster, reader.process, [TOPIC], lambda _: None, 2, reset=reset)
    reader.client = client
    client.assign({P0: None})
    simulation.run(1.0)
    simulation.cluster.append(P0, [b"a"] * 2)
    assert reader.read() == list(range(first, 6))
    assert client.starts_at_end is (reset == "latest")
