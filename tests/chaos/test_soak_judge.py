"""The judge of a soak, fed with prepared evidence: what it must find, and what it must let pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import (
    FAILED,
    CommitAnswered,
    CommitSent,
    DeadLettered,
    Ended,
    Event,
    MemoryLedger,
    Outcome,
    Ownership,
    OwnershipChanged,
    Produced,
    Started,
)
from tests.chaos.soak_evidence import NS, Evidence, Fault, Life, outside, united
from tests.chaos.soak_judge import MEANWHILE, Verdict, context, judged
from tests.chaos.soak_schedule import ALWAYS, BLOCKED, LONG, MAIN, Step, What, scenario_of
from tests.support.commits import Stored

P0 = TopicPartition(MAIN, 0)
CLEAN = "stopped in 0.10 s: drained; committed; 0 records received and left undone"
END = 200.0


def ns(seconds: float) -> int:
    return int((1_000 + seconds) * NS)


class Tale:
    """A soak that is told instead of run; all times in seconds since its start."""

    def __init__(self) -> None:
        self.evidence = Evidence(
            scenario_of(1, END, protocol="eager", brokers=1),
            MemoryLedger("producer"),
            [],
            {},
            [],
            [],
            ns(0),
            ns(END - 20),
            ns(END),
            True,
        )
        self._number = 0

    def member(self, name: str, *, topic: str = MAIN, till: float = END, status: int = 0) -> Life:
        """Somebody who has all partitions from the beginning, and is stopped at the end."""
        life = Life(name, topic, 2, ns(-20), ns(till), False, ns(till + 0.5), status, CLEAN)
        self.evidence.lives.append(life)
        self.evidence.ledgers.append(MemoryLedger(name))
        return life

    def write(
        self, offset: int, at: float, key: bytes | None = b"k", place: TopicPartition = P0
    ) -> None:
        self.evidence.producer.events.append(Produced(*place, offset, key))
        self.evidence.written.setdefault(place, []).append((ns(at), offset + 1))

    def run(
        self,
        who: str,
        offset: int,
        at: float,
        till: float | None = None,
        outcome: Outcome | None = "ok",
        *,
        key: bytes | None = b"k",
        place: TopicPartition = P0,
    ) -> None:
        self._number += 1
        self._put(who, Started(self._number, *place, offset, key, 1, ns(at)))
        if outcome is not None:
            end = ns(at + 0.01 if till is None else till)
            self._put(who, Ended(self._number, outcome, end))

    def commit(
        self,
        who: str,
        position: int,
        at: float,
        *,
        accepted: bool = True,
        place: TopicPartition = P0,
    ) -> None:
        self._number += 1
        self._put(who, CommitSent(self._number, *place, position, (), ns(at)))
        if accepted:
            self._put(who, CommitAnswered(self._number, True, ns(at + 0.01)))

    def owner(self, who: str, change: Ownership, at: float, place: TopicPartition = P0) -> None:
        self._put(who, OwnershipChanged(*place, change, ns(at)))

    def letter(self, who: str | None, offset: int, at: float) -> None:
        if who is not None:
            self._put(who, DeadLettered(*P0, offset, ns(at)))
        if self.evidence.letters is None:
            self.evidence.letters = MemoryLedger("letters")
        self.evidence.letters.events.append(DeadLettered(*P0, offset, None))

    def kill(self, who: str, at: float) -> None:
        life = self.evidence.life(who)
        assert life is not None
        life.killed, life.asked, life.end, life.status = True, None, ns(at), -9
        self.evidence.faults.append(Fault("kill", who, ns(at), ns(at)))

    def _put(self, who: str, event: Event) -> None:
        next(each for each in self.evidence.ledgers if each.incarnation == who).events.append(event)

    def verdict(self) -> Verdict:
        return judged(self.evidence)


def steady(tale: Tale, who: str = "a", *, till: float = END, first: int = 0, at: float = 0) -> int:
    """One record a second, each done and committed; returns the offset after the last."""
    offset = first
    while at < till:
        tale.write(offset, at)
        tale.run(who, offset, at + 0.2)
        tale.commit(who, offset + 1, at + 0.5)
        offset, at = offset + 1, at + 1.0
    return offset


@pytest.fixture
def tale() -> Tale:
    told = Tale()
    told.member("a")
    return told


def assert_found(tale: Tale, *rules: str, naming: str = "") -> None:
    verdict = tale.verdict()
    assert verdict.rules() == set(rules), verdict.violations
    assert naming in verdict.violations[0].text


def test_a_run_in_which_nothing_went_wrong_is_clean(tale: Tale) -> None:
    steady(tale)
    verdict = tale.verdict()
    assert verdict.clean, verdict.violations
    assert verdict.judgement.totals.ok == END
    assert [each.partition for each in verdict.still] == [P0]
    assert 0.1 < verdict.still[0].seconds < 1.0


# --- loss, order, overlap, commits ---


def test_a_record_that_was_never_started_is_lost(tale: Tale) -> None:
    end = steady(tale)
    tale.write(end, END - 1)
    assert_found(
        tale, "lost", naming="main-0@200 (key b'k') was written, never settled, and was never"
    )


def test_a_record_of_a_blocked_key_is_not_lost(tale: Tale) -> None:
    steady(tale)
    place, key = TopicPartition(BLOCKED, 0), ALWAYS + b"1"
    tale.member("b", topic=BLOCKED)
    tale.write(0, 10, key, place)
    tale.run("b", 0, 11, outcome="failed", key=key, place=place)
    tale.write(1, 12, key, place)
    assert tale.verdict().clean


def test_the_record_behind_a_blocked_one_is_out_of_order(tale: Tale) -> None:
    steady(tale)
    place, key = TopicPartition(BLOCKED, 0), ALWAYS + b"1"
    tale.member("b", topic=BLOCKED)
    for offset in (0, 1):
        tale.write(offset, 10, key, place)
        tale.run("b", offset, 11 + offset, outcome="failed", key=key, place=place)
    assert_found(tale, "order_violations", naming="blocked-0@0")


def test_two_records_of_a_key_in_the_wrong_order_are_found(tale: Tale) -> None:
    end = steady(tale, till=END - 5)
    for offset in (end, end + 1):
        tale.write(offset, END - 4)
    tale.run("a", end + 1, END - 3)
    tale.run("a", end, END - 2)
    tale.commit("a", end + 2, END - 1)
    assert_found(tale, "order_violations", naming=f"main-0@{end}")


def test_two_records_of_a_key_at_once_are_found(tale: Tale) -> None:
    tale.member("b")
    end = steady(tale, till=END - 5)
    tale.write(end, END - 4)
    tale.write(end + 1, END - 4)
    tale.run("a", end, END - 3, END - 2)
    tale.run("b", end + 1, END - 2.5, END - 1)
    tale.commit("b", end + 2, END - 0.5)
    assert "overlaps" in tale.verdict().rules()


def test_a_commit_past_what_is_undone_is_found(tale: Tale) -> None:
    end = steady(tale, till=END - 5)
    tale.write(end, END - 4)
    tale.commit("a", end + 1, END - 3)
    tale.run("a", end, END - 2)
    assert_found(tale, "commits_past_unsettled", naming=f"main-0@{end}")


def test_a_position_that_fell_at_the_broker_is_found(tale: Tale) -> None:
    steady(tale)
    tale.evidence.stored = [Stored(P0, 5), Stored(P0, 4)]
    assert_found(tale, "commit_sequence_falls", naming="4 was stored after 5")


@pytest.mark.parametrize(
    ("accepted", "again", "found"), [(False, True, False), (False, False, True), (True, True, True)]
)
def test_a_commit_that_was_given_up_may_be_stored_late_if_the_later_one_is_stored_again(
    tale: Tale, *, accepted: bool, again: bool, found: bool
) -> None:
    end = steady(tale)
    tale.commit("a", end - 1, END - 1.45, accepted=accepted)
    tale.evidence.stored = [Stored(P0, end), Stored(P0, end - 1)]
    if again:
        tale.evidence.stored.append(Stored(P0, end))
    assert ("commit_sequence_falls" in tale.verdict().rules()) is found


# --- repeats ---


def handed_over(tale: Tale) -> None:
    """Half is done by ``a``, whose last record no commit covers; ``b`` does that again."""
    tale.member("b")
    end = steady(tale, till=100)
    tale.write(end, 100)
    tale.run("a", end, 100.2)
    tale.run("b", end, 110)
    tale.commit("b", end + 1, 110.5)
    steady(tale, "b", first=end + 1, at=111)


def test_what_runs_again_after_a_clean_stop_is_found(tale: Tale) -> None:
    handed_over(tale)
    tale.evidence.lives[0].asked, tale.evidence.lives[0].end = ns(101), ns(102)
    assert_found(
        tale, "repeats", naming="main-0@100 (key b'k') was settled by a and ran again in b"
    )


def test_what_runs_again_after_a_kill_is_excused(tale: Tale) -> None:
    handed_over(tale)
    tale.kill("a", 101)
    verdict = tale.verdict()
    assert verdict.clean, verdict.violations
    assert verdict.repeats == {"a": 1}
    assert verdict.cut_off["a"] == "killed at 101.0 s"


def test_a_kill_does_not_excuse_what_ran_again_before_it(tale: Tale) -> None:
    handed_over(tale)
    tale.kill("a", 115)
    assert_found(tale, "repeats")


def test_no_kill_excuses_what_a_commit_had_covered(tale: Tale) -> None:
    handed_over(tale)
    tale.commit("a", 101, 100.5)
    tale.kill("a", 101)
    assert_found(tale, "duplicates_after_commit", naming="main-0@100")


@pytest.mark.parametrize("more", [0, 1])
def test_many_repeats_from_before_the_last_commit_are_found(tale: Tale, more: int) -> None:
    tale.member("b")
    life = tale.evidence.life("a")
    assert life is not None
    count = MEANWHILE * life.workers + more
    for offset in range(count):
        tale.write(offset, 0, None)
        tale.run("a", offset, 1, key=None)
    tale.commit("a", 0, 2)
    tale.kill("a", 3)
    for offset in range(count):
        tale.run("b", offset, 5, key=None)
    tale.commit("b", count, 6)
    steady(tale, "b", first=count, at=7)
    if more:
        assert_found(tale, "stragglers", naming=f"{count} records that a")
    else:
        assert tale.verdict().clean


@pytest.mark.parametrize("why", ["", "kill", "outage", "another outage"])
def test_a_second_dead_letter_needs_a_crash_or_an_outage(tale: Tale, why: str) -> None:
    tale.member("b")
    end = steady(tale, till=100)
    tale.write(end, 100)
    tale.run("a", end, 100.2, outcome="failed")
    tale.letter(None, end, 100.3)
    tale.run("b", end, 110, outcome="failed")
    tale.letter("b", end, 110.2)
    tale.commit("b", end + 1, 110.5)
    steady(tale, "b", first=end + 1, at=111)
    if why == "kill":
        tale.kill("a", 100.5)
    elif why:
        began = 101.0 if why == "outage" else 130.0
        tale.evidence.faults.append(Fault("kill broker", "1", ns(began), ns(began + 5)))
    if why in ("kill", "outage"):
        assert tale.verdict().clean, tale.verdict().violations
    else:
        assert_found(tale, "letters", naming="has 2 dead letters")


def thrown_out(tale: Tale) -> int:
    """The group takes everything from ``a`` without any fault, and gives it back at once."""
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=100)
    tale.owner("a", "lost", 100.5)
    tale.owner("a", "assigned", 100.9)
    return end


@pytest.mark.parametrize(("ended", "excused"), [(100.7, True), (100.4, False)])
def test_without_a_fault_only_what_ran_at_a_loss_may_run_again(
    tale: Tale, ended: float, excused: bool
) -> None:
    end = thrown_out(tale)
    tale.write(end, 100)
    tale.run("a", end, 100.2, ended)
    tale.run("a", end, 101)
    tale.commit("a", end + 1, 101.5)
    steady(tale, first=end + 1, at=102)
    assert tale.verdict().rules() == (set() if excused else {"repeats"})


@pytest.mark.parametrize(("answered", "excused"), [(100.7, True), (100.4, False)])
def test_without_a_fault_only_a_letter_on_its_way_at_a_loss_may_be_written_again(
    tale: Tale, answered: float, excused: bool
) -> None:
    end = thrown_out(tale)
    tale.write(end, 100)
    tale.run("a", end, 100.2, outcome="failed")
    tale.letter("a", end, answered)
    tale.run("a", end, 101, outcome="failed")
    tale.letter("a", end, 101.2)
    tale.commit("a", end + 1, 101.5)
    steady(tale, first=end + 1, at=102)
    assert tale.verdict().rules() == (set() if excused else {"repeats"})


@pytest.mark.parametrize("written", [True, False])
def test_a_commit_that_the_broker_wrote_down_counts_though_nobody_heard_of_it(
    tale: Tale, written: bool
) -> None:
    """It reached a broker that stood still for the next seconds; the next owner goes by it."""
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=99)
    tale.evidence.faults.append(Fault("kill broker", "1", ns(99), ns(99.5)))
    tale.evidence.faults.append(Fault("freeze broker", "1", ns(101), ns(110)))
    tale.write(end, 99.6)
    tale.run("a", end, 100)
    tale.commit("a", end + 1, 100.5, accepted=False)
    tale.owner("a", "lost", 108)
    tale.member("b")
    tale.owner("b", "assigned", 111)
    if written:
        tale.evidence.stored.append(Stored(P0, end + 1))
    tale.write(end + 1, 111)
    tale.run("b", end + 1, 112)
    tale.commit("b", end + 2, 112.5)
    steady(tale, "b", first=end + 2, at=113)
    assert ("lost" in tale.verdict().rules()) is not written


# --- a member that the group has taken for dead ---


def stood_still(tale: Tale) -> None:
    """``a`` stands still from 100 s on; when it wakes at 120 s, ``b`` has the partition."""
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=100)
    tale.member("b")
    tale.owner("b", "assigned", 110)
    tale.write(end, 99.5)
    tale.write(end + 1, 99.5)
    tale.run("a", end, 99.9, 120.1)
    tale.run("b", end, 110, 120.5)
    tale.run("a", end + 1, 120.2)
    tale.owner("a", "lost", 120.4)
    tale.run("b", end + 1, 120.6)
    tale.commit("b", end + 2, 120.9)
    steady(tale, "b", first=end + 2, at=121)


def test_what_it_did_counts_where_it_got_the_partition_again_before_anybody_began_there(
    tale: Tale,
) -> None:
    """Everybody's session ended in an outage; what had settled in it does not run again."""
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=100)
    tale.write(end, 99.5)
    tale.run("a", end, 105)
    tale.owner("a", "lost", 110)
    tale.owner("a", "assigned", 125)
    tale.commit("a", end + 1, 126)
    steady(tale, first=end + 1, at=127)
    tale.evidence.faults.append(Fault("freeze broker", "1", ns(100), ns(120)))
    assert tale.verdict().clean, tale.verdict().violations


