"""The judge, on traces of a few events: each rule is silent on valid ones and bites on a fault.

A trace is written in the notation of the judge's own documentation. Every token takes one tick:

    10[   10a[   a start (lane `a`; without a letter all in one lane; `_` is the null key)
    ]10   !10    its end, ok or failed           ~10   its end, dropped by the handler
    d10          dropped by a policy             p10   produced (so is every offset that occurs)
    x10   X10    its dead letter was read back / acknowledged
    c11   c11+13-14   a commit of position 11 (and the set 13..14), sent, and accepted a tick later
    u11          a commit that is never answered
    A   R   L    the partition is assigned, revoked, lost
"""

from __future__ import annotations

import random
import re

import pytest

from kafka_keyshared.observability.audit.judge import EXAMPLES, Judgement, judge
from kafka_keyshared.observability.audit.ledger import (
    CommitAnswered,
    CommitSent,
    DeadLettered,
    Dropped,
    Ended,
    MemoryLedger,
    Outcome,
    Ownership,
    OwnershipChanged,
    Produced,
    Started,
)

TOPIC = "t"
ENDS: dict[str, Outcome] = {"]": "ok", "!": "failed", "~": "dropped"}
CHANGES: dict[str, Ownership] = {"A": "assigned", "R": "revoked", "L": "lost"}


class Script:
    """Turns traces into ledgers with one clock for all incarnations."""

    def __init__(self) -> None:
        self.clock = 0
        self.number = 0
        self.producer = MemoryLedger("producer")
        self.ledgers: dict[str, MemoryLedger] = {}
        self.keys: dict[int, bytes | None] = {}
        self.running: dict[tuple[str, int], list[int]] = {}

    def run(self, incarnation: str, text: str) -> Script:
        ledger = self.ledgers.setdefault(incarnation, MemoryLedger(incarnation))
        for token in text.split():
            self.clock += 1
            self._token(ledger, token)
        return self

    def judge(self) -> Judgement:
        for offset, key in self.keys.items():
            self.producer.events.append(Produced(TOPIC, 0, offset, key))
        return judge([self.producer, *self.ledgers.values()])

    def _token(self, ledger: MemoryLedger, token: str) -> None:
        if token in CHANGES:
            ledger.events.append(OwnershipChanged(TOPIC, 0, CHANGES[token], self.clock))
            return
        if token[0] in "cu":
            self._commit(ledger, token)
            return
        match = re.fullmatch(r"([\]!~dpxX]?)(\d+)([a-z_]?)(\[?)", token)
        assert match, token
        before, digits, lane, after = match.groups()
        offset = int(digits)
        key = None if lane == "_" else (lane or "k").encode()
        if lane or offset not in self.keys:
            self.keys[offset] = key
        if after:
            self.number += 1
            self.running.setdefault((ledger.incarnation, offset), []).append(self.number)
            event = Started(self.number, TOPIC, 0, offset, self.keys[offset], 7, self.clock)
            ledger.events.append(event)
        elif before in ENDS:
            attempt = self.running[ledger.incarnation, offset].pop(0)
            ledger.events.append(Ended(attempt, ENDS[before], self.clock))
        elif before == "d":
            ledger.events.append(Dropped(TOPIC, 0, offset, self.clock))
        elif before == "x":
            ledger.events.append(DeadLettered(TOPIC, 0, offset, None))
        elif before == "X":
            ledger.events.append(DeadLettered(TOPIC, 0, offset, self.clock))

    def _commit(self, ledger: MemoryLedger, token: str) -> None:
        position, _, ranges = token[1:].partition("+")
        settled = tuple(
            (int(lo), int(hi)) for lo, hi in (r.split("-") for r in ranges.split(",") if r)
        )
        self.number += 1
        event = CommitSent(self.number, TOPIC, 0, int(position), settled, self.clock)
        ledger.events.append(event)
        if token[0] == "c":
            self.clock += 1
            ledger.events.append(CommitAnswered(self.number, True, self.clock))


def judged(*parts: str) -> Judgement:
    """Judge parts like ``"A: 10[ ]10"`` (incarnation: trace), one after the other in time."""
    script = Script()
    for part in parts:
        incarnation, _, text = part.rpartition(":")
        script.run(incarnation or "one", text)
    return script.judge()


