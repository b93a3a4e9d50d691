"""Positions, settled sets and the metadata between two lives, beside sets of numbers."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.positions import OffsetSnapshot, PartitionState, derive
from kafka_keyshared.core.partitions.assignment import start, unreceived
from kafka_keyshared.model import Record
from tests.support.commit_texts import here
from tests.support.records import P0, record
from tests.support.seeds import examples

STEPS = settings(
    derandomize=True, deadline=None, max_examples=examples(40), stateful_step_count=100
)

ME = "default"
PICKS = st.integers(0, 29)
WHAT = (
    *["write"] * 2,
    *["fetch"] * 5,
    *["settle"] * 7,
    *["commit"] * 2,
    *("end", "go"),
)
BUDGETS = st.sampled_from([0, 20, 60, *[commit_metadata.SET_BUDGET] * 3])


class Positions(RuleBasedStateMachine):
    """One partition: records come over gaps, settle in any order, and are committed or not.

    The oracle has three sets: what is in the log, what has settled, and what had settled when the
    commit was made that the broker has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: set[int] = set()
        self.log_end = 0
        self.settled: set[int] = set()
        self.covered: set[int] = set()
        # What the broker has: position and text.
        self.stored = (0, "")
        self.state = PartitionState(0)
        self.held: dict[int, Record] = {}

    @rule(what=st.sampled_from(WHAT), pick=PICKS, other=PICKS, budget=BUDGETS)
    def act(self, what: str, pick: int, other: int, budget: int) -> None:
        """One rule with weights: of many rules each run would leave out some."""
        if what == "write":
            self.write((0, 0, 0, 1, 7, 100_000)[other % 6], 1 + pick % 12)
        elif what == "fetch":
            self.fetch(1 + pick % 9)
        elif what == "settle":
            self.settle([pick, other])
        elif what == "commit":
            self.commit(stored=other % 3 > 0, budget=budget)
        elif what == "end":
            self.reach_the_end()
        else:
            self.go_and_come_back(pick % 2 > 0, budget, cut=max(0, other % 6 - 2), count=pick % 9)

    # --- the log and the client ---

    @initialize(count=st.integers(4, 12), fetched=st.integers(1, 12))
    def begin(self, count: int, fetched: int) -> None:
        self.write(0, count)
        self.fetch(fetched)

    def write(self, gap: int, count: int) -> None:
        first = self.log_end + gap
        self.log.update(range(first, first + count))
        self.log_end = first + count

    def fetch(self, count: int) -> None:
        end = self.state.received_end
        assert end is not None
        came = sorted(offset for offset in self.log if offset >= end)[:count]
        if not came:
            return
        self.state.received_end = came[-1] + 1
        settled_before = unreceived({P0: self.state}, ME) or (lambda _record: False)
        new = [each for each in map(record, came) if not settled_before(each)]
        assert {each.offset() for each in new} == set(came) - self.settled, (
            "what this life's first commit covered does not run again, and everything else runs"
        )
        self.held.update((each.offset(), each) for each in new)
        self.state.drop_passed({})

    def reach_the_end(self) -> None:
        """The client says that there is nothing more, beyond whatever markers."""
        if not any(offset >= (self.state.received_end or 0) for offset in self.log):
            self.state.received_end = max(self.state.received_end or 0, self.log_end)

    # --- what is done ---

    @rule(picks=st.lists(st.integers(0, 50), min_size=1, max_size=5))
    def settle(self, picks: list[int]) -> None:
        for pick in picks:
            if self.held:
                offset = sorted(self.held)[pick % len(self.held)]
                del self.held[offset]
                self.settled.add(offset)

    def snapshot(self) -> OffsetSnapshot:
        end = self.state.received_end
        assert end is not None
        return derive(end, {ME: self.held}, self.state.restored, {})

    def commit(self, stored: bool, budget: int) -> None:
        """The broker has it, or it was lost on its way. A small budget cuts the set."""
        snapshot = self.snapshot()
        encoded = commit_metadata.encode(here(snapshot.position), snapshot.runs, set_budget=budget)
        text = encoded.text
        assert encoded.set_chars <= budget, "a set keeps to its budget"
        assert len(text) <= budget + commit_metadata.OVERHEAD_CHARS, (
            "little is written besides the set"
        )
        if stored:
            self.stored = snapshot.position, text
            sections = commit_metadata.decode(text, here(snapshot.position)).sections
            kept = {
                offset
                for start_, end in sections.get(ME, ())
                for offset in self.log
                if start_ <= offset < end
            }
            self.covered = {offset for offset in self.log if offset < snapshot.position} | kept
            assert self.covered <= self.settled, "a commit covers nothing that is not settled"
            if budget == commit_metadata.SET_BUDGET:
                ahead = {offset for offset in self.settled if offset >= snapshot.position}
                assert ahead <= self.covered, "a set that has room says everything"

    def go_and_come_back(self, commits: bool, budget: int, cut: int, count: int) -> None:
        """A stop or a crash, and the next life begins to read. A log may have lost its end."""
        if commits:
            self.commit(stored=True, budget=budget)
        lost = set(sorted(self.log)[len(self.log) - cut :])
        if lost and min(lost) >= self.stored[0]:
            self.log_end = min(lost)
            self.log -= lost
            self.settled -= lost
            self.covered -= lost
        self.begin_again()
        self.fetch(count)

    def begin_again(self) -> None:
        """What is not covered runs again: to the oracle it is not settled any more."""
        position, text = self.stored
        point = StartPoint(position, text, 0, self.log_end)
        self.state, at, notices = start(P0, point, [ME])
        assert at == position
        assert not notices
        self.held = {}
        self.settled = set(self.covered)
        if self.state.outdated:
            # At once: when the log has grown, no later life can tell.
            self.commit(stored=True, budget=commit_metadata.SET_BUDGET)

    # --- what always holds ---

    @invariant()
    def the_position_is_the_lowest_that_is_held_or_the_received_end(self) -> None:
        snapshot = self.snapshot()
        assert snapshot.position == min(self.held, default=self.state.received_end)

    @invariant()
    def the_set_has_what_has_settled_beyond_the_position_and_nothing_else(self) -> None:
        snapshot = self.snapshot()
        runs = snapshot.runs.get(ME, ())
        claimed = {each for each in self.log for first, end in runs if first <= each < end}
        assert claimed == {offset for offset in self.settled if offset >= snapshot.position}
        assert not claimed & self.held.keys()


TestPositions = Positions.TestCase
TestPositions.settings = STEPS