def test_what_a_member_did_before_it_was_told_does_not_count(tale: Tale) -> None:
    stood_still(tale)
    tale.evidence.faults.append(Fault("coma", "a", ns(100), ns(120)))
    verdict = tale.verdict()
    assert verdict.clean, verdict.violations
    assert verdict.judgement.totals.unfinished_attempts == 0


def test_a_letter_that_arrives_after_the_loss_of_its_partition_settles_nothing(tale: Tale) -> None:
    """Nor has whoever tried the record before, and gave it up in good order, settled it."""
    stood_still(tale)
    tale.evidence.faults.append(Fault("coma", "a", ns(100), ns(120)))
    tale.member("c")
    tale.write(1_000, 99, b"other")
    tale.run("c", 1_000, 99.2, outcome="failed", key=b"other")
    tale.run("a", 1_000, 120.1, outcome="failed", key=b"other")
    tale.letter("a", 1_000, 126)
    tale.run("b", 1_000, 130, key=b"other")
    assert tale.verdict().clean, tale.verdict().violations


def frozen_and_back(tale: Tale) -> int:
    """A broker stood still, and ``a`` got back what it had at once; returns a failing record."""
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=100)
    tale.write(end, 99.5)
    for at in (100.1, 100.2, 100.4, 100.8):
        tale.run("a", end, at, outcome="failed")
    tale.owner("a", "lost", 120.4)
    tale.owner("a", "assigned", 120.45)
    for at in (120.5, 120.6):
        tale.run("a", end, at, outcome="failed")
    tale.letter("a", end, 120.65)  # of the four attempts before the loss
    tale.evidence.faults.append(Fault("freeze broker", "1", ns(100), ns(120)))
    return end