CLEAN: list[tuple[str, ...]] = [
    (),
    ("10[ ]10 11[ ]11",),
    ("10[ !10 10[ !10 10[ ]10 11[ ]11",),
    ("11a[ 10b[ ]10 ]11",),
    ("10a[ 11b[ ]10 ]11",),
    # Records without a key are lanes of their own: neither order nor overlap between them.
    ("11_[ 10_[ ]11 ]10",),
    # Dead-lettered after its attempts, read back or acknowledged, then the lane goes on.
    ("10[ !10 10[ !10 11[ ]11 x10",),
    ("10[ !10 10[ !10 X10 11[ ]11 c12",),
    ("10[ !10 X10 x10 11[ ]11 c12",),
    # Dropped by the handler, by a policy after a failure, by a filter without any attempt.
    ("10[ ~10 11[ ]11 c12",),
    ("10[ !10 d10 11[ ]11 c12",),
    ("d10 11[ ]11 c12",),
    # A kill cuts 11 short; the next incarnation begins at the committed position or before it.
    ("a: A 10[ ]10 c11 11[", "b: A 11[ ]11 12[ ]12 c13"),
    # A retry was waiting when the process was killed.
    ("a: 10[ !10", "b: 10[ ]10 11[ ]11"),
    # A rebalance: given up, handed on, taken back, and each starts where the other committed.
    ("a: A 10[ ]10 c11 R", "b: A 11[ ]11 c12 R", "a: A 12[ ]12 c13"),
    # Position and settled set; offset 12 was never produced (a transaction marker).
    ("10a[ 11b[ 13c[ ]11 ]13 c10+11-13 ]10 c14",),
    ("u10 10[ ]10 c11 c11 11[ ]11 c12",),
    # What was never settled and never produced either cannot be lost.
    ("10[ ]10 c50",),
    # An owner that never heard of the partition being given up goes on committing.
    ("a: A c5 c5 R A c5",),
]

FAULTS: list[tuple[str, int, tuple[str, ...]]] = [
    ("order_violations", 1, ("11[ ]11 10[ ]10",)),
    ("order_violations", 2, ("12[ ]12 11[ ]11 10[ ]10",)),
    # A retry overtaken: 10 comes back late, or is given up only after 11 had started.
    ("order_violations", 1, ("10[ !10 11[ ]11 10[ ]10",)),
    ("order_violations", 1, ("10[ !10 11[ ]11 X10",)),
    ("order_violations", 1, ("10[ !10 11[ ]11 d10",)),
    ("order_violations", 1, ("10[ !10 11[ ]11 10[ !10 x10",)),
    # Overtaken by a record of another incarnation.
    ("order_violations", 1, ("a: 10[ !10", "b: 11[ ]11", "a: 10[ ]10")),
    ("order_violations", 1, ("a: 10[", "b: 11[ ]11 10[ ]10")),
    ("lost", 1, ("p10 11[ ]11",)),
    ("lost", 1, ("10[ !10",)),
    ("lost", 1, ("a: 10[ ]10 11[",)),
    ("lost", 2, ("10_[ !10 p11_ 12[ ]12",)),
    # Its dead letter was acknowledged, but is not among those that were read back.
    ("lost", 1, ("10a[ !10 X10 11b[ !11 X11 x11",)),
    ("duplicates", 1, ("10[ ]10 10[ ]10",)),
    ("duplicates", 1, ("10_[ ]10 10_[ ]10",)),
    ("duplicates", 2, ("a: 10[ ]10 11[ ]11", "b: 10[ ]10 11[ ]11")),
    ("duplicates", 1, ("10[ !10 d10 10[ ]10",)),
    ("duplicates", 1, ("10[ !10 X10 10[ ]10",)),
    ("duplicates", 1, ("10[ !10 x10 x10",)),
    ("duplicates", 1, ("10[ !10 X10 X10",)),
    ("duplicates", 1, ("a: 10[ !10", "b: 10[ ]10 x10")),
    ("overlaps", 1, ("10[ 11[ ]10 ]11",)),
    ("overlaps", 1, ("10[ 11[ ]11 ]10",)),
    ("overlaps", 2, ("10[ 11[ ]11 12[ ]12 ]10",)),
    ("overlaps", 1, ("10_[ 10_[ ]10 ]10",)),
    ("overlaps", 1, ("a: 10[", "b: 10[ ]10", "a: ]10")),
    ("commits_past_unsettled", 1, ("10[ c11 ]10",)),
    ("commits_past_unsettled", 1, ("10a[ 11b[ ]11 c12 ]10",)),
    ("commits_past_unsettled", 1, ("10a[ 11b[ ]10 c11+11-11 ]11",)),
    ("commits_past_unsettled", 1, ("10[ ]10 c12 11[ ]11",)),
    ("commits_past_unsettled", 1, ("10[ !10 c11 10[ ]10",)),
    ("commits_past_unsettled", 1, ("10[ !10 c11 X10",)),
    ("commits_past_unsettled", 1, ("10[ u11 ]10",)),
    ("commit_sequence_falls", 1, ("10[ ]10 11[ ]11 c12 c11",)),
    ("commit_sequence_falls", 1, ("10[ ]10 11[ ]11 u12 c11",)),
    ("commit_sequence_falls", 1, ("a: 10[ ]10 11[ ]11 c12", "b: c11")),
    ("commits_without_ownership", 1, ("A 10[ ]10 R c11",)),
    ("commits_without_ownership", 1, ("A 10[ ]10 L u11",)),
    ("commits_without_ownership", 1, ("10[ ]10 c11 A",)),
]


