"""Faults of simulated clients and brokers: each does what it says, and none does when healed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import EventKind, classify_event
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.lab.simulator.fault_rates import FaultRates
from kafka_keyshared.lab.simulator.pause_history import PauseHeard, PauseRefused
from kafka_keyshared.model import TopicPartition
from tests.support.simulated_members import TOPIC, Reading, Simulation

P0, P1 = (TopicPartition(TOPIC, number) for number in (0, 1))


def settled() -> tuple[Simulation, Reading]:
    """Return a simulation whose only member has both partitions and polls when it is told to."""
    simulation = Simulation(partitions=2)
    member = simulation.join()
    simulation.until(lambda: simulation.shared(member))
    simulation.run(1.0)
    member.polling = False
    return simulation, member


def test_healed_faults_are_all_at_nothing() -> None:
    faults = FaultRates(commit_refused=0.5, slow=0.1, slowest=9.0, fetch_raises=1.0)
    faults.heal()
    assert faults == FaultRates()


def test_an_exception_out_of_a_call_loses_what_it_had_taken() -> None:
    """The position is behind it all the same, so what is not read again is gone."""
    simulation, member = settled()
    simulation.cluster.append(P0, [b"key"] * 10)
    simulation.run(1.0)
    member.client.raise_next()
    with pytest.raises(KafkaException):
        member.client.consume(4)
    assert member.client.positions() == {P0: 4}
    assert [each.offset() for each in member.client.consume(100)] == [4, 5, 6, 7, 8, 9]
    member.client.seek(P0, 0)
    simulation.run(1.0)
    assert len(member.client.consume(100)) == 10


def test_a_call_that_takes_nothing_does_not_raise() -> None:
    simulation, member = settled()
    simulation.cluster.faults.fetch_raises = 1.0
    assert member.client.consume(5) == []
    simulation.write()
    simulation.run(1.0)
    with pytest.raises(KafkaException):
        member.client.poll(1.0)


def test_a_pause_and_a_seek_may_be_refused() -> None:
    simulation, member = settled()
    simulation.cluster.faults.pause_refused = simulation.cluster.faults.seek_refused = 1.0
    told: list[object] = []
    for kind in (PauseRefused, PauseHeard):
        simulation.cluster.history.listen(kind, told.append)
    refused: list[Callable[[], None]] = [
        lambda: member.client.pause([P0]),
        lambda: member.client.resume([P0]),
        lambda: member.client.seek(P0, 0),
    ]
    for call in refused:
        with pytest.raises(KafkaException):
            call()
    simulation.cluster.heal()
    member.client.pause([P0])
    member.client.seek(P0, 0)
    assert list(member.client.fetcher.paused) == [P0]
    assert told == [PauseRefused(1, (P0,)), PauseRefused(1, (P0,)), PauseHeard(1, (P0,))]
    member.client.pause([P0])
    assert len(told) == 3, "that it has paused is told once"


def test_a_restart_may_take_more_than_its_second() -> None:
    simulation, member = settled()
    simulation.cluster.faults.restart_late = 1.0
    began = simulation.timeline.now
    with pytest.raises(KafkaException):
        member.client.restart({P0: 0, P1: 0}, [P0])
    assert simulation.timeline.now - began >= 1.0


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("out_of_range", EventKind.OUT_OF_RANGE), ("fetch_errors", EventKind.TRANSIENT)],
)
def test_a_fetch_may_end_in_an_event(fault: str, kind: EventKind) -> None:
    simulation, member = settled()
    setattr(simulation.cluster.faults, fault, 1.0)
    simulation.write()
    simulation.run(1.0)
    told = member.client.poll(1.0)
    assert told is not None
    assert classify_event(told.error()) is kind
    simulation.cluster.heal()
    member.client.restart({P0: 0, P1: 0}, [P0, P1])
    simulation.run(1.0)
    records = [each for each in member.client.consume(100) if each.error() is None]
    assert sorted((each.partition(), each.offset()) for each in records) == [(0, 0), (1, 0)]


def test_questions_may_have_no_answer() -> None:
    simulation, member = settled()
    faults = simulation.cluster.faults
    faults.committed_unanswered = faults.bounds_unanswered = 1.0
    began = simulation.timeline.now
    with pytest.raises(KafkaException):
        member.client.committed([P0], 5.0)
    assert simulation.timeline.now - began == pytest.approx(5.0)
    assert len(member.client.log_bounds([P0, P1], 1.0)) == 1
    simulation.cluster.heal()
    faults.committed_partly = 1.0
    assert member.client.committed([P0, P1], 5.0) == {}


def test_a_leader_that_is_away_holds_up_its_own_partition_alone() -> None:
    simulation, member = settled()
    simulation.cluster.leader_away(P0, 10.0)
    simulation.write()
    member.polling = True
    simulation.run(5.0)
    assert member.taken == [(1, 0)]
    assert list(member.client.log_bounds([P0, P1], 1.0)) == [P1]
    simulation.run(10.0)
    assert member.taken == [(1, 0), (0, 0)]


def test_what_is_slow_takes_up_to_the_slowest() -> None:
    simulation, _ = settled()
    simulation.cluster.faults.slow = 1.0
    latencies = [simulation.cluster.latency() for _ in range(200)]
    assert max(latencies) > 1.5
    simulation.cluster.heal()
    assert max(simulation.cluster.latency() for _ in range(200)) < 0.1


def test_a_member_that_is_fenced_is_told_so_and_is_out() -> None:
    simulation, member = settled()
    member.client.fence()
    told = member.client.poll(1.0)
    assert told is not None
    assert classify_event(told.error()) is EventKind.FATAL
    simulation.write()
    member.client.positions()
    member.polling = True
    simulation.run(30.0)
    assert not simulation.cluster.group.seats, "it does not join again"
    member.client.close()
    assert member.names()[-1] == "lost"


def test_an_error_that_is_about_nothing_comes_as_a_message() -> None:
    _, member = settled()
    member.client.tell_error(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    told = member.client.poll(0)
    assert told is not None
    assert classify_event(told.error()) is EventKind.TRANSIENT


def test_healing_answers_what_has_waited() -> None:
    simulation, member = settled()
    simulation.write(3)
    member.polling = True
    simulation.until(lambda: len(member.taken) == 6)
    simulation.cluster.outage(3_600)
    member.commit()
    simulation.run(2.0)
    assert not member.answers
    simulation.cluster.heal()
    simulation.until(lambda: bool(member.answers), 1.0)
    assert [each.result for each in member.answers] == [CommitResult.ACCEPTED]


def test_a_member_that_has_nothing_to_do_costs_nothing() -> None:
    simulation, member = settled()
    simulation.run(5.0)
    ran: list[float] = []
    simulation.timeline.at = lambda when, action: ran.append(when)  # type: ignore[method-assign]
    simulation.run(30.0)
    assert len(ran) <= 30.0 / 0.05 + 2, "its turns, which it does not use, and a look at its polls"
    assert not member.client.closed
