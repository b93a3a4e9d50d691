"""The pool of coroutines on a loop of its own: contexts, cancelling, what handlers do to a loop."""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import functools
import importlib.util
import inspect
import logging
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from kafka_keyshared import lease_of
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Adopt, Recall, Release, StartWorker, TimeOut
from kafka_keyshared.core.contract.events import (
    Failed,
    Recalled,
    Released,
    SetAside,
    SliceEnded,
    SomeEnded,
)
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.coroutines import event_loop
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool
from kafka_keyshared.executors.coroutines.asyncio_record_worker import TaskWorker
from kafka_keyshared.executors.coroutines.daemon_threads import MOST, DaemonThreads
from kafka_keyshared.executors.coroutines.event_loop import CallersLoop, OwnLoop
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Ack, DeadLetter, Drop, Retry
from tests.conformance.pool_sides import SteppedLoop
from tests.support.records import FakeRecord, record
from tests.support.slices import slice_of

WAIT = 30.0
WORKER = ("default", 0)


class Bench:
    """A pool of one worker, and its mailbox."""

    def __init__(self, handler: Any, limit: int = 10, clock: Clock = Clock()) -> None:  # noqa: B008
        self.mailbox: SimpleQueue[Any] = SimpleQueue()
        spec = WorkerSpec(*WORKER, "worker-0", maker(handler, "asyncio"))
        self.pool = TaskPool([spec], self.mailbox, clock, limit=limit)

    def submit(self, *records: FakeRecord) -> None:
        for each in records:
            self.pool.submit(slice_of(each))

    def until(self, wanted: type[Any], count: int = 1) -> list[Any]:
        """Return what is said up to so many of a kind."""
        found: list[Any] = []
        while sum(isinstance(each, wanted) for each in found) < count:
            found.append(self.mailbox.get(timeout=WAIT))
        return found

    def run(self, *records: FakeRecord) -> list[Any]:
        self.submit(*records)
        return self.until(SliceEnded, len(records))