def test_a_letter_is_of_the_attempts_that_it_took(tale: Tale) -> None:
    """Its member had lost the partition, got it again and begun anew when it was acknowledged."""
    end = frozen_and_back(tale)
    for at in (120.7, 120.9):
        tale.run("a", end, at, outcome="failed")
    tale.letter("a", end, 120.95)
    tale.commit("a", end + 1, 121)
    steady(tale, first=end + 1, at=122)
    assert tale.verdict().clean, tale.verdict().violations


def test_a_letter_of_its_new_attempts_settles_the_record_for_good(tale: Tale) -> None:
    end = frozen_and_back(tale)
    for at in (120.7, 120.9):
        tale.run("a", end, at, outcome="failed")
    tale.letter("a", end, 120.95)
    tale.run("a", end, 130)
    tale.commit("a", end + 1, 131)
    steady(tale, first=end + 1, at=132)
    assert_found(tale, "repeats", naming="was settled by a and ran again in a")


def test_a_letter_is_of_whoever_sent_it_also_after_others_have_tried(tale: Tale) -> None:
    """``a`` was killed while its letter was on the way, and the answer was the last it heard."""
    tale.member("b")
    end = steady(tale, till=100)
    tale.write(end, 100)
    tale.run("a", end, 100.2, outcome="failed")
    tale.run("b", end, 105, outcome="failed")
    tale.letter("a", end, 105.5)
    tale.kill("a", 106)
    tale.evidence.faults.append(Fault("coma", "a", ns(101), ns(105.3)))
    tale.run("b", end, 106.5)
    tale.commit("b", end + 1, 107)
    steady(tale, "b", first=end + 1, at=108)
    assert "repeats" not in tale.verdict().rules(), tale.verdict().violations