@pytest.mark.parametrize("parts", CLEAN, ids=" | ".join)
def test_valid_traces_are_clean(parts: tuple[str, ...]) -> None:
    judgement = judged(*parts)
    assert judgement.clean, judgement.lines()
    assert judgement.duplicates_after_commit.count == 0


@pytest.mark.parametrize(("rule", "count", "parts"), FAULTS, ids=str)
def test_a_fault_turns_exactly_its_count(rule: str, count: int, parts: tuple[str, ...]) -> None:
    judgement = judged(*parts)
    found = {name: n for name, n in judgement.counts().items() if n}
    assert found == {rule: count}, judgement.lines()
    assert len(judgement.findings()[rule].examples) == count
    assert not judgement.clean


def test_every_rule_has_a_planted_fault() -> None:
    assert {rule for rule, _, _ in FAULTS} == set(Judgement().counts())


def test_going_back_within_one_assignment_is_a_repeat_and_out_of_order() -> None:
    judgement = judged("A 10[ ]10 11[ ]11 10[ ]10")
    assert judgement.counts()["order_violations"] == 1
    assert judgement.counts()["duplicates"] == 1


def test_going_back_with_a_new_assignment_is_only_a_repeat() -> None:
    judgement = judged("A 10[ ]10 11[ ]11 R A 10[ ]10 11[ ]11")
    assert judgement.counts()["order_violations"] == 0
    assert judgement.counts()["duplicates"] == 2


def test_a_rewound_incarnation_must_still_go_in_order() -> None:
    judgement = judged("a: 10[ ]10 11[ ]11 12[ ]12", "b: 12[ ]12 10[ ]10 11[ ]11")
    assert judgement.order_violations.count == 2
    assert judgement.duplicates_by_incarnation == {"b": 3}


def test_a_kill_excuses_repeats_only_up_to_the_accepted_commit() -> None:
    killed = "a: 10a[ ]10 11a[ ]11 12b[ 13a[ ]13 c12+13-13"
    excused = judged("a: 10[ ]10 c10 11[ ]11", "b: 10[ ]10 11[ ]11")
    by_position = judged(killed, "b: 11[ ]11 12[ ]12")
    by_set = judged(killed, "b: 12[ ]12 13[ ]13")
    unanswered = judged("a: 10[ ]10 u11", "b: 10[ ]10")
    assert (excused.duplicates.count, excused.duplicates_after_commit.count) == (2, 0)
    assert (by_position.duplicates.count, by_position.duplicates_after_commit.count) == (1, 1)
    assert (by_set.duplicates.count, by_set.duplicates_after_commit.count) == (1, 1)
    assert (unanswered.duplicates.count, unanswered.duplicates_after_commit.count) == (1, 0)


def test_one_key_in_two_partitions_is_one_lane_for_overlap_but_not_for_order() -> None:
    ledger = MemoryLedger("one")
    ledger.events += [
        Started(1, TOPIC, 0, 5, b"k", 7, 1),
        Ended(1, "ok", 3),
        Started(2, TOPIC, 1, 2, b"k", 7, 2),
        Ended(2, "ok", 4),
    ]
    assert {n: c for n, c in judge([ledger]).counts().items() if c} == {"overlaps": 1}


def test_events_of_two_threads_may_stand_in_any_order() -> None:
    ledger = MemoryLedger("one")
    ledger.events += [
        CommitAnswered(3, True, 9),
        Ended(1, "ok", 3),
        CommitSent(3, TOPIC, 0, 6, (), 4),
        Started(1, TOPIC, 0, 5, b"k", 7, 1),
    ]
    judgement = judge([ledger])
    assert judgement.clean
    assert (judgement.totals.ok, judgement.totals.accepted_commits) == (1, 1)


