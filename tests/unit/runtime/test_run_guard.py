"""The end of a run in time, and work that is left behind; nothing here knows Kafka."""

from __future__ import annotations

import contextvars
import logging
import re
import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest

from kafka_keyshared import clock as real
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.runtime.run_guard import GRACE, HURRY, LEAVE_LEAST, LEAVE_UNHEARD, Ending
from kafka_keyshared.runtime.shutdown import StopReport

FOR_EVER = float("inf")
ROOM = 30.0


def report(*, accepted: bool = True, heard: bool = True) -> StopReport:
    return StopReport(accepted, 0.5, 7, (), accepted, heard=heard)


class Clock:
    """Time that passes when told, and when somebody waits for an owner that does not come back."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Closed until the end of the test: what hangs waits for it."""
    made = threading.Event()
    yield made
    made.set()


# --- work aside ---


def test_what_runs_aside_returns_or_raises_as_if_it_were_called_here() -> None:
    inside: contextvars.ContextVar[str] = contextvars.ContextVar("inside")
    inside.set("the caller's")
    told = threading.Event()
    returned = Aside(inside.get, name="aside", ended=told.set)
    assert returned.wait(ROOM)
    assert returned.result() == "the caller's"
    assert told.wait(ROOM)

    def fail() -> None:
        raise KeyboardInterrupt

    raised = Aside(fail, name="aside")
    assert raised.wait(ROOM)
    with pytest.raises(KeyboardInterrupt):
        raised.result()


def test_what_hangs_is_named_by_the_place_in_the_users_code(gate: threading.Event) -> None:
    reached = threading.Event()

    def on_revoke() -> None:
        reached.set()
        gate.wait()

    aside = Aside(on_revoke, name="aside")
    assert reached.wait(ROOM)
    assert not aside.wait(0.0)
    assert aside.where().startswith("on_revoke (test_run_guard.py:")


# --- until when ---


def test_without_a_stop_an_owner_is_waited_for_without_end(clock: Clock) -> None:
    ending = Ending(25.0, clock)
    assert ending.give_up_at() == FOR_EVER
    assert not ending.over()


def test_the_stop_timeout_counts_from_the_first_request(clock: Clock) -> None:
    ending = Ending(25.0, clock)
    ending.ask()
    began, clock.now = clock.now, clock.now + 4
    ending.begin()
    assert ending.left() == 21.0
    assert ending.give_up_at() == began + 25.0 + GRACE
    assert not ending.over()
    clock.now = began + 25.0
    assert ending.over()


def test_a_second_request_waits_for_nothing(clock: Clock) -> None:
    ending = Ending(25.0, clock)
    ending.ask()
    clock.now += 10
    ending.ask()
    assert ending.over()
    assert ending.give_up_at() == clock.now + HURRY
    second, clock.now = clock.now, clock.now + 0.5
    ending.ask()
    assert ending.give_up_at() == second + HURRY, "a third one gives no more time"


@pytest.mark.parametrize(
    ("said", "spent", "seconds"),
    [
        (report(), 1.0, 24.0),
        (report(), 25.0, LEAVE_LEAST),
        (report(accepted=False), 1.0, 24.0),
        (report(accepted=False, heard=False), 1.0, LEAVE_UNHEARD),
        (None, 1.0, LEAVE_UNHEARD),
    ],
    ids=["heard", "late", "refused", "unheard", "failed"],
)
def test_leaving_is_waited_for_as_long_as_somebody_may_be_there_to_hear_it(
    clock: Clock, said: StopReport | None, spent: float, seconds: float
) -> None:
    ending = Ending(25.0, clock)
    ending.ask()
    clock.now += spent
    ending.report = said
    ending.leaving()
    assert ending.give_up_at() == pytest.approx(clock.now + seconds)


def test_a_callback_of_the_users_has_all_of_the_stop_timeout_also_while_leaving(
    clock: Clock,
) -> None:
    ending = Ending(25.0, clock)
    seen: list[float] = []

    def on_revoke(partitions: list[int]) -> None:
        clock.now += 10
        seen.append(ending.give_up_at())
        assert partitions == [1]

    callbacks = ending.among({"on_revoke": on_revoke})
    ending.ask()
    began = clock.now
    ending.leaving()
    callbacks["on_revoke"]([1])
    assert seen == [began + 25.0 + GRACE]
    assert ending.give_up_at() == clock.now + LEAVE_LEAST