def test_what_it_did_after_it_got_the_partition_again_counts(tale: Tale) -> None:
    """A broker stood still, everybody was told, and everybody got back what he had at once."""
    tale.owner("a", "assigned", -5)
    tale.owner("a", "lost", 120.4)
    tale.owner("a", "lost", 120.42)
    tale.owner("a", "assigned", 120.45)
    end = steady(tale, till=100)
    tale.write(end, 100.5)
    tale.run("a", end, 120.5)
    tale.commit("a", end + 1, 120.8)
    steady(tale, first=end + 1, at=121)
    tale.evidence.faults.append(Fault("freeze broker", "1", ns(100), ns(120)))
    assert tale.verdict().clean, tale.verdict().violations


@pytest.mark.parametrize(("settled", "again", "excused"), [(99.8, 112, True), (92, 98, False)])
def test_what_it_had_not_committed_may_run_again_from_when_it_stood_still(
    tale: Tale, settled: float, again: float, excused: bool
) -> None:
    """Others get the partition long before it is told; but nobody before it stood still."""
    stood_still(tale)
    tale.evidence.faults.append(Fault("coma", "a", ns(100), ns(120)))
    tale.write(300, 90, None)
    tale.run("a", 300, settled - 0.1, settled, key=None)
    tale.run("b", 300, again, key=None)
    tale.commit("b", 301, 199)
    assert ("repeats" in tale.verdict().rules()) is not excused


