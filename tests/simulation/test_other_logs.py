"""Logs that are made anew or cut off under whoever reads them, in a simulation."""

from __future__ import annotations

from dataclasses import replace

from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.history import ReadsOn
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.seed_plan import plan_of
from tests.simulation.test_logs import P0, Reader
from tests.simulation.told import T0, Told, text
from tests.simulation.watched import assert_found, assert_right, begun, settings
from tests.support.simulated_members import TOPIC, Simulation

ANEW, CUT = "a topic was made anew", "a log was cut off"


# --- what checkers make of it ---


def cut_off(told: Told, end: int, *gone: int) -> None:
    told.tell(happened.Removed(T0, gone), happened.CutOff(T0, end))


def begins_anew(told: Told, position: int, *again: int) -> None:
    """A member that has five records, of which two have run, begins what is left of the log."""
    begun(told, 5)
    told.deliver(1, *range(5))
    told.run(1, 0)
    told.run(1, 1)
    cut_off(told, 3, 3, 4)
    told.read(1, T0, position)
    told.write("a", "a", start=3)
    told.deliver(1, *range(position, 5))
    for offset in again:
        told.run(1, offset)


def test_what_is_left_of_a_log_and_had_settled_does_not_run_again() -> None:
    assert_right(lambda told: begins_anew(told, 2, 2, 3, 4))
    assert_found("NoRepeats", "@0 .* began again", lambda told: begins_anew(told, 0, 0))


def test_an_offset_that_is_given_out_again_is_another_record_and_owed() -> None:
    def story(told: Told) -> None:
        begins_anew(told, 2, 2, 3)
        told.finish()

    assert_found("NoLoss", "1 of t-0 were not settled by 'default': @4", story)


def test_who_has_come_no_further_than_what_is_left_goes_on_as_it_was() -> None:
    def story(told: Told) -> None:
        begun(told, 5)
        told.deliver(1, 0, 1)
        told.run(1, 0)
        cut_off(told, 3, 3, 4)
        told.tell(ReadsOn(1, T0, told.assigned[1, T0]))
        told.write("a", start=3)
        told.deliver(1, 2, 3)
        for offset in (1, 2, 3):
            told.run(1, offset)
        told.commit(1, 4)
        told.finish()

    assert_right(story)


def test_a_commit_of_the_new_log_covers_nothing_for_what_had_settled_in_the_old_one() -> None:
    def story(told: Told) -> None:
        begun(told, 5)
        told.deliver(1, *range(5))
        for offset in range(5):
            told.run(1, offset)
        cut_off(told, 3, 3, 4)
        told.read(1, T0, 3)
        told.write("a", "a", start=3)
        told.deliver(1, 3, 4)
        told.commit(1, 5)

    assert_found("SafeCommit", "covers .*@3", story)


def test_a_set_covers_nothing_of_what_the_log_has_not_got_when_its_reader_begins() -> None:
    """It was committed of a log that was longer before it was cut off."""

    def story(told: Told) -> None:
        told.write(*"abcde")
        told.join(1, 2)
        told.assign(1)
        told.deliver(1, *range(5))
        told.run(1, 1, 2, 3, 4)
        number = told.send(1, 0, words=text(0, (1, 5)))
        cut_off(told, 3, 3, 4)
        told.store(1, number, told.sent)
        told.kill(1)
        told.assign(2)
        told.write(None, None, start=3)  # which are dropped as they come
        told.deliver(2, 0, 3, 4)
        told.run(2, 0)
        told.finish()

    assert_right(story, settings(null_keys="reject", undecodable="drop"))


def noticed_late(told: Told, *, number: bool) -> None:
    """A member has received nothing yet when its topic is made anew, and reads on for a while."""
    told.join(1)
    told.assign(1)
    told.tell(happened.Remade(T0))
    told.tell(ReadsOn(1, T0, told.assigned[1, T0]))
    told.write("a", "a")
    told.deliver(1, 0, 1)
    told.run(1, 0, 1)
    if number:
        told.read(1)
    else:
        told.seek(1, 0)
    told.deliver(1, 0, 1)
    told.run(1, 0, 1)


