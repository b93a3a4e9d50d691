"""What is remembered of a failed attempt, and where in the user's program it came from."""

from __future__ import annotations

import json
import linecache
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import CodeType
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.events import Failed, Report
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.executors.handling import failure as failures
from kafka_keyshared.executors.handling.failure import describe
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.model import DeadLetter, Retry
from kafka_keyshared.platform.stack_frames import shown
from tests.support.records import record
from tests.support.slices import slice_of

PROGRAM = """\
import json

def handle(record):
    return lookup({}, "customer_id")

def lookup(order, name):
    return order[name]

def parse(record):
    json.loads("no json")

def wrapped(record):
    try:
        handle(record)
    except KeyError as error:
        raise RuntimeError("order 17 has no owner") from error

def generator(record):
    yield 1
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A user's program in the folder that it is started in."""
    monkeypatch.chdir(tmp_path)
    shown.cache_clear()
    path = tmp_path / "app.py"
    path.write_text(PROGRAM)
    names: dict[str, Any] = {"__name__": "app"}
    code: CodeType = compile(PROGRAM, str(path), "exec")
    exec(code, names)
    return names


def failure_of(handle: Callable[[Any], Any]) -> Failure:
    """Let a real worker run the handler; return what it reports."""
    mailbox: SimpleQueue[Report] = SimpleQueue()
    pool = ThreadPool([WorkerSpec("default", 0, "worker-0", maker(handle))], mailbox, Clock())
    pool.start()
    pool.submit(slice_of(record(1)))
    report = mailbox.get(timeout=30)
    assert pool.stop(30.0) == []
    assert isinstance(report, Failed)
    return report.failure


def test_a_failure_knows_its_line_and_its_stack_begins_with_the_handler(
    program: dict[str, Any],
) -> None:
    failure = failure_of(program["handle"])
    assert failure.where == "app.py:7"
    assert failure.stack.split("\n") == [
        f'  File "{Path.cwd()}/app.py", line 4, in handle',
        '    return lookup({}, "customer_id")',
        f'  File "{Path.cwd()}/app.py", line 7, in lookup',
        "    return order[name]",
        "",
    ]


def test_what_fails_in_a_library_comes_from_the_line_that_called_it(
    program: dict[str, Any],
) -> None:
    failure = failure_of(program["parse"])
    assert failure.where == "app.py:10"
    assert Path(json.decoder.__file__).name in failure.stack


def test_a_library_that_is_the_handler_is_its_own_place() -> None:
    where = failure_of(json.loads).where
    assert where.startswith(str(Path(json.__file__).parent))


def test_what_only_this_package_raises_has_no_place(program: dict[str, Any]) -> None:
    failure = failure_of(lambda item: iter(program["generator"](item)))
    assert "the handler returned a generator" in failure.message
    assert failure.where == ""


def test_what_an_error_was_raised_from_is_told_with_its_line(program: dict[str, Any]) -> None:
    failure = failure_of(program["wrapped"])
    assert failure.where == "app.py:16"
    assert failure.stack.endswith("  because of KeyError: 'customer_id', at app.py:7\n")


def test_causes_are_bounded_and_a_hidden_one_stays_hidden() -> None:
    error: BaseException = ValueError(0)
    for number in range(1, 10):
        error, error.__cause__ = ValueError(number), error
    assert describe(error, Clock()).stack.count("because of") == failures.CAUSES_MAX
    error = ValueError("alone")
    error.__context__, error.__suppress_context__ = KeyError(), True
    assert "because of" not in describe(error, Clock()).stack


def test_a_text_that_fails_leaves_the_stack(program: dict[str, Any]) -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    def handle(_record: Any) -> None:
        try:
            program["handle"](None)
        except KeyError as error:
            raise SilentError from error

    failure = failure_of(handle)
    assert failure.message == "(no text: KeyError)"
    assert "in handle" in failure.stack
    assert "because of KeyError" in failure.stack


def test_a_source_that_cannot_be_read_does_not_matter(
    program: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_args: Any) -> str:
        raise RuntimeError("the loader of the user's is broken")

    monkeypatch.setattr(linecache, "getline", broken)
    failure = failure_of(program["handle"])
    assert failure.message == "'customer_id'"
    assert "no source: RuntimeError" in failure.stack


