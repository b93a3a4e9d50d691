"""The ledger of holds by itself, and what may not stand in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_keyshared.core.backpressure.pause_reasons import NOT_PAUSED, Holds, Reason
from kafka_keyshared.errors import InvariantError
from tests.support.core_harness import Harness
from tests.support.records import P0, P1


def test_a_partition_is_free_when_the_last_of_its_reasons_has_gone() -> None:
    holds = Holds()
    holds.hold_back(Reason.BLOCKED, [P0], "a")
    holds.hold_back(Reason.BLOCKED, [P0], "b")
    holds.hold_back(Reason.SHARE, [P0])
    holds.let_go(Reason.BLOCKED, [P0, P1], "a")
    assert holds.reasons(P0) == (Reason.BLOCKED, Reason.SHARE), "b holds it still"
    assert holds.held_back_by(Reason.BLOCKED, "a") == []
    holds.let_go(Reason.BLOCKED, [P0], "b")
    assert holds.reasons(P0) == (Reason.SHARE,)
    assert holds.paused([P0, P1]) == {P0}
    holds.let_go(Reason.SHARE, [P0])
    assert holds.reasons(P0) == ()
    assert holds.paused([P0, P1]) == set()


def test_what_holds_everything_holds_what_comes_later_too() -> None:
    holds = Holds()
    holds.hold_all_back(Reason.WINDOW)
    assert holds.paused([P0, P1]) == {P0, P1}
    assert holds.reasons(P1) == (Reason.WINDOW,)
    holds.forget([P1])
    assert holds.reasons(P1) == (Reason.WINDOW,)
    holds.let_go_all(Reason.WINDOW)
    assert holds.paused([P0, P1]) == set()


def test_only_these_are_held_and_the_others_let_go() -> None:
    holds = Holds()
    holds.hold_back(Reason.SHARE, [P0])
    holds.only(Reason.SHARE, {P1})
    assert holds.held_back(Reason.SHARE) == {P1}


def test_a_partition_that_goes_takes_all_its_reasons_along() -> None:
    holds = Holds()
    for reason in Reason:
        holds.hold_back(reason, [P0], "somebody")
    assert set(holds.reasons(P0)) == set(Reason)
    holds.forget([P0])
    assert holds.reasons(P0) == ()


@pytest.mark.parametrize("reason", Reason)
def test_a_change_is_a_change_and_the_same_again_is_none(reason: Reason) -> None:
    """Nobody tells the client anything, or walks over its partitions, for what is as it was."""
    holds = Holds()
    acts: list[Callable[[], None]] = [
        lambda: holds.hold_back(reason, [P0]),
        lambda: holds.let_go(reason, [P0]),
        lambda: holds.hold_all_back(reason),
        lambda: holds.let_go_all(reason),
    ]
    for act in acts:
        before = holds.version
        act()
        assert holds.version != before
        before = holds.version
        act()
        assert holds.version == before


def test_where_no_pause_is_told_a_second_reason_is() -> None:
    holds = Holds()
    for reason in NOT_PAUSED:
        holds.hold_back(reason, [P0])
    assert holds.paused([P0]) == set()
    holds.hold_back(Reason.UNREAD, [P0])
    assert holds.paused([P0]) == {P0}


@pytest.mark.parametrize("reason", [Reason.SET_FULL, Reason.UNREAD, Reason.BLOCKED])
def test_a_hold_whose_cause_is_over_is_found_by_the_check(reason: Reason) -> None:
    harness = Harness()
    harness.assign(P0)
    harness.core.holds.hold_back(reason, [P0 if reason is not Reason.BLOCKED else P1], "default")
    with pytest.raises(InvariantError, match=reason.value):
        harness.core.check()


def test_a_revoke_that_never_ends_is_found_by_the_check() -> None:
    harness = Harness()
    harness.core.holds.hold_back(Reason.CLOSING, [P0])
    with pytest.raises(InvariantError, match="orders-0 has gone"):
        harness.core.check()
