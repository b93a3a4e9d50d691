"""Lending against a naive oracle, which asks for each slot by itself whose it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from kafka_keyshared.core import events as ev
from kafka_keyshared.core.loans import Loan
from kafka_keyshared.core.routing.autosplit import AutoSplit
from kafka_keyshared.core.routing.port import Routing
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.core.workers import Worker
from kafka_keyshared.hashing import SLOTS
from tests.property.test_draining_properties import Draining
from tests.support.seeds import examples

NAMES = ("a", "b", "c", "d", "e")

pytestmark = pytest.mark.timeout(300)


class Lending(Draining):
    """As draining, and whoever does not get on lends its slots, at any moment."""

    lend_after = 0.05

    @rule(seconds=st.sampled_from([0.025, 0.1, 0.2, 1.0]))
    def look(self, seconds: float) -> None:
        self.harness.look(seconds)

    @rule(at=st.integers(0, 5))
    def hang(self, at: int) -> None:
        """One worker stands still, and the others have done what they have."""
        workers = [*self.harness.pool.workers.values()]
        held_up = workers[at % len(workers)]
        held_up.start()
        for each in workers:
            while each is not held_up and each.busy:
                each.finish() if each.running is not None else each.step()
        self.harness.deliver()
        self.harness.look(0.2)

    def owner(self, slot: int, present: Mapping[str, int]) -> int:
        owner = super().owner(slot, present)
        loans = {each.id: each.loan for each in self.harness.sub().workers.values() if each.loan}
        for lender, loan in loans.items():
            if slot in loan.kept:
                return lender
        return (
            owner
            if owner not in loans
            else loans[owner].takers[slot // 64 % len(loans[owner].takers)]
        )

    @invariant()
    def nobody_who_lends_has_what_another_lends(self) -> None:
        if not hasattr(self, "harness"):
            return
        workers = self.harness.sub().workers
        for worker in workers.values():
            for taker in () if worker.loan is None else worker.loan.takers:
                assert workers[taker].present
                assert workers[taker].loan is None
            assert worker.present or worker.loan is None

    def teardown(self) -> None:
        """When nobody is held up any more, everything is where the ring has it."""
        super().teardown()
        if not hasattr(self, "harness"):
            return
        self.harness.look(1.0)
        sub = self.harness.sub()
        assert not any(worker.loan for worker in sub.workers.values())
        lending = sub.lending
        assert lending is not None
        assert lending.returned_total <= lending.lent_total
        self.harness.tell(ev.Flush())
        assert (sub.draining.count, sub.draining.empty()) == (0, True)


Lending.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)
TestLending = Lending.TestCase


@st.composite
def tables(draw: st.DrawFn) -> tuple[Routing, list[Worker]]:
    """A routing, and its workers; some of them lend what they have to some of the others."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique=True))
    routing = VnodeRing(names, 20) if draw(st.booleans()) else AutoSplit(names)
    workers = [Worker(name, 10 * at, 100) for at, name in enumerate(names)]
    lenders = draw(st.lists(st.sampled_from(workers), max_size=len(names) - 1, unique=True))
    others = [each.id for each in workers if each not in lenders]
    slots = st.frozensets(st.integers(0, SLOTS - 1), max_size=3)
    free = set(range(SLOTS))
    for each in lenders:
        takers = draw(st.lists(st.sampled_from(others), min_size=1, max_size=6))
        kept = draw(slots) & free
        free -= kept
        each.loan = Loan(tuple(takers), kept, (), 0.0, 0.0)
    return routing, workers


@given(tables())
@settings(max_examples=examples(40), deadline=None)
def test_what_is_lent_lies_over_the_table_and_nothing_else_moves(
    drawn: tuple[Routing, list[Worker]],
) -> None:
    routing, workers = drawn
    table = SlotTable(workers, routing)
    at = {worker.name: worker for worker in workers}
    by_id = {worker.id: worker for worker in workers}
    kept = {slot: each.id for each in workers if each.loan for slot in each.loan.kept}
    for slot, place in enumerate(routing.table()):
        owner = at[routing.workers[place]]
        expected = owner.id
        if slot in kept:
            expected = kept[slot]
        elif owner.loan is not None:
            expected = owner.loan.takers[slot // 64 % len(owner.loan.takers)]
        assert table.owners[slot] == expected
        assert table.rows[slot] is by_id[expected].row.routed
    # What is a worker's by the routing is told of it, whoever has it just now.
    assert table.shares == {at[name].id: part for name, part in routing.share().items()}
