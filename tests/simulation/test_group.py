"""Members of a simulated group: who gets what, when they are told, and who waits for whom."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from kafka_keyshared.client.port import EventKind, classify_event
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.history import CommitStored, Expelled, Owned, PartitionsReleased
from kafka_keyshared.lab.simulator.timeline import Killed, SimulatedProcess
from kafka_keyshared.model import TopicPartition
from tests.support.simulated_members import PROTOCOLS, TOPIC, Simulation

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@every_protocol
def test_a_second_member_gets_its_share_and_nobody_reads_anything_twice(protocol: str) -> None:
    simulation = Simulation(protocol)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    simulation.write(100)
    simulation.until(lambda: len(first.taken) == 400)
    second = simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    simulation.write(100)
    simulation.until(lambda: len(first.taken) + len(second.taken) >= 800)
    assert set(Counter(first.taken + second.taken).values()) == {1}
    assert len(second.held) == 2
    kept = ["assigned", "revoked"]
    assert first.names() == (kept if protocol != "eager" else [*kept, "assigned"])
    ((_, gone),) = [each for each in first.told if each[0] == "revoked"]
    assert len(gone) == (4 if protocol == "eager" else 2)


@every_protocol
def test_nobody_gets_a_partition_before_its_revoke_has_returned(protocol: str) -> None:
    simulation = Simulation(protocol)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    first.polling = False
    second = simulation.join()
    simulation.run(20.0)
    assert not second.held, "nobody has polled the first"
    assert first.names() == ["assigned"]

    def takes_its_time() -> None:
        first.process.wait(4.0)
        assert not second.held

    first.on_revoke = takes_its_time
    first.polling = True
    simulation.until(lambda: simulation.shared(first, second))


@every_protocol
def test_who_does_not_poll_is_waited_for_and_then_thrown_out(protocol: str) -> None:
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    first.polling = False
    third = simulation.join()
    simulation.run(40.0)
    assert protocol == "kip-848" or not third.held, "the round waits for the first"
    simulation.until(lambda: simulation.shared(second, third))
    assert first.held, "it has not been told, because it has not asked"
    first.polling = True
    simulation.until(lambda: simulation.shared(first, second, third))
    assert first.errors == ["_MAX_POLL_EXCEEDED"]
    assert "lost" in first.names()


@every_protocol
def test_the_last_commit_of_a_revoke_lands(protocol: str) -> None:
    simulation = Simulation(protocol)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    simulation.write(7)
    simulation.until(lambda: len(first.taken) == 28)
    second = simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    stored = simulation.cluster.commits.stored
    assert {each: stored[each][:2] for each in second.held} == dict.fromkeys(
        second.held, (7, "set of 7")
    )
    assert {each.result for each in first.answers} == {CommitResult.ACCEPTED}


@every_protocol
def test_a_member_that_was_thrown_out_loses_everything_and_comes_back(protocol: str) -> None:
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    expelled: list[Expelled] = []
    simulation.history.listen(Expelled, expelled.append)
    simulation.cluster.throw_out(first.client)
    assert [each.member for each in expelled] == [1]
    simulation.until(lambda: "lost" in first.names())
    simulation.until(lambda: simulation.shared(first, second))


@every_protocol
def test_a_commit_of_a_member_that_was_thrown_out_is_refused_and_tells_it(protocol: str) -> None:
    simulation = Simulation(protocol)
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    simulation.write(3)
    simulation.until(lambda: len(first.taken) == 12)
    stored: list[CommitStored] = []
    simulation.history.listen(CommitStored, stored.append)
    simulation.cluster.throw_out(first.client)
    first.commit()
    simulation.until(lambda: bool(first.answers))
    assert [each.result for each in first.answers] == [CommitResult.LOST]
    assert not stored
    simulation.until(lambda: first.names() == ["assigned", "lost", "assigned"])


@every_protocol
def test_a_killed_member_is_missed_when_its_session_is_over(protocol: str) -> None:
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    first.kill()
    simulation.run(8.0)
    assert len(second.held) == 2
    simulation.until(lambda: simulation.shared(second))


@every_protocol
def test_a_member_that_is_cut_off_goes_on_believing_while_another_has_its_partitions(
    protocol: str,
) -> None:
    """As a process does that is suspended or unreachable: what it says then counts for nothing."""
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    simulation.write(5)
    simulation.until(lambda: len(first.taken) == 10)
    overlaps: list[Owned] = []
    simulation.history.listen(
        Owned, lambda each: overlaps.append(each) if set(each.partitions) & {*first.held} else None
    )
    first.polling = False
    first.client.cut_off(15.0)
    first.commit()
    simulation.until(lambda: simulation.shared(second))
    assert overlaps, "it has not let go of them"
    simulation.run(15.0)
    assert not first.answers, "it has not polled"
    first.polling = True
    simulation.until(lambda: simulation.shared(first, second))
    assert {each.result for each in first.answers} == {CommitResult.RETRY}, "nobody was there"
    assert first.names() == ["assigned", "lost", "assigned"]


@every_protocol
def test_an_outage_that_outlasts_the_session_costs_everybody_everything(protocol: str) -> None:
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    released: list[PartitionsReleased] = []
    simulation.history.listen(PartitionsReleased, released.append)
    simulation.cluster.outage(15.0)
    simulation.run(14.0)
    assert {(each.member, each.lost) for each in released} == {(1, True), (2, True)}
    simulation.until(lambda: simulation.shared(first, second))


@every_protocol
def test_a_short_outage_costs_nobody_anything(protocol: str) -> None:
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    before = len(first.told)
    simulation.cluster.outage(5.0)
    simulation.write(3)
    simulation.run(4.5)
    assert not first.taken
    simulation.until(lambda: len(first.taken) == len(second.taken) == 6)
    assert len(first.told) == before


@every_protocol
def test_a_member_that_closes_gives_back_and_leaves_at_once(protocol: str) -> None:
    simulation = Simulation(protocol)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    first.commit()
    first.client.close()
    assert first.names()[-1] == "revoked"
    simulation.until(lambda: simulation.shared(second), 5.0)
    with pytest.raises(RuntimeError, match="closed"):
        first.client.poll(0)


@every_protocol
def test_a_partition_that_is_added_finds_a_member(protocol: str) -> None:
    simulation = Simulation(protocol, partitions=2)
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    added = simulation.cluster.add_partition(TOPIC)
    assert added == TopicPartition(TOPIC, 2)
    assert first.client.is_new(added)
    simulation.until(lambda: simulation.shared(first, second))
    simulation.write(1)
    simulation.until(lambda: len(first.taken) + len(second.taken) == 3)


def test_in_a_cooperative_group_a_commit_behind_a_join_is_of_the_generation_before() -> None:
    """The connection answers the JoinGroup first."""
    simulation = Simulation("cooperative")
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    simulation.write(2)
    simulation.until(lambda: len(first.taken) == 4)
    second.polling = False
    third = simulation.join()
    simulation.run(5.0)
    fourth = simulation.join()  # the second has a callback to serve before it can join for this one
    simulation.run(5.0)
    first.commit()
    simulation.run(3.0)
    assert not first.answers
    second.polling = True
    simulation.until(lambda: bool(first.answers))
    assert first.answers[0].result is CommitResult.LOST
    simulation.until(lambda: simulation.shared(first, second, third, fourth))
    assert "lost" not in first.names()
    assert first.answers[-1].result is CommitResult.ACCEPTED, "of what it has given up since"


def test_an_eager_member_gives_up_what_it_was_given_before_it_joins_again() -> None:
    """Also when it hears of the next round before it has served the callback of the last."""
    simulation = Simulation("eager")
    first = simulation.join()
    first.polling = False
    simulation.run(3.0)
    second = simulation.join()
    simulation.run(5.0)
    assert not first.told
    first.polling = True
    simulation.until(lambda: simulation.shared(first, second), 20.0)
    assert first.names() == ["assigned", "revoked", "assigned"]


def test_a_commit_of_who_was_thrown_out_while_it_joined_is_answered() -> None:
    simulation = Simulation("cooperative")
    first, second = simulation.join(), simulation.join()
    simulation.until(lambda: simulation.shared(first, second))
    simulation.write(2)
    simulation.until(lambda: len(first.taken) == 4)
    second.polling = False
    simulation.join()
    simulation.run(5.0)
    simulation.join()
    simulation.run(5.0)  # the second has a callback to serve, and the first waits for it
    first.polling = False
    simulation.cluster.throw_out(first.client)
    first.commit()
    simulation.run(5.0)
    first.polling = True
    simulation.until(lambda: bool(first.answers))
    assert [each.result for each in first.answers] == [CommitResult.LOST]


def test_who_is_killed_inside_a_callback_that_catches_all_does_nothing_more() -> None:
    simulation = Simulation("cooperative")
    first = simulation.join()
    simulation.until(lambda: simulation.shared(first))
    simulation.write(7)
    simulation.until(lambda: len(first.taken) == 28)

    def waits() -> None:
        simulation.timeline.after(1.0, first.kill)
        with suppress(Killed):
            first.process.wait(2.0)

    first.on_revoke = waits
    first.commit = lambda partitions=None: None  # type: ignore[method-assign]
    told: list[PartitionsReleased] = []
    simulation.cluster.history.listen(PartitionsReleased, told.append)
    second = simulation.join()
    simulation.until(lambda: simulation.shared(second))
    assert first.names() == ["assigned", "revoked"]
    assert not told, "a process that is gone lets go of nothing"


def test_how_long_nobody_polls_is_told_in_times_that_are_no_round_numbers() -> None:
    """What is left of the interval may be too little to be added to a time."""
    simulation = Simulation()
    simulation.run(7.64)
    client = SimClient(
        simulation.cluster, SimulatedProcess(simulation.timeline), [TOPIC], lambda _: None, 1
    )
    client.subscribe(*[lambda _: None] * 3)
    simulation.run(12.75)
    assert client.poll(0) is None
    simulation.run(59.9)
    assert not client.membership.ops
    simulation.run(0.2)
    told = client.poll(0)
    assert told is not None
    assert classify_event(told.error()) is EventKind.MAX_POLL_EXCEEDED