def test_what_had_run_of_a_topic_made_anew_before_that_was_noticed_may_run_again() -> None:
    assert_right(lambda told: noticed_late(told, number=True))
    assert_found(
        "NoRepeats", "in the same assignment", lambda told: noticed_late(told, number=False)
    )


# --- what the cluster does ---


def sent(reader: Reader, position: int) -> None:
    reader.client.commit(Commit({P0: CommitEntry(position, "")}))


def test_nobody_may_write_until_its_reader_knows_that_the_log_is_another_one() -> None:
    """Once it has grown past the place that is of the old one, nobody could tell."""
    simulation = Simulation(partitions=1)
    cluster = simulation.cluster
    cluster.append(P0, [b"a"] * 5)
    reader = Reader(simulation)
    assert len(reader.read()) == 5
    assert cluster.known(P0)
    cluster.remake(TOPIC)
    reader.read()
    assert not cluster.known(P0), "it has been told, and has not begun anew"
    reader.client.restart({P0: 0}, [P0])
    assert cluster.known(P0)
    cluster.append(P0, [b"b"])
    assert reader.read() == [0]
    assert [each.assignment for each in reader.of(happened.Delivered)][-1] != 1


def test_nor_until_what_is_committed_of_the_old_one_is_written_over() -> None:
    simulation = Simulation(partitions=1)
    cluster = simulation.cluster
    cluster.append(P0, [b"a"] * 5)
    reader = Reader(simulation)
    reader.read()
    sent(reader, 5)
    cluster.remake(TOPIC)
    reader.read()
    reader.client.restart({P0: 0}, [P0])
    reader.read()
    assert cluster.commits.stored[P0].position == 5, "it came behind the new topic"
    assert not cluster.known(P0)
    sent(reader, 0)
    reader.read()
    assert cluster.known(P0)


def test_who_has_read_nothing_of_what_is_gone_reads_on_unknowing() -> None:
    simulation = Simulation(partitions=1)
    cluster = simulation.cluster
    cluster.append(P0, [b"a"] * 3)
    reader = Reader(simulation)
    simulation.history.listen(ReadsOn, reader.history.append)
    assert len(reader.read()) == 3
    cluster.append(P0, [b"a"] * 2)
    cluster.cut_off(P0, 3)
    reader.read()
    assert reader.of(ReadsOn) == [ReadsOn(1, P0, 1)]
    assert (cluster.known(P0), reader.told) == (True, [])


def test_a_topic_made_anew_that_was_read_on_in_silence_is_begun_anew_once_that_is_known() -> None:
    """Its owner has come no further than the old log and the new one are the same: nowhere."""
    simulation = Simulation(partitions=1)
    cluster = simulation.cluster
    reader = Reader(simulation)
    before = reader.client.ask_topic_ids([TOPIC])
    reader.read()
    cluster.remake(TOPIC)
    cluster.append(P0, [b"a"] * 3)
    assert reader.read() == [0, 1, 2]
    after = reader.client.ask_topic_ids([TOPIC])
    assert before.answer(1.0) != after.answer(1.0)
    reader.client.restart({P0: 0}, [P0])
    assert reader.read() == [0, 1, 2]
    first, *_, last = (each.assignment for each in reader.of(happened.Delivered))
    assert first != last


def test_nobody_may_write_while_a_member_remembers_a_log_that_it_has_lost() -> None:
    """It has had the partition in between, and lost it before it was told where to begin."""
    simulation = Simulation(partitions=1)
    cluster = simulation.cluster
    cluster.append(P0, [b"a"] * 5)
    reader = Reader(simulation)
    reader.read()
    fetcher = reader.client.fetcher
    fetcher.unassign([P0], lost=True)
    cluster.cut_off(P0, 3)
    reader.client.assign({P0: None})
    fetcher.unassign([P0], lost=True)
    assert not cluster.known(P0)
    reader.client.assign({P0: 0})
    assert cluster.known(P0)


def test_histories_with_logs_that_are_made_anew_and_cut_off_have_no_violation() -> None:
    made = 0
    for seed in (3, 8):
        plan = plan_of(Chance(seed))
        plan = replace(plan, disturbances={**plan.disturbances, ANEW: 3.0, CUT: 3.0})
        outcome = run_seed(seed, 600, plan, summed=False)
        assert not outcome.violations
        made += outcome.sometimes["log made anew while it is read"]
    assert made
