"""Causes on a running instance: since when its statuses have one, and whether it is named in time.

Time is that of the instance: a status has the fact that makes a cause, as a number or a record that
anybody can read there. Once it has had that for as long as the cause's rule says, each status that
is made later than 2 s after has to name it, and there is one within as many heartbeats. So a
machine on which everything takes longer, the instance's own turns too, changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.observability.diagnosis import judge
from kafka_keyshared.observability.diagnosis.findings import Finding
from kafka_keyshared.runtime import status_board, trend
from kafka_keyshared.runtime.status_board import Observer, StatusBoard
from kafka_keyshared.status import Status, SubscriptionStatus, WorkerStatus
from tests.conftest import Eventually

WAIT = 60.0

IN_TIME = 2.0
"""Seconds within which a cause is named, once it has been one for as long as its rule says."""

SOON = 0.5
"""The time of a rule in these tests, in seconds, where it is longer otherwise."""


class Fact(NamedTuple):
    """What makes a cause: ``of`` says whether a status has it of the record that a finding names.

    It has to have been so for ``after`` seconds: by the name of the rule's time, or none.
    """

    of: Callable[[Status, Finding], bool]
    after: str = ""


def _subs(found: Callable[[SubscriptionStatus, Finding], bool]) -> Callable[..., bool]:
    return lambda status, finding: any(found(sub, finding) for sub in status.subscriptions)


def _workers(found: Callable[[WorkerStatus, Finding], bool]) -> Callable[..., bool]:
    return _subs(lambda sub, finding: any(found(each, finding) for each in sub.workers))


def _lanes(state: str) -> Callable[..., bool]:
    return _subs(
        lambda sub, finding: any(
            each.state == state and _there(each, finding) for each in sub.closed
        )
    )


def _rates(what: str) -> Callable[..., bool]:
    return _subs(lambda sub, _: any(each.what == what for each in sub.failure_rates))


def _held(reason: Reason) -> Callable[[Status, Finding], bool]:
    return lambda status, _: any(reason in each.held_back for each in status.partitions)


def _there(at: Any, finding: Finding) -> bool:
    """Say whether something stands where the finding does."""
    return at is not None and (at.topic, at.partition, at.offset) == (
        finding.topic,
        finding.partition,
        finding.offset,
    )


def _minute(status: Status, _: Finding) -> bool:
    """There was a whole minute, and the backlog has not become smaller in it."""
    backlog = sum(each.backlog or 0 for each in status.partitions)
    return status.lately is not None and backlog >= status.lately.backlog > 0


def _coordinator(status: Status) -> bool:
    return "COORD" in status.commit_error.upper()


FACTS = {
    "loop-silent": Fact(lambda status, _: status.silent_seconds > 0, "SILENT"),
    "brokers-away": Fact(lambda status, _: status.brokers_away_seconds is not None, "AWAY"),
    "coordinator-lost": Fact(lambda status, _: status.commit_failures > 1 and _coordinator(status)),
    "right-refused": Fact(
        lambda status, finding: any(each.topic == finding.topic for each in status.refused),
        "REFUSED",
    ),
    "commit-failing": Fact(
        lambda status, _: status.commit_failures > 1 and not _coordinator(status)
    ),
    "commit-unanswered": Fact(
        lambda status, _: status.commit_waiting_seconds is not None, "UNANSWERED"
    ),
    "rebalance-in-progress": Fact(
        lambda status, _: status.rebalance_seconds is not None, "REBALANCING"
    ),
    "no-partitions": Fact(lambda status, _: status.joined and not status.partitions, "RESERVE"),
    "dependency-waiting": Fact(_held(Reason.DEPENDENCY)),
    "most-attempts-fail": Fact(_rates("attempts")),
    "dead-lettering-much": Fact(_rates("given_up")),
    "loop-held": Fact(lambda status, _: status.standstill is not None),
    "dlq-refusing": Fact(
        _subs(
            lambda sub, finding: any(
                (each.refused >= judge.LETTERS or each.refused_for_good) and _there(each, finding)
                for each in sub.closed
            )
        )
    ),
    "dlq-limit": Fact(_held(Reason.DLQ_LIMIT)),
    "key-unreadable": Fact(
        _subs(lambda sub, finding: any(_there(each, finding) for each in sub.unreadable_keys)),
        "UNREAD",
    ),
    "handler-stuck": Fact(_workers(lambda worker, _: worker.stuck > 0)),
    "key-blocked": Fact(_subs(lambda sub, _: bool(sub.blocked))),
    "worker-absent": Fact(_subs(lambda sub, _: sub.away > 0), "ABSENT"),
    "handler-slow": Fact(_workers(lambda worker, finding: _there(worker.running, finding)), "SLOW"),
    "key-diverted": Fact(_lanes("diverted")),
    "metadata-full": Fact(_held(Reason.SET_FULL), "FULL"),
    "slot-draining": Fact(
        _workers(
            lambda worker, finding: any(
                each.slot == finding.slot and each.blocked for each in worker.draining
            )
        ),
        "DRAINING",
    ),
    "retry-waiting": Fact(_lanes("waiting"), "RETRYING"),
    "paused-by-hand": Fact(_held(Reason.BY_HAND)),
    "report-failing": Fact(lambda status, _: status.report_failing_seconds is not None, "REPORTS"),
    # What was busy and what was full is a mean, which another minute may have to bring home.
    "hot-key": Fact(_minute, "MINUTE"),
    "window-full": Fact(_minute, "MINUTE"),
    "workers-limit": Fact(_minute, "MINUTE"),
    "broker-limit": Fact(_minute, "MINUTE"),
}


def after(code: str) -> float:
    """Return the time of a cause's rule as it is just now, in seconds."""
    name = FACTS[code].after
    seconds: float = getattr(trend if name == "MINUTE" else judge, name) if name else 0.0
    return seconds


