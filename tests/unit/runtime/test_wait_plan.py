"""The plan of the owner's wait: a table of states, with the length and the reason of each."""

from __future__ import annotations

import itertools

import pytest

from kafka_keyshared.runtime.fetch_quota import FULL_POLL_EVERY
from kafka_keyshared.runtime.wait_plan import (
    ANSWER_POLL_EVERY,
    BUSY_WAIT,
    FULL_WAIT,
    IDLE_WAIT,
    OwnerWait,
    RoundState,
    WaitReason,
    plan_full_poll,
    plan_wait,
)

LEASED, SOON, LATER = {"leased": 3}, {"due_in": IDLE_WAIT}, {"due_in": IDLE_WAIT + 0.001}
LETTER, ORDER = {"dead_letters": 1}, {"orders": True}
MORE, FULL = {"more_fetched": True}, {"window_full": True}


@pytest.mark.parametrize(
    ("state", "seconds", "reason"),
    [
        # Nothing is under way: the client brings the next work, whatever the last fetch was.
        ({}, IDLE_WAIT, WaitReason.IDLE),
        (LATER, IDLE_WAIT, WaitReason.IDLE),
        (MORE, IDLE_WAIT, WaitReason.IDLE),
        (FULL, IDLE_WAIT, WaitReason.IDLE),
        (MORE | FULL | LATER, IDLE_WAIT, WaitReason.IDLE),
        # Each kind of work alone.
        (LEASED, BUSY_WAIT, WaitReason.LEASED),
        (SOON, BUSY_WAIT, WaitReason.DELAY),
        ({"due_in": -1.0}, BUSY_WAIT, WaitReason.DELAY),
        (LETTER, BUSY_WAIT, WaitReason.DEAD_LETTER),
        (ORDER, BUSY_WAIT, WaitReason.ORDER),
        # The first of several is named.
        (LEASED | SOON | LETTER | ORDER, BUSY_WAIT, WaitReason.LEASED),
        (SOON | LETTER | ORDER, BUSY_WAIT, WaitReason.DELAY),
        (LATER | LETTER | ORDER, BUSY_WAIT, WaitReason.DEAD_LETTER),
        (LATER | ORDER, BUSY_WAIT, WaitReason.ORDER),
        # A full window waits longer; a large fetch is followed by the next one at once.
        (LEASED | FULL, FULL_WAIT, WaitReason.WINDOW_FULL),
        (ORDER | FULL, FULL_WAIT, WaitReason.WINDOW_FULL),
        (LEASED | MORE, 0.0, WaitReason.MORE_FETCHED),
        (SOON | MORE, 0.0, WaitReason.MORE_FETCHED),
        (LEASED | MORE | FULL, 0.0, WaitReason.MORE_FETCHED),
    ],
)
def test_the_state_of_a_round_decides_how_long_the_owner_waits_and_why(
    state: dict[str, int | float | bool], seconds: float, reason: WaitReason
) -> None:
    assert plan_wait(RoundState(**state)) == OwnerWait(seconds, reason)  # type: ignore[arg-type]


def test_a_round_waits_in_one_place_only_and_in_the_client_only_while_nothing_is_under_way() -> (
    None
):
    for reason in WaitReason:
        wait = OwnerWait(1.0, reason)
        assert wait.in_mailbox + wait.in_client == 1.0
        assert bool(wait.in_client) is wait.idle is (reason is WaitReason.IDLE)


def test_no_round_with_work_under_way_waits_longer_than_one_without() -> None:
    for leased, due_in, letters, orders, more, full in itertools.product(
        (0, 1), (None, 0.0, 5.0), (0, 2), (False, True), (False, True), (False, True)
    ):
        wait = plan_wait(RoundState(leased, due_in, letters, orders, more, full))
        under_way = bool(leased or due_in == 0.0 or letters or orders)
        assert wait.idle is not under_way
        assert wait.seconds <= FULL_WAIT if under_way else wait.seconds == IDLE_WAIT


@pytest.mark.parametrize(
    ("paused", "reserve_every", "answer_awaited", "seconds"),
    [
        (True, 0.5, False, FULL_POLL_EVERY),
        (False, 0.5, False, 0.5),
        (False, 0.1, False, 0.1),
        (True, 0.5, True, ANSWER_POLL_EVERY),
        (False, 0.5, True, ANSWER_POLL_EVERY),
        (False, 0.001, True, 0.001),
    ],
)
def test_a_full_window_is_polled_as_often_as_its_reserve_and_an_awaited_answer_allow(
    paused: bool, reserve_every: float, answer_awaited: bool, seconds: float
) -> None:
    every = plan_full_poll(
        paused=paused, reserve_every=reserve_every, answer_awaited=answer_awaited
    )
    assert every == seconds