def test_equal_times_on_a_coarse_clock_accuse_nobody() -> None:
    ledger = MemoryLedger("one")
    ledger.events += [
        OwnershipChanged(TOPIC, 0, "assigned", 1),
        Started(1, TOPIC, 0, 5, b"k", 7, 1),
        Ended(1, "ok", 1),
        Started(2, TOPIC, 0, 6, b"k", 7, 1),
        Ended(2, "ok", 1),
        CommitSent(3, TOPIC, 0, 7, (), 1),
        OwnershipChanged(TOPIC, 0, "revoked", 1),
    ]
    judgement = judge([ledger])
    assert judgement.clean, judgement.lines()


def test_totals_say_what_there_was_to_judge() -> None:
    totals = judged("10a[ ]10 11b[ ~11 12c[ !12 12c[ !12 x12 13d[ p14e c10 u10").totals
    assert (totals.produced, totals.attempts, totals.incarnations) == (5, 5, 2)
    assert (totals.failed_attempts, totals.unfinished_attempts) == (2, 1)
    assert (totals.ok, totals.dropped, totals.dead_lettered) == (1, 1, 1)
    assert (totals.commits, totals.accepted_commits) == (2, 1)


def test_examples_are_few_and_name_the_record() -> None:
    judgement = judged(" ".join(f"p{offset}" for offset in range(20)))
    assert judgement.lost.count == 20
    assert len(judgement.lost.examples) == EXAMPLES
    assert judgement.lost.examples[0] == "t-0@0 (key b'k') was produced and never started"
    assert judgement.lines()[judgement.lines().index("lost: 20") + 1].endswith("never started")


def test_ledgers_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="two ledgers of the incarnation same"):
        judge([MemoryLedger("same"), MemoryLedger("same")])
    headless = MemoryLedger("one")
    headless.events.append(Ended(1, "ok", 3))
    with pytest.raises(ValueError, match="no start of"):
        judge([headless])


class Dispatcher:
    """A correct dispatcher with random timing, kills and rewinds, which writes a trace."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lane_of = {offset: self.random.choice("abcd") for offset in range(60)}
        self.settled: set[int] = set()
        self.committed: tuple[int, set[int]] = (0, set())
        self.parts: list[str] = []

    def trace(self) -> list[str]:
        while self.committed[0] < len(self.lane_of):
            self.settled = set(self.committed[1]) | set(range(self.committed[0]))
            tokens = ["A", *self._life()]
            self.parts.append(f"i{len(self.parts)}: " + " ".join(tokens))
        return self.parts

    def _life(self) -> list[str]:
        tokens: list[str] = []
        running: dict[str, int] = {}
        attempts: dict[int, int] = {}
        for _ in range(self.random.randint(5, 150)):
            lane = self.random.choice("abcd")
            waiting = [o for o, k in self.lane_of.items() if k == lane and o not in self.settled]
            if self.random.random() < 0.1:
                tokens.append(self._commit())
            elif lane in running:
                tokens += self._end(running.pop(lane), attempts)
            elif waiting:
                running[lane] = waiting[0]
                tokens.append(f"{waiting[0]}{lane}[")
        return tokens

    def _end(self, offset: int, attempts: dict[int, int]) -> list[str]:
        attempts[offset] = attempts.get(offset, 0) + 1
        if self.random.random() < 0.7:
            self.settled.add(offset)
            return [f"]{offset}"]
        if attempts[offset] < 3:
            return [f"!{offset}"]
        self.settled.add(offset)
        return [f"!{offset}", f"X{offset}"]

    def _commit(self) -> str:
        position = next(o for o in range(len(self.lane_of) + 1) if o not in self.settled)
        beyond = {o for o in self.settled if o > position}
        self.committed = (position, beyond)
        return f"c{position}+" + ",".join(f"{o}-{o}" for o in sorted(beyond))


@pytest.mark.parametrize("seed", range(40))
def test_a_correct_dispatcher_with_kills_is_never_accused(seed: int) -> None:
    parts = Dispatcher(seed).trace()
    judgement = judged(*parts)
    found = {name for name, count in judgement.counts().items() if count}
    assert found <= {"duplicates"}, judgement.lines()
    assert judgement.duplicates_after_commit.count == 0
    assert judgement.totals.incarnations == len(parts) + 1
    assert judgement.totals.produced == len(Dispatcher(seed).lane_of)
