"""The thread pool alone: verdicts, failures, fences, threads that die."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Adopt, Fence, Recall, Release, StartWorker
from kafka_keyshared.core.contract.events import (
    Failed,
    FencePassed,
    Released,
    Report,
    SetAside,
    SliceEnded,
)
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.slices import SerialProgress, Slice
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling import outcome_mapping
from kafka_keyshared.executors.handling.handlers import Made, maker
from kafka_keyshared.executors.port import Handover
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import Ack, DeadLetter, Drop, Retry, Verdict
from tests.conftest import Eventually
from tests.support.records import FakeRecord, record
from tests.support.slices import slice_of

WAIT = 30.0


class Bench:
    """A pool of one worker, and its mailbox."""

    def __init__(self, handler: Any, pool: type[ThreadPool] = ThreadPool) -> None:
        self.mailbox: SimpleQueue[Report] = SimpleQueue()
        spec = WorkerSpec("default", 0, "worker-0", maker(handler))
        self.pool = pool([spec], self.mailbox, Clock())

    def submit(self, *records: FakeRecord) -> Slice:
        slice_ = slice_of(*records)
        self.pool.submit(slice_)
        return slice_

    def fence(self, of: FakeRecord) -> None:
        self.pool.fence(Fence("default", 0, (lane_of(of),)))

    def reports(self, until: Callable[[Report], bool] | None = None) -> list[Report]:
        """Return what the worker says up to the end of a slice (or what is waited for)."""
        found: list[Report] = []
        while True:
            found.append(self.mailbox.get(timeout=WAIT))
            if until(found[-1]) if until else isinstance(found[-1], SliceEnded):
                return found

    def run(self, *records: FakeRecord) -> list[Report]:
        self.submit(*records)
        return self.reports()


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(handler: Any, pool: type[ThreadPool] = ThreadPool) -> Bench:
        made.append(Bench(handler, pool))
        made[-1].pool.start()
        return made[-1]

    yield make
    for each in made:
        assert each.pool.stop(WAIT) == []


MakeBench = Callable[..., Bench]


def raises(error: BaseException | type[BaseException]) -> Callable[[Any], None]:
    def handler(_record: Any) -> None:
        raise error

    return handler


def the_failure(reports: list[Report]) -> Failed:
    failed, ended = reports
    assert isinstance(failed, Failed)
    assert isinstance(ended, SliceEnded)
    return failed


@pytest.mark.parametrize("result", [None, Ack(), Ack])
def test_none_and_ack_settle(bench: MakeBench, result: object) -> None:
    (ended,) = bench(lambda record: result).run(record(1))
    assert isinstance(ended, SliceEnded)
    assert list(ended.dropped) == []


@pytest.mark.parametrize("error", [Ack(), Ack])
def test_a_raised_ack_settles(bench: MakeBench, error: type[BaseException]) -> None:
    assert [type(each) for each in bench(raises(error)).run(record(1))] == [SliceEnded]


@pytest.mark.parametrize("handler", [lambda record: Drop(), raises(Drop()), lambda record: Drop])
def test_a_drop_settles_and_is_counted(bench: MakeBench, handler: Any) -> None:
    (ended,) = bench(handler).run(record(1), record(2))
    assert isinstance(ended, SliceEnded)
    assert list(ended.dropped) == [0, 1]


@pytest.mark.parametrize(
    ("verdict", "outcome", "after"),
    [
        (Retry(), Disposition.RETRY, None),
        (Retry, Disposition.RETRY, None),
        (Retry(after=1.5), Disposition.RETRY, 1.5),
        (DeadLetter("why"), Disposition.DEAD_LETTER, None),
    ],
)
@pytest.mark.parametrize("way", ["returned", "raised"])
def test_retry_and_dead_letter_are_failed_attempts(
    bench: MakeBench, verdict: Any, outcome: Disposition, after: float | None, way: str
) -> None:
    handler = raises(verdict) if way == "raised" else lambda record: verdict
    failure = the_failure(bench(handler).run(record(1))).failure
    assert (failure.disposition, failure.after) == (outcome, after)


class Postpone(Verdict):
    """A verdict that nobody but the user knows."""


@pytest.mark.parametrize("verdict", [Postpone(), Postpone])
@pytest.mark.parametrize("way", ["returned", "raised"])
def test_a_verdict_that_nobody_knows_is_a_failed_attempt_and_never_done(
    bench: MakeBench, verdict: Any, way: str
) -> None:
    handler = raises(verdict) if way == "raised" else lambda record: verdict
    failure = the_failure(bench(handler).run(record(1))).failure
    assert (failure.disposition, failure.error_type) == (Disposition.ERROR, "Postpone")


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), ValueError()],
)
def test_no_exception_ends_the_worker(bench: MakeBench, error: BaseException) -> None:
    made = bench(raises(error))
    failed = the_failure(made.run(record(1)))
    assert failed.failure.disposition is Disposition.ERROR
    assert failed.failure.error_type == type(error).__qualname__
    assert [type(each) for each in made.run(record(2, "other"))] == [Failed, SliceEnded]


def test_a_coroutine_from_a_plain_function_is_a_failed_attempt(bench: MakeBench) -> None:
    async def work(_record: Any) -> None: ...

    def plain(item: Any) -> Any:
        return work(item)

    failed = the_failure(bench(plain).run(record(1)))
    assert failed.failure.error_type == "TypeError"
    assert "coroutine" in failed.failure.message


class Later:
    def __await__(self) -> Iterator[None]:
        yield


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


DEFERRED: dict[str, Callable[[], Any]] = {
    "a generator, of which nothing has run": generator,
    "a async_generator object, of which nothing has run": async_generator,
    "a map object, of which nothing has run": lambda: map(print, [1]),
    "a Later that is not awaited": Later,
    "a Future that is not waited for": concurrent.futures.Future,
}


@pytest.mark.parametrize("said", DEFERRED)
def test_work_that_is_yet_to_be_done_is_a_failed_attempt(bench: MakeBench, said: str) -> None:
    failed = the_failure(bench(lambda record: DEFERRED[said]()).run(record(1)))
    assert failed.failure.error_type == "TypeError"
    assert f"the handler returned {said}" in failed.failure.message
    assert "wait for it, before the handler returns" in failed.failure.message


def test_a_future_of_asyncio_is_a_failed_attempt_too(bench: MakeBench) -> None:
    loop = asyncio.new_event_loop()
    try:
        failed = the_failure(bench(lambda record: loop.create_future()).run(record(1)))
    finally:
        loop.close()
    assert "a Future that is not awaited" in failed.failure.message


def test_what_was_written_into_a_failed_record_is_gone_when_it_is_reported(
    bench: MakeBench,
) -> None:
    def handler(item: Any) -> None:
        if item.offset() == 1:
            item.set_key({"id": 1})
            item.set_value(7)
            item.set_topic("elsewhere")
            raise ValueError

    first, second = record(1), record(2)
    reports = bench(handler).run(first, second)
    assert [type(each) for each in reports] == [Failed, SetAside, SliceEnded]
    assert (first.topic(), first.key(), first.value()) == ("orders", b"k", b"v" * 10)


def test_what_was_written_into_a_dropped_record_is_gone_too(bench: MakeBench) -> None:
    def handler(item: Any) -> Drop:
        item.set_topic("elsewhere")
        return Drop()

    dropped = record(1)
    (ended,) = bench(handler).run(dropped)
    assert isinstance(ended, SliceEnded)
    assert list(ended.dropped) == [0]
    assert dropped.topic() == "orders"


def test_any_other_result_settles_with_one_warning_that_names_it(
    bench: MakeBench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome_mapping, "_warned_results", set())
    reports = bench(lambda record: {"rows": 3}).run(record(1), record(2))
    assert [type(each) for each in reports] == [SliceEnded]
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "{'rows': 3} (dict)" in warning.getMessage()


def test_what_follows_in_a_failed_lane_is_set_aside_until_the_fence(bench: MakeBench) -> None:
    ran: list[int] = []

    def handler(item: Any) -> None:
        ran.append(item.offset())
        if item.offset() == 2:
            raise ValueError

    made = bench(handler)
    shares = [
        made.submit(record(1), record(2), record(3), record(4, "other"), record(5)),
        made.submit(record(6), record(7, None)),
    ]
    made.fence(record(2))
    last = made.submit(record(8))
    reports = made.reports(lambda each: isinstance(each, SliceEnded) and each.slice == last.id)
    assert ran == [1, 2, 4, 7, 8]
    assert [(type(each), offset_of(each, *shares)) for each in reports] == [
        (Failed, 2),
        (SetAside, 3),
        (SetAside, 5),
        (SliceEnded, 0),
        (SetAside, 6),
        (SliceEnded, 0),
        (FencePassed, 0),
        (SliceEnded, 0),
    ]


def offset_of(report: Report, *shares: Slice) -> int:
    """Return which record a report names; 0 where it names none."""
    if not isinstance(report, Failed | SetAside):
        return 0
    (slice_,) = (each for each in shares if each.id == report.slice)
    return slice_.records[report.index].offset()


def test_a_failed_record_without_a_key_sets_nothing_aside(bench: MakeBench) -> None:
    reports = bench(raises(ValueError())).run(record(1, None), record(2, None))
    assert [type(each) for each in reports] == [Failed, Failed, SliceEnded]


def test_a_recall_takes_back_what_has_not_started_while_the_worker_is_busy(
    bench: MakeBench,
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def handler(_item: Any) -> None:
        inside.set()
        assert go_on.wait(WAIT)

    made = bench(handler)
    first = made.submit(record(1), record(2), record(3))
    second = made.submit(record(4))
    assert inside.wait(WAIT)
    started = {first.id: SerialProgress(1), second.id: SerialProgress(0)}
    assert made.pool.progress() == started
    recalled = made.pool.recall(Recall("default", 0))
    assert [(id_, list(back)) for id_, back in recalled.slices] == [
        (first.id, [1, 2]),
        (second.id, [0]),
    ]
    assert made.pool.progress() == started
    go_on.set()
    assert [type(each) for each in made.reports() + made.reports()] == [SliceEnded, SliceEnded]


class Counting:
    """A handler class that counts its instances."""

    made = 0
    closed = 0

    def __init__(self) -> None:
        type(self).made += 1

    def handle(self, _record: Any) -> None: ...

    def close(self) -> None:
        type(self).closed += 1


def test_a_handler_class_is_made_once_per_worker_and_closed() -> None:
    class Handler(Counting): ...

    specs = [WorkerSpec("default", index, f"w-{index}", maker(Handler)) for index in range(3)]
    pool = ThreadPool(specs, SimpleQueue(), Clock())
    pool.start()
    assert (Handler.made, Handler.closed) == (3, 0)
    assert pool.stop(WAIT) == []
    assert Handler.closed == 3


def test_a_close_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Handler(Counting):
        def close(self) -> None:
            raise OSError("disk gone")

    pool = Bench(Handler).pool
    pool.start()
    assert pool.stop(WAIT) == []
    assert "close() of the handler failed" in caplog.text


def test_a_constructor_that_fails_is_a_config_error_that_names_it() -> None:
    class Handler(Counting):
        def __init__(self) -> None:
            raise ConnectionError("no database")

    with pytest.raises(ConfigError, match=r"worker-0 .*ConnectionError: no database") as caught:
        Bench(Handler).pool.start()
    assert caught.value.exit_code == 2


def test_stop_names_who_still_runs_and_starts_nothing_more() -> None:
    inside, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def handler(item: Any) -> None:
        ran.append(item.offset())
        inside.set()
        assert go_on.wait(WAIT)

    made = Bench(handler)
    made.pool.start()
    made.submit(record(1), record(2))
    made.submit(record(3))
    assert inside.wait(WAIT)
    assert made.pool.stop(0.01) == ["worker-0"]
    go_on.set()
    assert made.pool.stop(WAIT) == []
    assert ran == [1]


# --- threads that die ---

DIES = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class ThreadEndError(SystemExit):
    """Ends a thread without a trace, as the interpreter treats SystemExit there."""


class DyingMailbox(SimpleQueue):  # type: ignore[type-arg]
    """A mailbox that ends the thread which reports the failure of record 1, before it is told."""

    deaths = 1

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        by_worker = threading.current_thread().name.startswith("keyshared-")
        if by_worker and self.deaths and isinstance(item, Failed) and item.index == 1:
            self.deaths -= 1
            raise ThreadEndError
        super().put(item, block, timeout)


def dying_bench(handler: Any) -> Bench:
    made = Bench(handler)
    made.mailbox = DyingMailbox()
    spec = WorkerSpec("default", 0, "worker-0", maker(handler))
    made.pool = ThreadPool([spec], made.mailbox, Clock())
    made.pool.start()
    return made


def await_death(pool: ThreadPool) -> None:
    (cell,) = pool.cells.values()
    assert cell.thread is not None
    cell.thread.join(WAIT)
    assert pool.dead() == [("default", 0)]


def fails_at_two(ran: list[int]) -> Callable[[Any], None]:
    def handler(item: Any) -> None:
        ran.append(item.offset())
        if item.offset() == 2:
            raise ValueError

    return handler


@DIES
def test_a_dead_thread_is_replaced_and_its_successor_goes_on_in_the_same_slice() -> None:
    ran: list[int] = []
    made = dying_bench(fails_at_two(ran))
    slice_ = made.submit(record(1), record(2), record(3), record(4, "other"))
    made.submit(record(5), record(6, "other"))
    await_death(made.pool)
    made.pool.replace("default", 0)
    reports = made.reports() + made.reports()
    assert ran == [1, 2, 4, 6]
    assert [type(each) for each in reports] == [Failed, SetAside, SliceEnded, SetAside, SliceEnded]
    first = reports[0]
    assert isinstance(first, Failed)
    assert (first.slice, first.index) == (slice_.id, 1)
    assert "thread ended" in first.failure.message
    assert made.pool.dead() == []
    assert made.pool.stop(WAIT) == []


@DIES
def test_a_replacement_that_cannot_start_reports_the_running_record_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = dying_bench(fails_at_two([]))
    made.submit(record(1), record(2), record(3))
    await_death(made.pool)

    def cannot(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        for _ in range(3):
            made.pool.replace("default", 0)
    assert caplog.text.count("worker-0 could not be started") == 3
    assert made.pool.dead() == [("default", 0)]
    made.pool.replace("default", 0)
    assert [type(each) for each in made.reports()] == [Failed, SetAside, SliceEnded]
    assert made.pool.stop(WAIT) == []


@DIES
def test_an_abandoned_worker_has_everything_reported_as_over() -> None:
    made = dying_bench(fails_at_two([]))
    made.submit(record(1), record(2), record(3))
    made.submit(record(4))
    await_death(made.pool)
    recalled = made.pool.recall(Recall("default", 0))
    assert [list(back) for _, back in recalled.slices] == [[2], [0]]
    made.pool.abandon("default", 0)
    assert [type(each) for each in made.reports() + made.reports()] == [
        Failed,
        SliceEnded,
        SliceEnded,
    ]
    assert made.pool.progress() == {}
    assert made.pool.dead() == [], "it is not reported again"
    assert made.pool.stop(WAIT) == []


# --- what is said about a failure ---


class UnprintableError(Exception):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def __str__(self) -> str:
        raise self._error


@pytest.mark.parametrize("broken", [ValueError(), SystemExit(), KeyboardInterrupt()])
def test_an_exception_that_cannot_be_printed_is_still_a_failed_attempt(
    bench: MakeBench, broken: BaseException
) -> None:
    made = bench(raises(UnprintableError(broken)))
    failure = the_failure(made.run(record(1))).failure
    assert failure.error_type == "UnprintableError"
    assert failure.message == f"(no text: {type(broken).__name__})"
    assert the_failure(made.run(record(2, "other"))), "the worker lives on"


# --- what may be a handler ---


class NoMethod: ...


class WrongMethod:
    def handle(self) -> None: ...


class NeedsArguments(Counting):
    def __init__(self, database: str) -> None:
        self.database = database


class AsyncMethod:
    async def handle(self, _record: Any) -> None: ...


async def async_function(_record: Any) -> None: ...


def yields(_record: Any) -> Iterator[None]:
    yield


def no_argument() -> None: ...


class CalledToYield:
    def __call__(self, _record: Any) -> Iterator[None]:
        yield


class CalledToAwait:
    async def __call__(self, _record: Any) -> None: ...


def two_arguments(_one: Any, _two: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (NoMethod, "NoMethod has no method handle"),
        (WrongMethod, r"WrongMethod\.handle\(self\).* is called with one record"),
        (NeedsArguments, "NeedsArguments.* is made without arguments"),
        (AsyncMethod, r"AsyncMethod\.handle is declared with 'async def'"),
        (async_function, "async_function is declared with 'async def'"),
        (yields, "yields contains 'yield'"),
        (partial(yields), "yields.* contains 'yield'"),
        (CalledToYield(), "CalledToYield.* contains 'yield'"),
        (partial(CalledToYield()), "CalledToYield.* contains 'yield'"),
        (CalledToAwait(), "CalledToAwait.* is declared with 'async def'"),
        (no_argument, r"no_argument\(\).* is called with one record"),
        (two_arguments, "two_arguments.* is called with one record"),
        (17, "17 is not callable"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_by_name(handler: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        maker(handler)


def test_a_builtin_without_a_signature_is_accepted() -> None:
    assert maker(print)() == Made(print)


def test_a_wrapper_that_runs_what_it_wraps_is_taken(bench: MakeBench) -> None:
    @wraps(async_function)
    def runs_it(item: Any) -> None:
        asyncio.run(async_function(item))

    assert [type(each) for each in bench(runs_it).run(record(1))] == [SliceEnded]


# --- where a worker stands ---


def test_where_a_worker_stands_is_a_line_of_the_users_program(
    bench: MakeBench, eventually: Eventually
) -> None:
    reached, gate = threading.Event(), threading.Event()

    def handle(record: object) -> None:
        reached.set()
        assert gate.wait(WAIT)

    made = bench(handle)
    given = made.submit(record(0)).id
    assert reached.wait(WAIT)
    line = handle.__code__.co_firstlineno + 2
    eventually(lambda: "in wait" in made.pool.where("default", 0, given, 0), WAIT)
    place = made.pool.where("default", 0, given, 0)
    gate.set()
    made.reports()
    assert re.fullmatch(rf"at \S*test_pool\.py:{line}, in wait \(threading\.py:\d+\)", place)
    eventually(lambda: made.pool.where("default", 0, given, 0) == "", WAIT)


def test_a_worker_without_a_thread_stands_nowhere() -> None:
    spec = WorkerSpec("default", 0, "worker-0", maker(lambda record: None))
    assert ThreadPool([spec], SimpleQueue(), Clock()).where("default", 0, 7, 0) == ""


def test_a_worker_that_is_gone_stands_nowhere(bench: MakeBench) -> None:
    """A stop tells where the records stand that were running at the last heartbeat."""
    made = bench(lambda record: None)
    made.pool.add(StartWorker("default", 1, "worker-1"))
    made.pool.abandon("default", 1)
    made.pool.end("default", 1)
    assert made.pool.where("default", 1, 7, 0) == ""


def test_a_worker_that_is_gone_closes_its_handler_and_is_nobodys_any_more(
    bench: MakeBench, eventually: Eventually
) -> None:
    closed: list[str] = []

    class Counting:
        def handle(self, _record: Any) -> None: ...

        def close(self) -> None:
            closed.append(threading.current_thread().name)

    made = bench(Counting)
    made.pool.add(StartWorker("default", 1, "worker-1"))
    made.pool.submit(slice_of(record(0), worker=1))
    assert isinstance(made.reports()[-1], SliceEnded)
    made.pool.end("default", 1)
    eventually(lambda: closed == ["keyshared-default-worker-1"], WAIT)
    eventually(lambda: made.pool.dead() == [] and len(made.pool.cells) == 1, WAIT)
    made.run(record(1))  # the other one goes on


def test_a_worker_whose_thread_had_died_is_forgotten_when_it_is_gone(bench: MakeBench) -> None:
    made = bench(lambda _record: None)
    made.pool.add(StartWorker("default", 1, "worker-1"))
    cell = made.pool.cells["default", 1]
    cell.inbox.put(None)
    assert cell.thread is not None
    cell.thread.join(WAIT)
    assert made.pool.dead() == [("default", 1)]
    made.pool.abandon("default", 1)
    made.pool.end("default", 1)
    assert (made.pool.dead(), [*made.pool.cells]) == ([], [("default", 0)])


class Remembering:
    """A handler with state by slot; one slot cannot be released, another not adopted."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = {}

    def handle(self, item: Any) -> None:
        self.seen.setdefault(slot_of(item.key()), []).append(item.offset())

    def release(self, slots: Sequence[int]) -> dict[int, list[int]]:
        if 7 in slots:
            raise KeyError(7)
        return {slot: self.seen.pop(slot) for slot in slots if slot in self.seen}

    def adopt(self, slots: Sequence[int], state: dict[int, list[int]]) -> None:
        if 8 in slots:
            raise KeyError(8)
        self.seen.update(state)


