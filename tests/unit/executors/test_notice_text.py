"""The log line of every kind of fact, in full."""

from __future__ import annotations

import typing
from dataclasses import replace

import pytest

from kafka_keyshared.core.contract import facts
from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.contract.facts import Fact, Repeats
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.executors import notice_text
from kafka_keyshared.executors.notice_text import Level, NoticeLine, halt_text, line_of
from kafka_keyshared.executors.notice_words import order_text
from tests.support.notice_lines import BLOCKED, FAILED, GIVEN_UP, LINES, STACK, A


def test_every_kind_of_fact_has_its_line() -> None:
    every = set(typing.get_args(Fact))
    assert set(notice_text._FORMS) == every
    assert {type(fact) for fact, _, _ in LINES} == every


@pytest.mark.parametrize(
    ("fact", "level", "text"), LINES, ids=[type(each).__name__ for each, _, _ in LINES]
)
def test_a_fact_in_words(fact: Fact, level: Level, text: str) -> None:
    line = line_of(Notice(fact))
    assert (line.level, line.text) == (level, text)
    assert line.about == getattr(fact, "about", None)


def test_a_long_running_record_names_the_place_to_look_up() -> None:
    running = ("default", 0, 3, 0)
    fact = facts.RecordRunsLong(A, running, "worker-0", 30.0, member=False, others_wait=None)
    assert line_of(Notice(fact)).running == running


@pytest.mark.parametrize(
    ("repeats", "text"),
    [
        (
            Repeats(1, 10.0, 0.5),
            "orders-0@7 (key b'a'), attempt 1 of 5: KeyError at app.py:12: 'id'",
        ),
        (
            Repeats(1, 10.0, 4.0),
            "4 s ago: orders-0@7 (key b'a'), attempt 1 of 5: KeyError at app.py:12: 'id'",
        ),
        (
            Repeats(1_200, 10.0, 0.5, [(("KeyError", "app.py:12"), 1_100)], 100),
            "1,200 more attempts failed in 10 s (KeyError at app.py:12 1,100, others 100), "
            "the first: orders-0@7 (key b'a'), attempt 1 of 5: KeyError at app.py:12: 'id'",
        ),
        (
            Repeats(2, 10.0, 9.0),
            "2 more attempts failed in 10 s, the last 9 s ago, the first: "
            "orders-0@7 (key b'a'), attempt 1 of 5: KeyError at app.py:12: 'id'",
        ),
    ],
)
def test_a_line_for_several_events_counts_them_and_says_nothing_of_what_follows(
    repeats: Repeats, text: str
) -> None:
    """What follows is over when such a line is written."""
    fact = facts.AttemptFailed(A, 1, 5, FAILED, Disposition.RETRY, 0.1, traceback=True)
    about = A if repeats.count == 1 else None
    assert line_of(Notice(fact, repeats)) == NoticeLine(Level.WARNING, text, about)


@pytest.mark.parametrize(
    "fact",
    [
        facts.AttemptFailed(A, 1, 5, FAILED, Disposition.RETRY, 0.1, traceback=True),
        replace(BLOCKED, traceback=True),
    ],
)
def test_a_traceback_is_logged_where_the_core_asks_for_it(fact: Fact) -> None:
    traceback = f"Traceback (most recent call last):\n{STACK}KeyError: 'id'"
    assert line_of(Notice(fact)).traceback == traceback


def test_a_failure_without_a_place_has_no_traceback() -> None:
    fact = facts.AttemptFailed(A, 1, 5, GIVEN_UP, Disposition.DROP, traceback=True)
    assert line_of(Notice(fact)).traceback == ""


def test_a_halt_says_what_has_happened() -> None:
    stuck = facts.RecordStuck(A, "worker-0", 30.0, goes_on=False, halts=True)
    assert halt_text(stuck) == (
        "orders-0@7 (key b'a') is stuck: it has been running on worker-0 for longer than the ack "
        "timeout of 30 s, and nothing can end it from outside"
    )


def test_the_answer_to_an_order_is_its_line_without_the_order() -> None:
    done = facts.LaneOrderDone(A, "blocked", Disposition.RETRY, 1)
    answer = "orders-0@7 (key b'a'), blocked is unblocked; 1 record behind it"
    assert order_text(done) == answer
    assert line_of(Notice(done)).text == f"by order: {answer}"
