"""A standstill is told from a callback that holds the owner, and named once it is over."""

from __future__ import annotations

import logging

import pytest

from kafka_keyshared.runtime.standstill import HELD, HELD_LIVE, StandstillWatch, Stood, line_of


class Twice:
    """A watch with both of its threads; time and CPU time stand until moved."""

    def __init__(self) -> None:
        self.now = self.cpu = 100.0
        self.watch = StandstillWatch(lambda: self.now, lambda: self.cpu)
        self.both(3)

    def both(self, seconds: int) -> None:
        """Both threads go on."""
        for _ in range(seconds):
            self.now += 1.0
            self.cpu += 0.1
            self.look()
            assert self.turn() is None
            self.watch.sample()

    def look(self) -> None:
        self.watch.look(lambda: "key (app.py:12)")

    def turn(self, *, waited: bool = False) -> Stood | None:
        return self.watch.turn(waited=waited)


@pytest.mark.parametrize("first", ["owner", "caller"])
@pytest.mark.parametrize("waited", [False, True])
def test_where_both_threads_have_a_gap_the_process_stood_still(first: str, waited: bool) -> None:
    twice = Twice()
    twice.now += 21.0
    if first == "caller":
        twice.look()
    stood = twice.turn(waited=waited)
    if first == "owner":
        twice.look()
    assert stood is not None
    assert (stood.process, stood.seconds, stood.where) == (True, 21.0, "")
    twice.both(60)


def test_where_the_caller_went_on_the_owner_alone_was_held_and_it_has_seen_where() -> None:
    twice = Twice()
    for _ in range(8):
        twice.now += 1.0
        twice.look()
    stood = twice.turn()
    assert stood is not None
    assert (stood.process, stood.seconds, stood.where) == (False, 8.0, "key (app.py:12)")
    assert "the owner thread was blocked in key (app.py:12) for 8 s" in line_of(stood, 300.0)
    twice.both(60)


def test_what_still_holds_the_owner_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    twice = Twice()
    with caplog.at_level(logging.WARNING, "kafka_keyshared.loop"):
        for _ in range(60):
            twice.now += 1.0
            twice.look()
    (line,) = caplog.messages
    assert line.startswith(
        f"the owner thread has been blocked in key (app.py:12) for {HELD_LIVE:.0f}"
    )


def test_a_rebalance_is_waited_for_and_a_callback_in_it_is_named() -> None:
    twice = Twice()
    for called in (False, True):
        for _ in range(8):
            twice.now += 1.0
            twice.look()
        if called:
            twice.watch.called("on_assign", 7.5)
        stood = twice.turn(waited=True)
        if called:
            assert stood is not None
            assert (stood.where, stood.seconds) == ("your on_assign callback", 7.5)
        else:
            assert stood is None
        twice.both(3)


def test_a_short_delay_is_no_standstill() -> None:
    twice = Twice()
    for _ in range(20):
        twice.now += HELD - 0.5
        assert twice.turn() is None
        twice.look()


def test_without_a_caller_that_looks_nothing_is_known() -> None:
    watch = StandstillWatch(iter([0.0, 60.0]).__next__, lambda: 0.0)
    assert watch.turn(waited=False) is None
    assert watch.turn(waited=False) is None


def test_the_line_says_how_long_what_ran_and_what_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    twice = Twice()
    twice.now += 21.0
    assert twice.turn() is not None
    with caplog.at_level(logging.WARNING, "kafka_keyshared.loop"):
        twice.watch.tell(["orders-1@17 on worker-0 (app.py:9)"], 6.0)
    (line,) = caplog.messages
    assert line.startswith("the process stood still for 21 s (it used hardly any CPU: it was ")
    assert "records that ran: orders-1@17 on worker-0 (app.py:9)" in line
    assert line.endswith(
        "longer than max.poll.interval.ms (6 s): the group gives the partitions to other members"
    )
    assert twice.watch.last is not None
    assert twice.watch.last.records == ("orders-1@17 on worker-0 (app.py:9)",)


def test_cpu_time_tells_a_call_that_computes_from_a_process_that_was_stopped() -> None:
    twice = Twice()
    twice.now += 21.0
    twice.cpu += 20.0
    stood = twice.turn()
    assert stood is not None
    assert "it used 20.0 s of CPU: a C call kept the interpreter lock" in line_of(stood, 300.0)
    assert "max.poll.interval.ms" not in line_of(stood, 300.0)