def test_a_worker_releases_behind_what_it_was_given_and_adopts_before_what_follows(
    bench: MakeBench,
) -> None:
    made = bench(Remembering)
    slot = slot_of(b"k")
    made.submit(record(0), record(1))
    made.pool.release(Release("default", 0, 5, (slot,)))
    made.pool.adopt(Adopt("default", 0, (slot,), {slot: [-1]}))
    made.submit(record(2))
    made.pool.release(Release("default", 0, 6, (slot,)))
    said = made.reports(lambda report: isinstance(report, Released) and report.number == 6)
    states = [each.state for each in said if isinstance(each, Released)]
    assert states == [{slot: [0, 1]}, {slot: [-1, 2]}]


def test_what_release_and_adopt_raise_is_told_and_the_worker_goes_on(
    bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    made = bench(Remembering)
    made.pool.release(Release("default", 0, 1, (7,)))
    made.pool.adopt(Adopt("default", 0, (8,), {}))
    (said,) = made.reports(lambda report: isinstance(report, Released))
    assert said == Released("default", 0, 1, None, "KeyError: 7")
    assert isinstance(made.run(record(0))[-1], SliceEnded)
    lines = [each.getMessage() for each in caplog.records]
    assert "worker-0: release() of the handler failed, for 1 slot; keys there begin" in lines[0]
    assert "worker-0: adopt() of the handler failed, for 1 slot" in lines[1]


def test_a_function_has_no_state_to_release(bench: MakeBench) -> None:
    made = bench(lambda _record: None)
    made.pool.release(Release("default", 0, 1, (7,)))
    assert made.reports(lambda report: isinstance(report, Released)) == [Released("default", 0, 1)]


def test_half_a_hand_over_is_refused() -> None:
    class Half:
        def handle(self, _record: Any) -> None: ...

        def release(self, _slots: Any) -> None: ...

    with pytest.raises(ConfigError, match=r"Half has release\(\) and no adopt\(\)"):
        maker(Half)


def test_what_cannot_be_called_with_slots_is_refused() -> None:
    class Wrong:
        def handle(self, _record: Any) -> None: ...

        def release(self) -> None: ...

        def adopt(self, _slots: Any, _state: Any) -> None: ...

    with pytest.raises(ConfigError, match="is called with the slots"):
        maker(Wrong)


@pytest.mark.parametrize("how", ["recall", "stop"])
def test_a_worker_that_goes_on_while_slices_are_taken_back_overtakes_nothing(
    bench: MakeBench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """They are taken back one after the other, and it may end one in between."""
    held = threading.Semaphore(0)
    ran: list[int] = []

    def handle(item: FakeRecord) -> None:
        ran.append(item.offset())
        held.acquire(timeout=WAIT)

    made = bench(handle)
    first, second = made.submit(record(1), record(2)), made.submit(record(3))
    eventually(lambda: ran == [1], WAIT)
    taken = Handover.take_back

    def take_back(handover: Handover) -> range:
        back = taken(handover)
        made.fence(record(0, "other"))
        held.release(3)
        made.reports(lambda report: isinstance(report, FencePassed))
        return back

    monkeypatch.setattr(Handover, "take_back", take_back)
    if how == "recall":
        back = made.pool.recall(Recall("default", 0, None))
        assert [*back.slices] == [(first.id, range(2, 2)), (second.id, range(1))]
    else:
        assert made.pool.stop(WAIT) == []
    assert ran == [1, 2], "and never 3 without 2"