def test_a_folder_that_is_gone_does_not_matter(
    program: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert failure_of(program["handle"]).where == f"{tmp_path}/app.py:7"


def test_a_huge_message_and_a_deep_stack_are_bounded() -> None:
    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("x" * (100 << 20))

    try:
        deep(300)
    except ValueError as error:
        failure = describe(error, Clock())
    assert len(failure.message) == failures.MESSAGE_CHARS_MAX
    assert 0 < len(failure.stack) <= failures.STACK_CHARS_MAX
    assert failure.stack.count("in deep") == failures.STACK_FRAMES_MAX


def test_a_system_error_is_not_provoked_again() -> None:
    assert describe(SystemError("bad argument"), Clock()).disposition is Disposition.DEAD_LETTER


def test_named_exceptions_skip_the_attempts() -> None:
    rules = failures.ErrorRules((LookupError,))
    assert describe(KeyError("k"), Clock(), rules).disposition is Disposition.DEAD_LETTER
    assert describe(ValueError("k"), Clock(), rules).disposition is Disposition.ERROR
    assert -1 <= describe(ValueError(), Clock()).jitter <= 1


ONCE, OFTEN = RetryPolicy(attempts=1), RetryPolicy(attempts=99)


class RefusedError(ConnectionError, KeyError):
    """Has two classes above it that may have a policy."""


@pytest.mark.parametrize(
    ("error", "classes", "policy"),
    [
        (ValueError("k"), {}, None),
        (ValueError("k"), {KeyError: ONCE}, None),
        (KeyError("k"), {KeyError: ONCE}, ONCE),
        (KeyError("k"), {LookupError: ONCE}, ONCE),
        (KeyError("k"), {Exception: OFTEN, LookupError: ONCE}, ONCE),
        (KeyError("k"), {LookupError: ONCE, Exception: OFTEN}, ONCE),
        (RefusedError(), {KeyError: OFTEN, ConnectionError: ONCE}, ONCE),
        (RefusedError(), {KeyError: OFTEN, OSError: ONCE}, ONCE),
        (SystemExit(), {Exception: ONCE}, None),
    ],
)
def test_the_nearest_class_of_an_error_decides_how_it_is_retried(
    error: BaseException, classes: Any, policy: RetryPolicy | None
) -> None:
    assert describe(error, Clock(), failures.ErrorRules((), classes)).retry == policy


def test_an_error_raised_from_another_follows_that_one_if_its_own_class_has_no_policy() -> None:
    wrapped = RuntimeError("no answer of the database")
    wrapped.__cause__ = TypeError("wrapped again")
    wrapped.__cause__.__cause__ = ConnectionRefusedError()
    rules = failures.ErrorRules((), {ConnectionError: OFTEN})
    assert describe(wrapped, Clock(), rules).retry is OFTEN
    assert describe(wrapped, Clock(), failures.ErrorRules((), {RuntimeError: ONCE})).retry is ONCE
    handled = RuntimeError()
    handled.__context__ = ConnectionRefusedError()  # met on the way, and not named as the cause
    assert describe(handled, Clock(), rules).retry is None


def test_an_error_shows_an_outage_by_its_class_or_by_that_of_its_cause() -> None:
    rules = failures.ErrorRules(wait_on=(ConnectionError, TimeoutError))
    wrapped = RuntimeError("no answer of the database")
    wrapped.__cause__ = ConnectionRefusedError()
    handled = RuntimeError()
    handled.__context__ = ConnectionRefusedError()
    found = {
        type(each): describe(each, Clock(), rules).waits
        for each in (ConnectionResetError(), TimeoutError(), wrapped, ValueError())
    }
    waits = dict.fromkeys((ConnectionResetError, TimeoutError, RuntimeError), True)
    assert found == {**waits, ValueError: False}
    assert not describe(handled, Clock(), rules).waits
    assert not describe(Retry(after=1), Clock(), rules).waits
    assert not describe(TimeoutError(), Clock()).waits


def test_a_verdict_has_no_policy_of_a_class() -> None:
    rules = failures.ErrorRules((KeyError,), {Exception: ONCE})
    for verdict in (Retry(after=1), DeadLetter("no"), KeyError("k")):
        assert describe(verdict, Clock(), rules).retry is None


def test_when_it_failed_and_what_was_drawn_come_from_the_clock_that_is_given() -> None:
    clock = Clock(wall=lambda: 12.5, chance=lambda: 0.75)
    failure = describe(ValueError(), clock)
    assert (failure.at_ms, failure.jitter) == (12_500, 0.5)