# --- a run ---


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged from here; an instance of another test may still run, and log too."""
    here = threading.get_ident()
    return [each.getMessage() for each in caplog.records if each.thread == here]


def test_a_run_that_ends_by_itself_returns_and_raises_what_its_owner_did() -> None:
    ending = Ending(25.0, real.Clock())

    def owner() -> int:
        ending.ask()
        ending.report = report()
        return 3

    assert ending.run(owner) == 3
    assert not ending.given_up
    assert ending.report is not None
    assert not ending.report.stuck

    def fails() -> int:
        raise SystemExit(4)

    with pytest.raises(SystemExit):
        ending.next().run(fails)


def hanging(
    ending: Ending,
    clock: Clock,
    gate: threading.Event,
    then: Callable[[], object],
    threads: list[threading.Thread] | None = None,
) -> Callable[[], int]:
    """Return an owner that does something, lets time pass, and does not come back.

    ``threads`` gets its thread.
    """

    def owner() -> int:
        if threads is not None:
            threads.append(threading.current_thread())
        then()
        ending.ask()
        clock.step = 5.0
        gate.wait()
        return 0

    return owner


def test_what_does_not_come_back_is_left_behind_named_and_nothing_runs_beside_it(
    clock: Clock, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    ending = Ending(25.0, clock)

    def done() -> None:
        ending.report = report()

    threads: list[threading.Thread] = []
    assert ending.run(hanging(ending, clock, gate, done, threads)) == 1
    (line,) = lines(caplog)
    assert "drained; committed; the group was NOT left: no end of owner (test_run_guard.py:" in line
    assert "7 records received and left undone" in line
    after = ending.next()
    with pytest.raises(KeySharedError, match=r"given up on and is still in owner \("):
        after.run(lambda: 0)
    with pytest.raises(KeySharedError, match="given up on"):
        after.next().run(lambda: 0)
    gate.set()
    (owner,) = threads
    owner.join(ROOM)
    assert not owner.is_alive()
    assert after.next().run(lambda: 0) == 0


def test_a_start_that_does_not_come_back_is_left_behind_too(
    clock: Clock, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    ending = Ending(25.0, clock)
    assert ending.run(hanging(ending, clock, gate, lambda: None)) == 1
    assert ending.report is not None
    assert not ending.report.clean
    assert "last commit NOT acknowledged; the group was NOT left" in "".join(lines(caplog))


def test_what_a_run_failed_with_is_raised_also_when_it_hangs_afterwards(
    clock: Clock, gate: threading.Event
) -> None:
    ending = Ending(25.0, clock)
    owner = hanging(ending, clock, gate, lambda: ending.leaving(ValueError("the reason")))
    with pytest.raises(ValueError, match="the reason"):
        ending.run(owner)


@pytest.mark.parametrize(("left", "status"), [(True, 0), (False, 1)])
def test_a_run_that_did_not_leave_its_group_says_so_in_its_last_line_and_status(
    clock: Clock, caplog: pytest.LogCaptureFixture, left: bool, status: int
) -> None:
    caplog.set_level(logging.INFO)
    ending = Ending(25.0, clock)

    def owner() -> int:
        ending.ask()
        ending.report = report()
        assert ending.leaving() == pytest.approx(25.0 - LEAVE_LEAST)
        ending.left_group(left=left)
        return 0

    assert ending.run(owner) == status
    (line,) = [each for each in caplog.records if "stopped in" in each.getMessage()]
    assert ("the group was NOT left: its coordinator did not answer" in line.getMessage()) is (
        not left
    )
    assert line.levelname == ("INFO" if left else "WARNING")


def test_the_answer_to_a_join_is_waited_for_only_where_the_end_has_time_for_it(
    clock: Clock,
) -> None:
    hurried = Ending(25.0, clock)
    hurried.ask()
    hurried.ask()
    assert hurried.leaving() == 0.0
    late = Ending(25.0, clock)
    late.ask()
    late.report = report()
    clock.now += 24.9
    assert late.leaving() == 0.0


# --- what the owner does not come back from ---


class Lines(logging.Handler):
    """What the end of a run says, line by line, as it says it."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: Queue[str] = Queue()

    def emit(self, entry: logging.LogRecord) -> None:
        text = entry.getMessage()
        if "waiting" in text:  # an instance of another test may still run, and log too
            self.queue.put(f"{entry.levelname}: {text}")

    def next(self) -> str:
        return self.queue.get(timeout=ROOM)


@pytest.fixture
def waiting() -> Iterator[Lines]:
    said = Lines()
    logger = logging.getLogger("kafka_keyshared.stop")
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(said)
    yield said
    logger.removeHandler(said)
    logger.setLevel(before)


def in_callback(ending: Ending, gate: threading.Event) -> Callable[[], int]:
    def on_revoke() -> None:
        assert gate.wait(ROOM)

    watched = ending.among({"on_revoke": on_revoke})["on_revoke"]

    def work() -> int:
        watched()
        return 0

    return work


def test_a_callback_that_hangs_is_named_while_it_hangs(
    clock: Clock, gate: threading.Event, waiting: Lines
) -> None:
    """While nobody asks for a stop as well: nothing else says why everything stands still."""
    ending = Ending(FOR_EVER, clock)
    clock.step = 10.0
    run = Aside(lambda: ending.run(in_callback(ending, gate)), name="run")
    running = waiting.next()
    ending.ask()
    stopping = waiting.next()
    gate.set()
    assert run.wait(ROOM)
    assert run.result() == 0
    where = r"your on_revoke callback \(\d+ s so far, in on_revoke \(test_run_guard.py:\d+\)\)"
    assert re.fullmatch(f"WARNING: waiting for {where}: nothing is polled or committed", running)
    assert re.fullmatch(
        f"INFO: stopping: waiting up to inf s for {where}; Ctrl-C again to hurry", stopping
    )


def test_a_group_that_is_not_left_is_said_too(
    clock: Clock, gate: threading.Event, waiting: Lines
) -> None:
    ending = Ending(FOR_EVER, clock)
    clock.step = 10.0

    def work() -> int:
        ending.report = report()
        ending.leaving()
        assert gate.wait(ROOM)
        return 0

    run = Aside(lambda: ending.run(work), name="run")
    assert waiting.next() == (
        "INFO: stopping: waiting up to inf s for the client to leave the group; Ctrl-C again "
        "to hurry"
    )
    gate.set()
    assert run.wait(ROOM)
    assert run.result() == 0