def test_the_same_without_a_fault_is_found(tale: Tale) -> None:
    stood_still(tale)
    assert {"overlaps", "repeats"} <= tale.verdict().rules()


def test_a_record_that_ran_through_the_loss_of_its_partition_is_settled_by_nobody(
    tale: Tale,
) -> None:
    stood_still(tale)
    tale.evidence.faults.append(Fault("coma", "a", ns(100), ns(120)))
    tale.write(300, 99.5, b"other")
    tale.run("a", 300, 99.8, 140, key=b"other")
    tale.run("b", 300, 125, 126, key=b"other")
    tale.commit("b", 301, 199)
    verdict = tale.verdict()
    assert not verdict.rules() & {"overlaps", "repeats", "order_violations"}, verdict.violations


@pytest.mark.parametrize(("began", "excused"), [(90.0, True), (97.0, False)])
def test_only_what_outlasts_the_revoke_may_run_beside_its_new_owner(
    tale: Tale, began: float, excused: bool
) -> None:
    tale.member("b")
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=90)
    tale.write(end, 90)
    tale.run("a", end, began, 120)
    tale.owner("a", "revoked", 100)
    tale.owner("b", "assigned", 101)
    tale.run("b", end, 102, 103)
    tale.commit("b", end + 1, 104)
    steady(tale, "b", first=end + 1, at=105)
    assert tale.verdict().rules() == (set() if excused else {"overlaps"})


