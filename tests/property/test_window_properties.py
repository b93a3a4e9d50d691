"""The window beside a list of everything that is in it."""

from __future__ import annotations

import itertools
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafka_keyshared.core.records.pristine import Chunk
from kafka_keyshared.core.records.window import Window
from tests.support.records import P0, FakeRecord
from tests.support.seeds import examples

STEPS = settings(derandomize=True, deadline=None, max_examples=examples(60), stateful_step_count=30)


class Windows(RuleBasedStateMachine):
    """Records of one size come and settle in any order: then what is sampled is what is there."""

    window: Window
    size: int
    most: int
    bytes_most: int

    def __init__(self) -> None:
        super().__init__()
        self.held: list[FakeRecord] = []
        self.offsets = itertools.count()
        self.seen = 0

    @initialize(most=st.integers(1, 60), bytes_most=st.integers(1, 4_000), size=st.integers(0, 300))
    def begin(self, most: int, bytes_most: int, size: int) -> None:
        self.window = Window(most, bytes_most)
        self.most, self.bytes_most, self.size = most, bytes_most, size

    def record(self) -> FakeRecord:
        return FakeRecord(P0, next(self.offsets), None, size=self.size)

    @rule(count=st.integers(0, 80))
    def fetch(self, count: int) -> None:
        """What a fetch brings is what there is room for."""
        came = [self.record() for _ in range(min(count, self.window.room()))]
        self.window.receive(Chunk(came))
        self.held += came
        self.seen += len(came)

    @rule()
    def poll(self) -> None:
        """The client is polled although the window is full, and may bring one."""
        came = self.record()
        self.window.receive(Chunk([came]))
        self.held.append(came)
        self.seen += 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.held)))
        at = data.draw(st.integers(0, len(self.held) - count))
        del self.held[at : at + count]
        self.window.free(count)

    @rule()
    def commit(self) -> None:
        self.window.correct(self.held)

    @invariant()
    def it_holds_what_the_list_holds(self) -> None:
        content = sum(len(each.value()) for each in self.held)
        assert self.window.records == len(self.held)
        assert self.window.received == self.seen
        assert math.isclose(self.window.bytes, content, abs_tol=1e-6)

    @invariant()
    def there_is_room_for_as_many_as_fit_by_both_bounds_and_one_more(self) -> None:
        content = len(self.held) * self.size
        room = self.window.room()
        assert 0 <= room <= max(0, self.most - len(self.held))
        if content > self.bytes_most * (1 + 1e-9):
            assert room == 0
        if room and self.held:
            # All of it but the last is within the bytes.
            assert content + (room - 1) * self.size <= self.bytes_most * (1 + 1e-9)
        if room == 0 and len(self.held) < self.most:
            assert content >= self.bytes_most * (1 - 1e-9)


TestWindows = Windows.TestCase
TestWindows.settings = STEPS


class Mixed(RuleBasedStateMachine):
    """Records of any sizes: what is not counted is a guess, and one that lies between the sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(10_000, 100_000)
        self.held: list[FakeRecord] = []
        self.sizes: set[int] = set()
        self.offsets = itertools.count()

    @rule(sizes=st.lists(st.sampled_from([0, 10, 500, 9_000]), min_size=1, max_size=40))
    def fetch(self, sizes: list[int]) -> None:
        came = [FakeRecord(P0, next(self.offsets), None, size=size) for size in sizes]
        full = self.window.bytes * 4 > self.window.bytes_max * 3
        before = self.window.bytes
        self.window.receive(Chunk(came))
        self.held += came
        self.sizes.update(sizes)
        if full:  # near the bound everything is counted
            assert math.isclose(self.window.bytes - before, sum(sizes), abs_tol=1e-6)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.held)))
        del self.held[:count]
        self.window.free(count)

    @rule()
    def commit(self) -> None:
        self.window.correct(self.held)
        assert self.window.bytes == sum(len(each.value()) for each in self.held)

    @invariant()
    def the_guess_lies_between_all_at_the_smallest_and_all_at_the_largest_size(self) -> None:
        count = len(self.held)
        assert self.window.records == count
        low, high = min(self.sizes, default=0) * count, max(self.sizes, default=0) * count
        assert low - 1e-6 <= self.window.bytes <= high + 1e-6


TestMixed = Mixed.TestCase
TestMixed.settings = STEPS
