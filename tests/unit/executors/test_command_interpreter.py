"""Every command of the core is acted on, by one interpreter, and mail becomes events in one way."""

from __future__ import annotations

import typing

import pytest

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.facts import WorkerDeparted
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.notice_text import NoticeLine, line_of
from tests.support.core_harness import Harness
from tests.support.records import P0, failure, record

COMMANDS = set(typing.get_args(cmd.Command))


def test_every_command_has_an_action() -> None:
    assert set(Harness().actor._actions) == COMMANDS
    assert len(COMMANDS) > 10


def test_what_is_no_command_is_refused_and_not_dropped() -> None:
    harness = Harness()
    before = cmd.Notice(WorkerDeparted("first"))
    with pytest.raises(InvariantError, match=r"unknown command: LeaseDue\("):
        harness.actor.act([before, ev.LeaseDue()])  # type: ignore[list-item]
    assert harness.notices == [line_of(before)]


def test_what_a_pool_answers_at_once_is_told_behind_the_commands_that_came_with_it() -> None:
    """What follows from it would overtake them: a worker gets its slices as they were leased."""
    harness = Harness()
    notice = cmd.Notice(WorkerDeparted("behind"))
    told: list[tuple[ev.Event, list[NoticeLine]]] = []

    def tell(event: ev.Event) -> list[cmd.Command]:
        told.append((event, list(harness.notices)))
        return []

    harness.tell = tell  # type: ignore[method-assign]
    harness.actor.act([cmd.Recall("default", 0), notice])
    assert told == [(ev.Recalled("default", 0, []), [line_of(notice)])]


def test_reports_that_stand_together_are_one_event_and_answers_keep_their_place() -> None:
    harness = Harness()
    told: list[ev.Event] = []
    harness.tell = lambda event: told.append(event) or []  # type: ignore[func-returns-value, method-assign]
    failed = ev.Failed(7, 0, failure())
    ended = ev.SliceEnded(7, 0.1)
    passed = ev.FencePassed("default", 0, (lane_of(record(0)),))
    commit = cmd.Commit({P0: cmd.CommitEntry(1, "")})
    answered = ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED)
    harness.actor.hear([failed, None, ended, answered, passed])
    assert told == [ev.Reported([failed, ended]), answered, ev.Reported([passed])]


def test_nothing_is_told_of_mail_that_only_wakes() -> None:
    harness = Harness()
    told: list[ev.Event] = []
    harness.tell = lambda event: told.append(event) or []  # type: ignore[func-returns-value, method-assign]
    harness.actor.hear([None, None])
    assert told == []
    harness.actor.hear([ev.SliceEnded(7, 0.0)])
    assert len(told) == 1