def beside_the_stop(tale: Tale, till: float | None) -> Life:
    """One record is running when ``a`` is stopped; without an end it outlasts the process."""
    end = steady(tale)
    place = TopicPartition(BLOCKED, 0)
    outcome: Outcome | None = None if till is None else FAILED
    tale.write(end, END - 1, ALWAYS, place)
    tale.run("a", end, END - 1, till, outcome, key=ALWAYS, place=place)
    return tale.evidence.lives[0]


@pytest.mark.parametrize(("till", "excused"), [(None, True), (END + 20, False)])
def test_a_stop_may_give_up_only_on_what_outlasts_it(
    tale: Tale, till: float | None, excused: bool
) -> None:
    life = beside_the_stop(tale, till)
    rude(life)
    life.end = ns(END + 26)
    assert tale.verdict().rules() == (set() if excused else {"stops"})


@pytest.mark.parametrize(("till", "excused"), [(None, True), (END + 1, False)])
def test_a_stop_does_not_wait_for_what_a_revoke_has_given_up_on(
    tale: Tale, till: float | None, excused: bool
) -> None:
    life = beside_the_stop(tale, till)
    life.status, life.end = 1, ns(END + 5)
    life.last_words = "handlers still running at exit: worker-0\n" + CLEAN
    assert tale.verdict().rules() == (set() if excused else {"stops"})


@pytest.mark.parametrize(("what", "excused"), [("coma", True), ("nap", False)])
def test_who_is_taken_for_dead_in_the_middle_of_a_revoke_hears_of_no_loss(
    tale: Tale, what: What, excused: bool
) -> None:
    tale.member("b")
    tale.owner("a", "assigned", -5)
    end = steady(tale, till=95)
    tale.write(end, 95)
    tale.run("a", end, 95.5, 115)
    tale.owner("b", "assigned", 108)
    tale.run("b", end, 109, 109.5)
    tale.owner("a", "revoked", 112)
    tale.evidence.faults.append(Fault(what, "a", ns(99), ns(112)))
    tale.commit("b", end + 1, 113)
    steady(tale, "b", first=end + 1, at=113.5)
    assert ("overlaps" in tale.verdict().rules()) is not excused


# --- progress ---


def pause(tale: Tale, *, waiting: bool = True) -> None:
    """Nothing is done from 50 to 90 s; with ``waiting`` there is something to be done."""
    end = steady(tale, till=50)
    if waiting:
        tale.write(end, 50)
    else:
        end -= 1
        tale.write(end + 1, 89.9)
        end += 1
    tale.run("a", end, 90)
    tale.commit("a", end + 1, 90.5)
    steady(tale, first=end + 1, at=91)


def test_a_partition_that_stands_still_is_found(tale: Tale) -> None:
    pause(tale)
    assert_found(tale, "stand-still", naming="main-0 stood still from 50.0 to 90.0 s (40.0 s of it")


def test_a_partition_without_work_does_not_stand_still(tale: Tale) -> None:
    pause(tale, waiting=False)
    assert tale.verdict().clean, tale.verdict().violations


def test_a_partition_that_never_got_on_is_found(tale: Tale) -> None:
    steady(tale)
    tale.write(0, 100, b"other", TopicPartition(MAIN, 5))
    verdict = tale.verdict()
    assert verdict.rules() == {"lost", "stand-still"}
    assert "main-5 stood still from 100.0 to 200.0 s" in verdict.violations[0].text