def choose_loop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a pool's own loop be Python's, also where uvloop is installed, or uvloop's."""
    if name == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    elif importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed: python -m pip install uvloop")


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both event loops that there may be."""
    choose_loop(request.param, monkeypatch)


@pytest.fixture
def bench(loops: None) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*given: Any, **options: Any) -> Bench:
        made.append(Bench(*given, **options))
        made[-1].pool.start()
        return made[-1]

    yield make
    for each in made:
        assert each.pool.stop(WAIT) == []


def test_as_many_run_at_once_as_the_limit_says_and_each_key_in_order(
    bench: Callable[..., Bench],
) -> None:
    together = threading.Semaphore(0)
    go = threading.Event()
    order: list[tuple[bytes, int]] = []

    async def handle(item: Any) -> None:
        together.release()
        while not go.is_set():
            await asyncio.sleep(0)
        order.append((item.key(), item.offset()))

    pool = bench(handle, limit=3)
    pool.submit(*(record(offset, "abcd"[offset % 4]) for offset in range(12)))
    for _ in range(3):
        assert together.acquire(timeout=WAIT)
    running = [each.running() for each in pool.pool.progress().values()]
    assert sum(map(len, running)) == 3
    go.set()
    pool.until(SliceEnded, 12)
    for key in (b"a", b"b", b"c", b"d"):
        mine = [offset for each, offset in order if each == key]
        assert mine == sorted(mine) and len(mine) == 3


def test_the_limit_may_be_raised_and_lowered_while_records_run(bench: Callable[..., Bench]) -> None:
    running: set[int] = set()
    most = [0]
    started, go = threading.Semaphore(0), threading.Event()

    async def handle(item: Any) -> None:
        running.add(item.offset())
        most[0] = max(most[0], len(running))
        started.release()
        while not go.is_set():
            await asyncio.sleep(0)
        running.discard(item.offset())

    pool = bench(handle, limit=1)
    pool.submit(*(record(offset, f"key-{offset}") for offset in range(20)))
    assert started.acquire(timeout=WAIT)
    pool.pool.resize(5)
    for _ in range(4):
        assert started.acquire(timeout=WAIT)
    pool.pool.resize(2)
    most[0] = 0
    go.set()
    pool.until(SliceEnded, 20)
    assert most[0] <= 2


ANSWERS = {
    "nothing": (None, None),
    "Ack": (Ack(), None),
    "Drop": (Drop(), "dropped"),
    "Retry": (Retry(), Disposition.RETRY),
    "DeadLetter": (DeadLetter("no"), Disposition.DEAD_LETTER),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_a_verdict_means_what_it_means_on_threads(
    bench: Callable[..., Bench], name: str, how: str
) -> None:
    verdict, meaning = ANSWERS[name]

    async def handle(_record: Any) -> Any:
        await asyncio.sleep(0)
        if how == "raised" and verdict is not None:
            raise verdict
        return verdict

    said = bench(handle).run(record(1, "a"))
    failed = [each.failure.disposition for each in said if isinstance(each, Failed)]
    assert failed == ([meaning] if isinstance(meaning, Disposition) else [])
    assert list(said[-1].dropped) == ([0] if meaning == "dropped" else [])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_a_handler_raises_is_a_failed_attempt_and_the_loop_goes_on(
    bench: Callable[..., Bench], error: BaseException
) -> None:
    async def handle(item: Any) -> None:
        if item.offset() == 1:
            raise error

    pool = bench(handle)
    said = pool.run(record(1, "a"))
    failed = [each.failure.error_type for each in said if isinstance(each, Failed)]
    assert failed == [type(error).__name__]
    assert [type(each) for each in pool.run(record(2, "b"))] == [SliceEnded]


NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")
PLACED: contextvars.ContextVar[str] = contextvars.ContextVar("placed", default="nowhere")


def test_what_a_handler_sets_in_its_context_no_other_record_sees(
    bench: Callable[..., Bench],
) -> None:
    seen: list[tuple[str, str, str]] = []

    async def deeper() -> str:
        await asyncio.sleep(0)
        return NAME.get()

    there = threading.Event()

    async def handle(item: Any) -> None:
        while not there.is_set():
            await asyncio.sleep(0)
        before = NAME.get()
        NAME.set(f"record {item.offset()}")
        decimal.getcontext().prec = 5 + item.offset()
        seen.append((before, await deeper(), await asyncio.create_task(deeper())))

    pool = bench(handle, limit=1)
    pool.submit(*(record(offset, "a") for offset in range(4)))
    there.set()
    pool.until(SliceEnded, 4)
    assert seen == [("nobody", f"record {n}", f"record {n}") for n in range(4)]


def test_a_handler_that_leaves_its_task_alone_needs_no_other_one(
    bench: Callable[..., Bench],
) -> None:
    tasks: set[str] = set()

    async def handle(item: Any) -> None:
        tasks.add(task().get_name())
        token = NAME.set("me")
        await asyncio.sleep(0.001 if item.offset() % 2 else 0)
        async with asyncio.timeout(WAIT):
            await asyncio.gather(asyncio.sleep(0), asyncio.create_task(asyncio.sleep(0)))
        NAME.reset(token)

    in_bare_context(lambda: bench(handle, limit=1)).run(
        *(record(offset, "a") for offset in range(50))
    )
    assert len(tasks) == 1


def in_bare_context(make: Callable[[], Bench]) -> Bench:
    """Make a pool without the context of decimal, which pytest has set.

    What it is now cannot be compared with what it was, so a task runs one record alone there.
    """
    return contextvars.Context().run(make)


def task() -> asyncio.Task[Any]:
    found = asyncio.current_task()
    assert found is not None
    return found


class Kept:
    """What handlers keep by their tasks."""

    def __init__(self) -> None:
        self.strong: dict[Any, int] = {}
        self.weak: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


async def open_timeout(_kept: Kept) -> None:
    await asyncio.timeout(0.001).__aenter__()


LEFT_ON_A_TASK: dict[str, Callable[[Kept], Any]] = {
    "a cancel": lambda _: task().cancel(),
    "three cancels": lambda _: [task().cancel() for _ in range(3)],
    "a cancel that was taken back": lambda _: (task().cancel(), task().uncancel()),
    "a cancel that comes later": lambda _: asyncio.get_running_loop().call_soon(task().cancel),
    "a time-out that stays open": open_timeout,
    "a name": lambda _: task().set_name("customer-7"),
    "a variable": lambda _: NAME.set("customer-7"),
    "state by its task": lambda kept: kept.strong.update({task(): 7}),
    "state by its task, weakly": lambda kept: kept.weak.update({task(): 7}),
}


@pytest.mark.parametrize("what", LEFT_ON_A_TASK)
def test_what_a_handler_leaves_on_its_task_reaches_no_other_record(
    bench: Callable[..., Bench], what: str
) -> None:
    kept, seen = Kept(), []
    there = threading.Event()

    async def handle(item: Any) -> None:
        while not there.is_set():
            await asyncio.sleep(0)
        me = task()
        seen.append((kept.strong.get(me), kept.weak.get(me), NAME.get(), me.cancelling()))
        named = me.get_name()
        del me
        await asyncio.sleep(0.005)  # what comes later comes now
        if item.offset() % 2 == 0 and inspect.isawaitable(left := LEFT_ON_A_TASK[what](kept)):
            await left
        assert named != "customer-7"

    pool = in_bare_context(lambda: bench(handle, limit=1))
    pool.submit(*(record(offset, "a") for offset in range(6)))
    there.set()
    said = pool.until(SliceEnded, 6)
    assert [each.failure for each in said if isinstance(each, Failed)] == []
    assert seen == [(None, None, "nobody", 0)] * 6


def test_what_the_program_and_the_constructor_set_every_record_sees(
    bench: Callable[..., Bench],
) -> None:
    PLACED.set("program")
    seen: list[tuple[str, str, int]] = []

    class Handler:
        def __init__(self) -> None:
            NAME.set(PLACED.get() + " and constructor")
            decimal.getcontext().prec = 9

        async def handle(self, item: Any) -> None:
            seen.append((PLACED.get(), NAME.get(), decimal.getcontext().prec))
            decimal.getcontext().prec = 5 + item.offset()

    bench(Handler, limit=1).run(*(record(offset, "a") for offset in range(4)))
    assert seen == [("program", "program and constructor", 9)] * 4
    assert NAME.get() == "nobody"


def test_a_handler_may_ask_for_its_lease(bench: Callable[..., Bench]) -> None:
    leases: list[Any] = []

    async def handle(item: Any) -> None:
        await asyncio.sleep(0)
        leases.append((item.offset(), lease_of(item), await asyncio.to_thread(lease_of, item)))

    bench(handle).run(record(1, "a"), record(2, "b"))
    assert [each for each, *_ in leases] == [1, 2]
    for _, mine, there in leases:
        assert mine == there
        assert mine.worker == "worker-0"


def test_a_cancelled_handler_cleans_up_and_its_attempt_has_failed_by_time(
    bench: Callable[..., Bench],
) -> None:
    started, cleaned = threading.Event(), threading.Event()

    async def handle(item: Any) -> None:
        if item.offset() == 2:
            return
        try:
            started.set()
            await asyncio.sleep(WAIT)
        finally:
            cleaned.set()

    pool = bench(handle, limit=1)
    slow = slice_of(record(1, "a"))
    pool.pool.submit(slow)
    assert started.wait(WAIT)
    pool.pool.time_out(TimeOut(*WORKER, ((slow.id, 0),)))
    said = pool.until(Recalled)
    assert cleaned.is_set()
    (failed,) = [each for each in said if isinstance(each, Failed)]
    assert failed.failure.timed_out
    assert "ack timeout" in failed.failure.message
    assert not said[-1].stuck
    assert [type(each) for each in pool.run(record(2, "b"))] == [SliceEnded], (
        "and the task is no more"
    )


def test_time_outs_inside_a_handler_are_its_own(bench: Callable[..., Bench]) -> None:
    async def handle(item: Any) -> None:
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(WAIT)
        with pytest.raises(asyncio.CancelledError):
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(0)
        assert item.offset() in (1, 2)

    said = bench(handle, limit=1).run(record(1, "a"), record(2, "a"))
    assert [type(each) for each in said] == [SliceEnded, SliceEnded]


def test_a_group_of_tasks_ends_with_the_attempt_that_it_is_part_of(
    bench: Callable[..., Bench],
) -> None:
    """Cancelled by the ack timeout, and by one of its own that fails."""
    inside = threading.Event()
    ended: list[str] = []

    async def child(name: str) -> None:
        try:
            inside.set()
            await asyncio.sleep(WAIT)
        finally:
            ended.append(name)

    async def handle(item: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(child(f"child of {item.offset()}"))
            if item.offset() == 2:
                await asyncio.sleep(0)
                raise ValueError("no")

    pool = bench(handle)
    slice_ = slice_of(record(1, "a"))
    pool.pool.submit(slice_)
    assert inside.wait(WAIT)
    pool.pool.time_out(TimeOut(*WORKER, ((slice_.id, 0),)))
    (failed,) = [each for each in pool.until(SliceEnded) if isinstance(each, Failed)]
    assert failed.failure.timed_out
    assert ended == ["child of 1"], "before the attempt was told"
    (failed,) = [each for each in pool.run(record(2, "b")) if isinstance(each, Failed)]
    assert failed.failure.error_type == "ExceptionGroup"
    assert ended == ["child of 1", "child of 2"]


def test_what_a_handler_shields_goes_on_when_its_attempt_is_cancelled(
    bench: Callable[..., Bench],
) -> None:
    inside, done, go = threading.Event(), threading.Event(), threading.Event()
    kept: list[Any] = []

    async def written() -> None:
        inside.set()
        while not go.is_set():
            await asyncio.sleep(0.001)
        done.set()

    async def handle(item: Any) -> None:
        kept.append(asyncio.create_task(written()))
        await asyncio.shield(kept[-1])

    pool = bench(handle)
    slice_ = slice_of(record(1, "a"))
    pool.pool.submit(slice_)
    assert inside.wait(WAIT)
    pool.pool.time_out(TimeOut(*WORKER, ((slice_.id, 0),)))
    (failed,) = [each for each in pool.until(SliceEnded) if isinstance(each, Failed)]
    assert failed.failure.timed_out
    assert not done.is_set()
    go.set()
    assert done.wait(WAIT), "what it shields is its own"


def test_what_stops_the_loop_stops_nothing(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Any] = []

    async def ends() -> None:
        sys.exit(4)

    async def handle(item: Any) -> None:
        if item.offset() == 1:
            asyncio.get_running_loop().stop()
        if item.offset() == 2:
            kept.append(asyncio.create_task(ends()))
        await asyncio.sleep(0)

    pool = bench(handle, limit=1)
    said = pool.run(*(record(offset, "a") for offset in range(5)))
    assert [type(each) for each in said] == [SliceEnded] * 5
    assert pool.pool.dead() == []
    assert "would have ended it" in caplog.text


def test_a_handler_that_blocks_the_loop_is_named_once_and_so_is_its_end(
    bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_keyshared.pool")
    inside, go = threading.Event(), threading.Event()
    now = [100.0]

    def computes() -> None:
        inside.set()
        go.wait(WAIT)

    async def handle(_record: Any) -> None:
        computes()

    pool = bench(handle, clock=Clock(lambda: now[0]))
    pool.submit(record(1, "a"))
    assert inside.wait(WAIT)
    for seconds in (0.0, 0.5, 0.5, 0.5, 0.5):
        now[0] += seconds
        pool.pool.beat()
    blocked = [each for each in caplog.messages if "has not turned for 1 s" in each]
    assert len(blocked) == 1
    assert "test_asyncio_pool.py" in blocked[0]
    assert "asyncio.to_thread()" in blocked[0]
    _, *stack = blocked[0].splitlines()
    assert "in handle" in stack[0] and "computes()" in "".join(stack[:4])
    assert "in wait" in stack[-2], "down to the call that it is in"
    assert not any("kafka_keyshared" in each for each in stack[1:])
    go.set()
    pool.until(SliceEnded)
    pool.run(record(2, "b"))
    assert any("turns again" in each for each in caplog.messages)
    pool.pool.beat()
    assert len([each for each in caplog.messages if "has not turned" in each]) == 1


def test_where_a_coroutine_stands_is_told_through_what_it_awaits(
    bench: Callable[..., Bench],
) -> None:
    inside, go = threading.Event(), threading.Event()

    async def deep() -> None:
        inside.set()
        while not go.is_set():
            await asyncio.sleep(0.001)

    async def handle(_record: Any) -> None:
        await deep()

    pool = bench(handle)
    slice_ = slice_of(record(1, "a"))
    pool.pool.submit(slice_)
    assert inside.wait(WAIT)
    code = deep.__code__
    places = {f"{line}" for _, _, line in code.co_lines()}
    where = pool.pool.where(*WORKER, slice_.id, 0)
    go.set()
    assert where.startswith("at ") and where.rsplit(":", 1)[1] in places
    pool.until(SliceEnded)
    assert pool.pool.where(*WORKER, slice_.id, 0) == ""


class Keeper:
    """Has state by slots, and closes as a coroutine."""

    made: ClassVar[list[Keeper]] = []

    def __init__(self) -> None:
        self.closed = False
        self.on = threading.current_thread().name
        self.adopted: list[Any] = []
        self.ran: list[int] = []
        Keeper.made.append(self)

    async def handle(self, item: Any) -> None:
        await asyncio.sleep(0)
        self.ran.append(item.offset())

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True

    def release(self, slots: Any) -> Any:
        return list(self.ran)

    def adopt(self, slots: Any, state: Any) -> None:
        self.adopted.append(state)


def test_a_handler_class_is_made_on_the_loop_hands_over_behind_what_it_has_and_is_closed() -> None:
    Keeper.made.clear()
    pool = Bench(Keeper)
    pool.pool.start()
    pool.pool.add(StartWorker("default", 1, "worker-1"))
    pool.submit(*(record(offset, "a") for offset in range(5)))
    pool.pool.release(Release(*WORKER, 7, [3]))
    (released,) = [each for each in pool.until(Released) if isinstance(each, Released)]
    assert released.state == [0, 1, 2, 3, 4], "behind everything that it had"
    pool.pool.adopt(Adopt("default", 1, [3], released.state))
    assert pool.pool.stop(WAIT) == []
    one, two = Keeper.made
    assert one.on == two.on == "keyshared-asyncio"
    assert two.adopted == [[0, 1, 2, 3, 4]]
    assert one.closed and two.closed


def test_a_close_that_fails_is_logged_with_its_worker(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Keeper):
        async def close(self) -> None:
            raise OSError("disk gone")

    pool = Bench(Failing)
    pool.pool.start()
    assert pool.pool.stop(WAIT) == []
    (line,) = [each for each in caplog.records if "close() of the handler" in each.getMessage()]
    assert vars(line)["worker"] == "worker-0"


def test_a_handler_that_cannot_be_made_is_told_at_the_start() -> None:
    class Broken:
        def __init__(self) -> None:
            raise OSError("no disk")

        async def handle(self, _record: Any) -> None: ...

    with pytest.raises(ConfigError, match="worker-0 could not be made: OSError: no disk"):
        Bench(Broken).pool.start()


def test_a_stop_names_who_runs_and_ends_the_thread_when_that_has_ended() -> None:
    started, go = threading.Event(), threading.Event()

    async def handle(_record: Any) -> None:
        started.set()
        while not go.is_set():
            await asyncio.sleep(0.001)

    pool = Bench(handle)
    pool.pool.start()
    (thread,) = [each for each in threading.enumerate() if each.name == "keyshared-asyncio"]
    pool.submit(record(1, "a"), record(2, "a"))
    assert started.wait(WAIT)
    assert pool.pool.stop(0.0) == ["worker-0"]
    go.set()
    assert pool.pool.stop(WAIT) == []
    thread.join(WAIT)
    assert not thread.is_alive()
    assert not [each for each in pool.until(SliceEnded) if isinstance(each, Failed)]
    assert pool.mailbox.empty(), "the second never started"


def test_what_is_left_on_the_loop_is_cancelled_with_it() -> None:
    ended = threading.Event()

    async def lives_on() -> None:
        try:
            await asyncio.sleep(WAIT)
        finally:
            ended.set()

    kept: list[Any] = []

    async def handle(_record: Any) -> None:
        kept.append(asyncio.create_task(lives_on()))
        await asyncio.sleep(0)

    pool = Bench(handle)
    pool.pool.start()
    pool.run(record(1, "a"))
    assert pool.pool.stop(WAIT) == []
    assert ended.wait(WAIT)


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(item: Any) -> Any:
        return function(item)

    return wrapper


ran: list[int] = []


async def plain(item: Any) -> None:
    ran.append(item.offset())


@pytest.mark.parametrize("handler", [plain, functools.partial(plain), wrapped(plain)])
def test_what_wraps_a_coroutine_function_is_awaited(
    bench: Callable[..., Bench], handler: Any
) -> None:
    ran.clear()
    bench(handler).run(record(1, "a"))
    assert ran == [1]


def test_a_function_that_is_no_coroutine_is_refused_by_name() -> None:
    def handle(item: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"handle is declared with 'def'.*workers=16"):
        maker(handle, "asyncio")


def test_uvloop_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()

    class Found:
        @staticmethod
        def new_event_loop() -> Any:
            return loop

    monkeypatch.setitem(sys.modules, "uvloop", Found)
    assert event_loop.new_loop() is loop
    loop.close()


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_the_loop_is_of_the_kind_that_was_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_loop(name, monkeypatch)
    loop = event_loop.new_loop()
    assert type(loop).__module__.partition(".")[0] == name
    loop.close()


def test_what_an_ended_loop_is_told_comes_to_nothing() -> None:
    host = OwnLoop()
    host.start()
    host.close()
    deadline = time.monotonic() + WAIT
    while any(each.name == "keyshared-asyncio" for each in threading.enumerate()):
        assert time.monotonic() < deadline
    host.tell(lambda: pytest.fail("it was called"))
    assert not host.alive


class Lent:
    """A pool of one worker on a loop that the test turns, on its own thread."""

    def __init__(self, handler: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.mailbox: SimpleQueue[Any] = SimpleQueue()
        spec = WorkerSpec(*WORKER, "worker-0", maker(handler, "asyncio"))

        async def make() -> TaskPool:
            pool = TaskPool([spec], self.mailbox, Clock(), limit=5, host=CallersLoop())
            await asyncio.to_thread(pool.start)
            return pool

        self.pool = self.loop.run_until_complete(make())

    def until(self, condition: Callable[[], bool]) -> None:
        async def waits() -> None:
            while not condition():
                await asyncio.sleep(0)

        self.loop.run_until_complete(asyncio.wait_for(waits(), WAIT))

    def close(self) -> None:
        """Close the loop, as a program does that has forgotten the app."""
        self.loop.close()

    def runners(self) -> list[Any]:
        return [
            each
            for each in asyncio.all_tasks(self.loop)
            if each.get_coro().__qualname__ == "TaskWorker._live"  # type: ignore[union-attr]
        ]

    def heard(self) -> list[Any]:
        return [self.mailbox.get_nowait() for _ in range(self.mailbox.qsize())]


def test_on_a_callers_loop_that_is_closed_what_ran_has_failed_once_and_the_worker_is_gone() -> None:
    started: list[int] = []

    async def handle(item: Any) -> None:
        started.append(item.offset())
        await asyncio.Event().wait()

    lent = Lent(handle)
    lent.pool.submit(slice_of(record(1, "a")))
    lent.pool.submit(slice_of(record(2, "a")))
    lent.until(lambda: bool(started))
    assert lent.pool.dead() == []
    lent.close()
    assert lent.pool.dead() == [WORKER]
    assert lent.heard() == []
    for _ in range(2):
        lent.pool.replace(*WORKER)
    said = lent.heard()
    assert [type(each) for each in said] == [Failed, SetAside, SliceEnded, SliceEnded]
    assert said[0].failure.error_type == "LoopEndedError"
    lent.pool.submit(slice_of(record(3, "b")))
    lent.pool.time_out(TimeOut(*WORKER, ()))
    lent.pool.abandon(*WORKER)
    assert [type(each) for each in lent.heard()] == [Recalled, SliceEnded]
    assert lent.pool.stop(0.0) == []
    assert started == [1]


def test_a_start_on_a_callers_loop_that_is_closed_is_refused_and_does_not_hang() -> None:
    class Counted:
        def __init__(self) -> None:
            pytest.fail("it was made")

        async def handle(self, item: Any) -> None: ...

    loop = asyncio.new_event_loop()

    async def make() -> CallersLoop:
        return CallersLoop()

    host = loop.run_until_complete(make())
    loop.close()
    spec = WorkerSpec(*WORKER, "worker-0", maker(Counted, "asyncio"))
    pool = TaskPool([spec], SimpleQueue(), Clock(), limit=5, host=host)
    with pytest.raises(KeySharedError, match="closed before the workers had started"):
        pool.start()


def test_a_runner_that_somebody_cancels_at_rest_is_missed_by_nobody() -> None:
    ran: list[int] = []

    async def handle(item: Any) -> None:
        ran.append(item.offset())

    lent = Lent(handle)
    lent.pool.submit(slice_of(record(1, "a")))
    lent.until(lambda: ran == [1])
    for task in lent.runners():
        task.cancel()
    lent.until(lambda: not lent.runners())
    lent.pool.submit(slice_of(record(2, "a")))
    lent.until(lambda: len(ran) == 2)
    assert ran == [1, 2]
    lent.loop.run_until_complete(lent.pool.quit())
    lent.until(lambda: not lent.runners())
    lent.loop.close()


def test_what_ends_with_a_loop_that_was_closed_is_nothing_to_the_loop_that_turns_then() -> None:
    """Python ends a coroutine that nobody can go on with wherever it happens to find it."""
    started: list[int] = []

    async def handle(item: Any) -> None:
        started.append(item.offset())
        await asyncio.Event().wait()

    lent = Lent(handle)
    lent.pool.submit(slice_of(record(1, "a")))
    lent.until(lambda: bool(started))
    (runner,) = lent.runners()
    lent.close()
    lent.pool.replace(*WORKER)
    lent.heard()

    async def ends() -> list[Any]:
        runner.get_coro().close()
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    assert asyncio.run(ends()) == []
    assert lent.heard() == []
    lent.pool.abandon(*WORKER)


# --- slices of several records ---


def test_of_a_slice_what_has_just_ended_is_told_before_the_rest_is_given_back() -> None:
    """Told behind it, it would be the end of the slice, and what comes back count as done."""
    said: list[Any] = []
    go: list[bool] = []

    async def handle(item: Any) -> None:
        while item.key() == b"a" and not go:
            await asyncio.sleep(0)

    host, mailbox = SteppedLoop(), SimpleNamespace(put=said.append)
    spec = WorkerSpec(*WORKER, "worker-0", maker(handle, "asyncio"))
    make = functools.partial(
        TaskWorker, told_within=3_600.0
    )  # what has ended is not told by itself
    pool = TaskPool([spec], mailbox, Clock(), limit=10, host=host, make=make)  # type: ignore[arg-type]
    pool.start()
    runs = slice_of(record(0, "a"))
    given = slice_of(record(1, "b"), record(2, "a"), record(3, "a"))
    for each in (runs, given):
        pool.submit(each)
    host.turn()
    assert said == []
    pool.recall(Recall(*WORKER))
    host.turn()
    assert [type(each) for each in said] == [SomeEnded, Recalled, SliceEnded]
    assert (said[0].slice, said[0].indices) == (given.id, (0,))
    assert said[1].slices == [(given.id, [1, 2])]
    assert said[2].slice == given.id
    go.append(True)
    host.turn()
    assert said[3].slice == runs.id
    assert pool.progress() == {}
    host.end()


HANGS_IN_A_THREAD = """
import asyncio, threading
from kafka_keyshared.executors.coroutines.event_loop import OwnLoop
hangs, host = threading.Event(), OwnLoop()
def hang():
    hangs.set()
    threading.Event().wait()
async def main():
    assert await asyncio.to_thread(str, 7) == "7"
    await asyncio.to_thread(hang)
tasks = []
host.start()
host.tell(lambda: tasks.append(asyncio.ensure_future(main())))
hangs.wait()
host.close()
"""


def test_a_call_that_hangs_in_a_thread_of_the_loop_keeps_no_program_from_exiting() -> None:
    program = [sys.executable, "-c", HANGS_IN_A_THREAD]
    assert subprocess.run(program, check=False, timeout=WAIT).returncode == 0


def test_threads_of_a_loop_give_back_what_their_calls_return_and_raise() -> None:
    threads = DaemonThreads("tested")
    results = [threads.submit(divmod, number, 7) for number in range(100)]
    assert [each.result(WAIT) for each in results] == [divmod(number, 7) for number in range(100)]
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result(WAIT)
    started = [each for each in threading.enumerate() if each.name.startswith("tested_")]
    assert 1 <= len(started) <= MOST
    assert all(each.daemon for each in started)
    threads.shutdown()
    for each in started:
        each.join(WAIT)
        assert not each.is_alive()
