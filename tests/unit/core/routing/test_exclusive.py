"""Exclusive gives everything to one worker, Unordered nothing to anybody in particular."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.routing import Exclusive, Move, Unordered, Unowned, moved, moves
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS


def test_the_first_in_the_order_of_the_names_has_everything_and_the_others_stand_by() -> None:
    routing = Exclusive(["worker-2", "worker-0", "worker-1"])
    assert routing.active == "worker-0"
    assert routing.standby == ("worker-1", "worker-2")
    assert {routing.workers[owner] for owner in routing.table()} == {"worker-0"}
    assert routing.share() == {"worker-2": 0, "worker-0": 1, "worker-1": 0}


def test_when_the_active_one_leaves_the_next_takes_over_everything() -> None:
    routing = Exclusive(worker_names(12))
    order = []
    while len(routing.workers) > 1:
        after = routing.without_worker(routing.active)
        assert list(moves(routing, after)) == [Move(0, SLOTS - 1, routing.active, after.active)]
        assert after.active == routing.standby[0]
        order.append(routing.active)
        routing = after
    assert (*order, routing.active) == worker_names(12), "worker-10 comes after worker-9"


def test_a_standby_that_comes_or_goes_moves_nothing() -> None:
    routing = Exclusive(["a", "b"])
    assert moved(routing, routing.with_worker("c")) == []
    assert moved(routing, routing.without_worker("b")) == []


def test_one_with_an_earlier_name_that_joins_takes_over() -> None:
    routing = Exclusive(["b", "c"])
    assert list(moves(routing, routing.with_worker("a"))) == [Move(0, SLOTS - 1, "b", "a")]


def test_names_that_differ_in_how_a_number_is_written_have_an_order() -> None:
    assert Exclusive(["w-01", "w-1", "w-001"]).standby == ("w-01", "w-1")
    assert Exclusive(["9", "a", "10"]).standby == ("10", "a")


def test_among_some_workers_the_first_of_those_that_are_there_is_active() -> None:
    routing = Exclusive(["a", "b", "c"])
    assert routing.owner_among(7, frozenset(["c", "b", "0"])) == "b"
    assert routing.owner_among(7, frozenset(["0"])) is Unowned.AWAY


def test_unordered_is_told_by_slots_that_are_anybodys() -> None:
    routing = Unordered(["a", "b"])
    assert list(routing.arcs()) == [(Unowned.ANYBODY, SLOTS)]
    assert routing.owner(SLOTS - 1) is Unowned.ANYBODY
    assert routing.share() == {"a": 0, "b": 0}
    assert routing.owner_among(0, frozenset(["b", "z"])) is Unowned.ANYBODY
    assert routing.owner_among(0, frozenset(["z"])) is Unowned.AWAY


def test_nothing_moves_where_slots_do_not_count() -> None:
    routing = Unordered(["a"])
    after = routing.with_worker("b").with_worker("c").without_worker("a")
    assert moved(routing, after) == []
    assert after.workers == ("b", "c")


@pytest.mark.parametrize("make", [Exclusive, Unordered])
def test_no_workers_and_two_of_one_name_are_refused(
    make: type[Exclusive] | type[Unordered],
) -> None:
    with pytest.raises(ConfigError, match="no workers"):
        make([])
    with pytest.raises(ConfigError, match="two workers named 'a'"):
        make(["a", "b", "a"])