def test_a_partition_in_which_only_a_blocked_key_is_left_does_not_stand_still(tale: Tale) -> None:
    steady(tale)
    tale.member("b", topic=BLOCKED)
    tale.write(0, 10, ALWAYS, TopicPartition(BLOCKED, 0))
    tale.run("b", 0, 11, outcome="failed", key=ALWAYS, place=TopicPartition(BLOCKED, 0))
    assert tale.verdict().clean, tale.verdict().violations


@pytest.mark.parametrize(
    ("fault", "excused"),
    [
        (Fault("kill broker", "1", ns(55), ns(70)), True),
        (Fault("coma", "b", ns(50), ns(62)), True),
        (Fault("kill", "b", ns(60), ns(60)), False),
        (Fault("nap", "b", ns(40), ns(42)), False),
        (Fault("kill broker", "1", ns(20), ns(25)), False),
        # Another partition's only broker: the others get no more than a session.
        (Fault("kill broker", "1", ns(50), ns(90), frozenset({TopicPartition(MAIN, 1)})), False),
        (Fault("kill broker", "1", ns(30), ns(90), frozenset({P0})), True),
    ],
)
def test_only_what_a_fault_explains_is_excused(tale: Tale, fault: Fault, excused: bool) -> None:
    pause(tale)
    tale.evidence.faults.append(fault)
    assert tale.verdict().rules() == (set() if excused else {"stand-still"})


P1 = TopicPartition(MAIN, 1)


def occupied(tale: Tale, who: str = "a", till: float = 89.9, key: bytes = LONG) -> None:
    """Somebody runs one record for long while the partition of ``a`` stands still."""
    pause(tale)
    for place in (P0, P1):
        tale.owner("a", "assigned", 0, place)
    tale.write(0, 45, key, P1)
    tale.run(who, 0, 48, till, key=key, place=P1)
    tale.commit(who, 1, 95, place=P1)


def test_one_record_that_takes_long_may_keep_all_that_its_member_holds_waiting(tale: Tale) -> None:
    occupied(tale)
    assert "stand-still" not in tale.verdict().rules(), tale.verdict().violations


def test_a_record_that_a_stop_gave_up_on_took_as_long_as_its_process(tale: Tale) -> None:
    """All that its member held waits for the stop, and is somebody else's after that."""
    end = steady(tale, till=50)
    for place in (P0, P1):
        tale.owner("a", "assigned", 0, place)
    tale.write(0, 45, LONG, P1)
    tale.run("a", 0, 48, outcome=None, key=LONG, place=P1)
    life = tale.evidence.lives[0]
    life.asked, life.end, life.status = ns(55), ns(80), 1
    life.last_words = "stopped in 25.00 s: gave up on 1 running: main-1@0; committed"
    tale.write(end, 50)
    tale.member("b")
    tale.run("b", 0, 81, 85, key=LONG, place=P1)
    tale.commit("b", 1, 86, place=P1)
    tale.run("b", end, 89)
    tale.commit("b", end + 1, 89.5)
    steady(tale, "b", first=end + 1, at=91)
    assert "stand-still" not in tale.verdict().rules(), tale.verdict().violations


def by_another(tale: Tale) -> None:
    tale.member("b")
    occupied(tale, "b")


def over_soon(tale: Tale) -> None:
    occupied(tale, till=55)


def by_another_key(tale: Tale) -> None:
    occupied(tale, key=b"key-1")


def while_others_go_on(tale: Tale) -> None:
    occupied(tale)
    for offset in range(1, 40):
        tale.write(offset, 50 + offset, b"other", P1)
        tale.run("a", offset, 50 + offset, key=b"other", place=P1)


def of_somebody_elses(tale: Tale) -> None:
    occupied(tale)
    tale.owner("a", "revoked", 52)


@pytest.mark.parametrize(
    "why", [by_another, over_soon, by_another_key, while_others_go_on, of_somebody_elses]
)
def test_a_long_record_excuses_no_more_than_that(tale: Tale, why: Callable[[Tale], None]) -> None:
    why(tale)
    assert "stand-still" in tale.verdict().rules()