@dataclass(frozen=True)
class Look:
    """A status with what it was diagnosed with; ``beats`` is how often the loop had beaten."""

    at: float
    beats: int
    status: Status
    findings: tuple[Finding, ...]


class Looks:
    """All statuses that instances have made while somebody looks, and those that were read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._of: dict[Hashable, list[Look]] = {}
        show = Observer.show

        def noted(observer: Observer) -> None:
            show(observer)
            board = observer._board
            assert board._status is not None
            self._note(board, time.monotonic(), observer._beats, board._status)

        patch.setattr(Observer, "show", noted)
        patch.setattr(StatusBoard, "wanted", lambda board: True)

    def _note(self, board: StatusBoard, at: float, beats: int, status: Status) -> None:
        findings = judge.diagnose(status, keys=board.keys).findings
        self._of.setdefault(id(board), []).append(Look(at, beats, status, findings))

    def read(self, app: KeyShared) -> None:
        """Read a status: where the owner makes none, it is the one from before as of now."""
        at, status, made = time.monotonic(), app.status(), self.of(app)
        if status is not None and made and not any(each.status is status for each in made):
            self._note(app._board, at, made[-1].beats, status)

    def of(self, app: KeyShared) -> list[Look]:
        """Return an instance's, in the order in which they were made."""
        return self._of.get(id(app._board), [])[:]


def naming(looks: list[Look], code: str) -> Iterator[tuple[int, Finding]]:
    """Yield where a cause is named, and as what."""
    for at, look in enumerate(looks):
        yield from ((at, each) for each in look.findings if each.code == code)


def assert_in_time(looks: list[Look], code: str) -> Finding:
    """Return the first finding; fail unless it came when it had to, neither before nor after."""
    first, finding = next(naming(looks, code))
    fact, seconds = FACTS[code].of, after(code)
    assert fact(looks[first].status, finding), f"{code} is named, and is not so: {finding}"
    since = first
    while since and fact(looks[since - 1].status, finding):
        since -= 1
    due = looks[since].at + seconds
    late = [look.at - due for look in looks[since:first] if look.at > due + IN_TIME]
    assert not late, f"{code} is not named in statuses made so many seconds after: {late}"
    beats = looks[first].beats - looks[max(0, first - 1)].beats
    assert beats <= IN_TIME / BEAT_SECONDS, f"nobody could see it for {beats} heartbeats"
    assert finding.seconds is None or finding.seconds >= seconds, f"too early: {finding}"
    return finding


class Named:
    """``named(app, code)`` waits until an instance names a cause, in time, and returns it."""

    def __init__(self, looks: Looks, patch: pytest.MonkeyPatch, eventually: Eventually) -> None:
        self._looks = looks
        self._patch = patch
        self._eventually = eventually

    def __call__(self, app: KeyShared, code: str) -> Finding:
        def look() -> bool:
            self._looks.read(app)
            return any(naming(self._looks.of(app), code))

        self._eventually(look, WAIT)
        return assert_in_time(self._looks.of(app), code)

    def after_soon(self, name: str) -> None:
        """Give a rule a time that a test can wait for."""
        self._patch.setattr(judge, name, SOON)
        if name == "SILENT":
            self._patch.setattr(status_board, "SILENT_AFTER", SOON)

    def cleared(self, app: KeyShared, code: str) -> None:
        """Wait until it is not named any more."""
        self._eventually(lambda: found(app, code) is None, WAIT)


def found(app: KeyShared, code: str) -> Finding | None:
    """Return what an instance says of a cause just now."""
    diagnosis = app.diagnosis()
    every = () if diagnosis is None else diagnosis.findings
    return next((each for each in every if each.code == code), None)
