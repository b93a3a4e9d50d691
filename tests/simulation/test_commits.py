"""Commits to a simulated cluster: what becomes of them is one of what was seen of real ones."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.lab.simulator.commits import CommitFate
from kafka_keyshared.lab.simulator.group import Seat
from kafka_keyshared.lab.simulator.history import CommitRequested, CommitStored, CommitTold
from kafka_keyshared.model import TopicPartition
from tests.support.simulated_members import PROTOCOLS, TOPIC, Reading, Simulation

P0, P1 = (TopicPartition(TOPIC, number) for number in (0, 1))


class Told:
    """What the history says of commits: kinds and numbers, in order."""

    def __init__(self, simulation: Simulation) -> None:
        self.order: list[tuple[str, int]] = []
        for kind in (CommitRequested, CommitStored, CommitTold):
            simulation.history.listen(
                kind, lambda each: self.order.append((type(each).__name__, each.number))
            )


def settled(protocol: str = "eager") -> tuple[Simulation, Reading]:
    """Return a simulation with one member that has both partitions."""
    simulation = Simulation(protocol, partitions=2)
    member = simulation.join()
    simulation.until(lambda: simulation.shared(member))
    return simulation, member


def send(member: Reading, position: int, metadata: str = "", *at: TopicPartition) -> None:
    entry = CommitEntry(position, metadata)
    member.client.commit(Commit(dict.fromkeys(at or (P0,), entry)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_are_stored_in_the_order_in_which_they_are_sent(protocol: str) -> None:
    simulation, member = settled(protocol)
    for position in range(1, 31):
        send(member, position)
    simulation.until(lambda: len(member.answers) == 30)
    assert simulation.cluster.commits.stored[P0].position == 30
    assert {each.result for each in member.answers} == {CommitResult.ACCEPTED}


@pytest.mark.parametrize(
    ("fate", "result", "stored"),
    [
        (CommitFate.STORED, CommitResult.ACCEPTED, True),
        (CommitFate.REFUSED, CommitResult.RETRY, False),
        (CommitFate.UNHEARD, CommitResult.RETRY, True),
        (CommitFate.DROPPED, CommitResult.RETRY, False),
        (CommitFate.LATE, CommitResult.ACCEPTED, True),
        (CommitFate.GIVEN_UP, CommitResult.RETRY, True),
    ],
)
def test_what_is_told_of_a_commit_is_not_always_what_became_of_it(
    fate: CommitFate, result: CommitResult, stored: bool
) -> None:
    simulation, member = settled()
    simulation.cluster.commits.next_fates.append(fate)
    send(member, 5, "text")
    simulation.until(lambda: bool(member.answers))
    simulation.run(10.0)
    assert [each.result for each in member.answers] == [result]
    found = simulation.cluster.commits.stored.get(P0)
    assert (found is not None and found[:2] == (5, "text")) is stored


@pytest.mark.parametrize("fate", [CommitFate.LATE, CommitFate.GIVEN_UP])
def test_a_commit_may_be_stored_over_a_later_one(fate: CommitFate) -> None:
    simulation, member = settled()
    told = Told(simulation)
    simulation.cluster.commits.next_fates.append(fate)
    send(member, 1)
    send(member, 2)
    simulation.run(10.0)
    assert [number for what, number in told.order if what == "CommitStored"] == [2, 1]
    assert simulation.cluster.commits.stored[P0].position == 1


def test_one_refused_partition_fails_a_commit_whose_others_were_stored() -> None:
    simulation, member = settled()
    simulation.cluster.commits.next_fates.append(CommitFate.PARTLY)
    send(member, 7, "", P0, P1)
    simulation.until(lambda: bool(member.answers))
    assert [each.result for each in member.answers] == [CommitResult.RETRY]
    assert len(simulation.cluster.commits.stored) == 1


@pytest.mark.parametrize(("unit", "width"), [("x", 1), ("é", 1), ("\U0001f600", 2)])
def test_a_broker_takes_4095_utf_16_units_of_metadata_and_no_more(unit: str, width: int) -> None:
    simulation, member = settled()
    most = unit * (4_095 // width)
    send(member, 3, most)
    member.client.commit(Commit({P0: CommitEntry(4, most + unit), P1: CommitEntry(9, "")}))
    simulation.until(lambda: len(member.answers) == 2)
    results = [each.result for each in member.answers]
    assert results == [CommitResult.ACCEPTED, CommitResult.TOO_LARGE]
    stored = simulation.cluster.commits.stored
    assert (stored[P0][:2], stored[P1].position) == ((3, most), 9)


def test_a_commit_can_be_denied_for_good() -> None:
    simulation, member = settled()
    simulation.cluster.rights.group = True
    send(member, 1)
    simulation.until(lambda: bool(member.answers))
    assert [each.result for each in member.answers] == [CommitResult.DENIED]


def test_the_answer_comes_inside_a_poll_and_nowhere_else() -> None:
    simulation, member = settled()
    told = Told(simulation)
    member.polling = False
    send(member, 1)
    simulation.run(5.0)
    assert told.order == [("CommitRequested", 1), ("CommitStored", 1)]
    assert not member.answers
    member.client.poll(0)
    assert [each.result for each in member.answers] == [CommitResult.ACCEPTED]


def test_what_was_sent_by_a_process_that_is_killed_may_land_all_the_same() -> None:
    landed: set[bool] = set()
    for seed in range(20):
        simulation = Simulation(seed=seed, partitions=2)
        member = simulation.join()
        simulation.until(lambda: simulation.shared(member))  # noqa: B023 - at once
        told = Told(simulation)
        send(member, 1)
        member.kill()
        simulation.run(5.0)
        assert ("CommitTold", 1) not in told.order
        landed.add(("CommitStored", 1) in told.order)
    assert landed == {True, False}


def test_a_close_waits_for_a_commit_that_nobody_answers() -> None:
    """Only until the coordinator is back; else until the session timeout."""
    simulation, member = settled()
    simulation.cluster.coordinator_away(4.0)
    send(member, 1)
    began = simulation.timeline.now
    member.client.close()
    assert 4.0 <= simulation.timeline.now - began < 5.0
    assert [each.result for each in member.answers] == [CommitResult.ACCEPTED]

    simulation, member = settled()
    simulation.cluster.coordinator_away(400.0)
    send(member, 1)
    began = simulation.timeline.now
    member.client.close()
    assert simulation.timeline.now - began == pytest.approx(10.0)


def test_commits_that_wait_for_a_coordinator_are_told_as_failed_and_may_be_stored() -> None:
    simulation, member = settled()
    simulation.cluster.coordinator_away(400.0)
    send(member, 1)
    simulation.until(lambda: bool(member.answers))
    assert [each.result for each in member.answers] == [CommitResult.RETRY]


def test_the_leader_epoch_is_committed_with_the_position() -> None:
    simulation, member = settled()
    simulation.cluster.new_leader(P0)
    simulation.write(3)
    simulation.until(lambda: len(member.taken) == 6)
    send(member, 3, "", P0, P1)
    simulation.until(lambda: bool(member.answers))
    stored = simulation.cluster.commits.stored
    assert [stored[each].leader_epoch for each in (P0, P1)] == [1, 0]


def test_a_commit_of_an_old_generation_costs_everything_outside_a_rebalance() -> None:
    simulation, member = settled("cooperative")
    member.client.membership.generation -= 1
    send(member, 1)
    simulation.until(lambda: member.names() == ["assigned", "lost", "assigned"])
    assert [each.result for each in member.answers] == [CommitResult.LOST]


def held_up() -> tuple[Simulation, Reading, Seat]:
    """Return a member whose commit waits behind its JoinGroup, as another does not poll."""
    simulation = Simulation("cooperative", partitions=2)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    simulation.run(2.0)
    second.polling = False
    for _ in range(2):
        simulation.join()
        simulation.run(3.0)
    seat = first.client.membership.seat
    assert seat is not None
    assert seat.joined
    send(first, 1, "", *first.held)
    simulation.run(5.9)
    assert not first.answers
    assert "lost" not in first.names()
    return simulation, first, seat


def test_a_commit_that_waits_too_long_behind_a_join_is_sent_again_and_overtakes_it() -> None:
    simulation, first, seat = held_up()
    simulation.run(0.5)
    assert seat.joined
    assert [each.result for each in first.answers] == [CommitResult.ACCEPTED]


def test_a_commit_that_is_sent_again_and_old_by_then_costs_everything() -> None:
    """Its client has broken the connection, and does not know itself to be in a rebalance."""
    simulation, first, seat = held_up()
    seat.generation += 1  # the round is over, and its member has not heard of it
    simulation.until(lambda: bool(first.answers))
    assert [each.result for each in first.answers] == [CommitResult.LOST]
    simulation.until(lambda: first.names()[-1] == "lost")