def test_a_long_record_excuses_no_late_commit(tale: Tale) -> None:
    occupied(tale)
    tale.write(0, 30, b"x", TopicPartition(MAIN, 2))
    tale.run("a", 0, 49, 49.5, key=b"x", place=TopicPartition(MAIN, 2))
    tale.commit("a", 1, 95, place=TopicPartition(MAIN, 2))
    assert "behind" in tale.verdict().rules()


def test_a_topic_that_nobody_reads_does_not_stand_still(tale: Tale) -> None:
    pause(tale)
    tale.evidence.lives.clear()
    tale.member("c", till=51)
    tale.member("d").start = ns(70)
    tale.evidence.ledgers.append(tale.evidence.ledgers.pop(0))
    assert tale.verdict().clean, tale.verdict().violations


def test_what_is_done_and_never_committed_is_found(tale: Tale) -> None:
    for offset in range(100):
        tale.write(offset, offset)
        tale.run("a", offset, offset + 0.2)
        if offset < 50:
            tale.commit("a", offset + 1, offset + 0.5)
    assert_found(tale, "behind", naming="main-0@50 was safe to commit at 50.2 s and not committed")


def test_what_a_crash_undid_is_late_only_from_when_it_was_done_again(tale: Tale) -> None:
    tale.member("b")
    end = steady(tale, till=50)
    tale.write(end, 50)
    tale.run("a", end, 50.1)
    tale.kill("a", 50.2)
    tale.write(end + 1, 50.5)
    for offset, at in ((end, 115.0), (end + 1, 52.0)):
        tale.run("b", offset, at, key=b"b%d" % offset)
    tale.commit("b", end + 2, 116)
    steady(tale, "b", first=end + 2, at=117)
    assert "behind" not in tale.verdict().rules()


# --- processes ---


def rude(life: Life) -> None:
    life.status, life.last_words = 1, "gave up on 1 running"


def slow(life: Life) -> None:
    life.end = ns(END + 40)


def alone(life: Life) -> None:
    life.asked = None


def fat(life: Life) -> None:
    life.memory = [(ns(1), 50.0), (ns(100), 900.0), (ns(150), 60.0)]


@pytest.mark.parametrize(
    ("how", "rule", "naming"),
    [
        (rude, "stops", "stopped with 1 although nothing was wrong"),
        (slow, "stops", "took 40.0 s to stop"),
        (alone, "ends", "ended by itself"),
        (fat, "memory", "a took 900 MiB"),
    ],
)
def test_a_process_that_misbehaves_is_found(
    tale: Tale, how: Callable[[Life], None], rule: str, naming: str
) -> None:
    steady(tale)
    how(tale.evidence.lives[0])
    assert_found(tale, rule, naming=naming)


def test_an_outage_excuses_a_stop_without_its_commit_and_not_one_without_end(tale: Tale) -> None:
    steady(tale)
    tale.evidence.faults.append(Fault("kill broker", "1", ns(END - 1), ns(END + 60)))
    rude(tale.evidence.lives[0])
    assert tale.verdict().clean, tale.verdict().violations
    slow(tale.evidence.lives[0])
    assert_found(tale, "stops", naming="took 40.0 s to stop")


def test_work_that_was_left_at_the_end_is_found(tale: Tale) -> None:
    steady(tale)
    tale.evidence.drained = False
    assert_found(tale, "drain")


def test_the_context_tells_the_records_story_and_what_was_done(tale: Tale) -> None:
    handed_over(tale)
    tale.evidence.logs["b"] = f"{ns(109) / NS:.3f} INFO assigned main-0\n"
    tale.evidence.steps = [(ns(101), Step(101, "stop", "a")), (ns(10), Step(10, "grow", amount=9))]
    verdict = tale.verdict()
    told = "\n".join(context(tale.evidence, verdict.violations[0]))
    assert "100.200 s: started in a, ended ok" in told
    assert "110.000 s: started in b" in told
    assert "109.0 s b: INFO assigned main-0" in told
    assert "101.0 s stop a" in told
    assert "grow" not in told


def test_times_are_measured_outside_spans() -> None:
    spans = united([(5, 8), (1, 3), (7, 9)])
    assert spans == [(1, 3), (5, 9)]
    assert outside(0, 10, spans) == 4
    assert outside(2, 6, spans) == 2
    assert outside(5, 9, spans) == 0
