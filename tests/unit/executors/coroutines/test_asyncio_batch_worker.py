"""Calls with several records on an event loop: many at once, each key in one of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_keyshared import lease_of
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Adopt, Fence, Lapse, Recall, Release, TimeOut
from kafka_keyshared.core.contract.events import Failed, Recalled, Released
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.executors.coroutines.asyncio_batch_worker import CallWorker
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import DeadLetter, Drop, Retry, partition_of
from tests.conformance.pool_sides import SteppedLoop
from tests.support.records import FakeRecord, record
from tests.support.slices import slice_of

WAIT = 30.0
WORKER = ("default", 0)


class Bench:
    """A pool of one worker on a loop that turns where the test says so.

    Its handler waits in each call for what the test has it answer.
    """

    def __init__(
        self, rule: BatchRule, *, limit: int, handler: Any = None, host: Any = None
    ) -> None:
        self.now = 0.0
        self.said: list[Any] = []
        self.calls: list[list[int]] = []
        self.heeds = True
        self._answers: list[asyncio.Future[Any]] = []
        self._slices: dict[int, int] = {}
        self.host = host or SteppedLoop()
        mailbox: Any = SimpleNamespace(put=self.said.append)
        make = maker(handler or self._handle, "asyncio")
        self.pool = TaskPool(
            [WorkerSpec(*WORKER, "worker-0", make)],
            mailbox,
            Clock(monotonic=lambda: self.now),
            limit=limit,
            host=self.host,
            make=partial(CallWorker, rule),
        )
        self.pool.start()

    async def _handle(self, records: Sequence[Any]) -> Any:
        self.calls.append([each.offset() for each in records])
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        while True:
            try:
                found = await asyncio.shield(answer)
            except asyncio.CancelledError:
                if self.heeds:
                    raise
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def submit(self, *records: FakeRecord) -> list[Slice]:
        made = [slice_of(each) for each in records]
        for slice_, each in zip(made, records, strict=True):
            self._slices[slice_.id] = each.offset()
            self.pool.submit(slice_)
        self.host.turn()
        return made

    def answer(self, call: int, what: Any = None) -> list[tuple[str, int]]:
        """End a call; return what is said of it, the kind and the offset."""
        self.heard()
        self._answers[call].set_result(what)
        self.host.turn()
        return self.heard()

    def heard(self) -> list[tuple[str, int]]:
        said, self.said[:] = [*self.said], []
        return [(type(each).__name__, self._slices[each.slice]) for each in said]

    def time_out(self, *slices: Slice) -> Recalled:
        self.pool.time_out(TimeOut(*WORKER, tuple((each.id, 0) for each in slices)))
        self.host.turn()
        (answer,) = [each for each in self.said if isinstance(each, Recalled)]
        self.said.remove(answer)
        return answer

    def recall(self, *slices: Slice) -> list[int]:
        """Take these back, or all; return the offsets of what has come back."""
        self.heard()
        only = {each.id: [0] for each in slices} or None
        self.pool.recall(Recall(*WORKER, only))
        self.host.turn()
        answer = self.said.pop(0)
        return [self._slices[id_] for id_, _ in answer.slices]

    def running(self) -> list[int]:
        progress = self.pool.progress()
        return sorted(self._slices[id_] for id_, each in progress.items() if each.running())


Make = Callable[..., Bench]


@pytest.fixture
def bench() -> Iterator[Make]:
    made: list[Bench] = []

    def make(
        size: int = 10, *, limit: int = 5, wait: float = 0.0, same_key: bool = False, **more: Any
    ) -> Bench:
        made.append(Bench(BatchRule(size, wait, same_key), limit=limit, **more))
        return made[-1]

    yield make
    for each in made:
        each.heeds = True
        for answer in each._answers:
            if not answer.done():
                answer.set_result(None)
        each.pool.stop(0.0)
        each.host.turn()
        assert each.pool.stop(0.0) == []
        each.host.end()


def test_calls_have_up_to_their_size_in_order_and_as_many_run_at_once_as_the_limit_says(
    bench: Make,
) -> None:
    pool = bench(3, limit=2)
    pool.submit(*(record(offset, f"key-{offset}") for offset in range(8)))
    assert pool.calls == [[0, 1, 2], [3, 4, 5]]
    assert pool.running() == [0, 1, 2, 3, 4, 5]
    assert pool.answer(1) == [("SliceEnded", 3), ("SliceEnded", 4), ("SliceEnded", 5)]
    assert pool.calls[2:] == [[6, 7]]


def test_a_key_is_in_one_call_at_a_time_and_what_comes_meanwhile_waits_behind_it(
    bench: Make,
) -> None:
    pool = bench(10)
    pool.submit(record(0, "a"), record(1, "b"), record(2, "a"))
    pool.submit(record(3, "a"), record(4, "c"), record(5, "a"))
    assert pool.calls == [[0, 1, 2], [4]]
    pool.answer(0)
    assert pool.calls == [[0, 1, 2], [4], [3, 5]]


def test_a_key_with_more_than_a_call_takes_goes_on_in_the_next_one(bench: Make) -> None:
    pool = bench(2)
    pool.submit(*(record(offset, "a") for offset in range(3)), record(3, "b"))
    assert pool.calls == [[0, 1], [3]]
    pool.answer(0)
    assert pool.calls == [[0, 1], [3], [2]]


def test_what_has_no_key_is_in_any_call(bench: Make) -> None:
    pool = bench(2)
    pool.submit(*(record(offset, None) for offset in range(5)))
    assert pool.calls == [[0, 1], [2, 3], [4]]


def test_with_same_key_each_call_has_one_key(bench: Make) -> None:
    pool = bench(2, same_key=True, wait=10.0)
    pool.submit(record(0, "a"), record(1, "b"), record(2, "b"), record(3, "b"), record(4, None))
    assert pool.calls == [[1, 2]], "b has as many as a call has"
    pool.submit(record(5, None))
    assert pool.calls == [[1, 2], [4, 5]], "what has no key counts as one"
    pool.now = 10.0
    pool.answer(0)
    assert pool.calls[2:] == [[3], [0]], "what has waited for its time, also behind a call"


def test_a_call_waits_for_its_size_or_for_the_time_since_its_first_record(bench: Make) -> None:
    pool = bench(3, wait=10.0)
    pool.submit(record(0, "a"))
    pool.now = 9.0
    pool.submit(record(1, "b"))
    assert pool.calls == []
    pool.now = 10.0
    pool.submit()
    pool.pool.resize(5)
    pool.host.turn()
    assert pool.calls == [[0, 1]]
    pool.submit(*(record(offset, f"c{offset}") for offset in range(2, 6)))
    assert pool.calls[1:] == [[2, 3, 4]]


def test_the_time_of_a_call_comes_by_itself(bench: Make) -> None:
    """On a real loop, with nothing else to wake it."""
    pool = bench(3, wait=0.01)
    pool.submit(record(0, "a"))
    assert pool.calls == []
    pool.now = 0.01

    async def called() -> None:
        while not pool.calls:
            await asyncio.sleep(0.001)

    pool.host.loop.run_until_complete(asyncio.wait_for(called(), WAIT))
    assert pool.calls == [[0]]


def test_each_record_has_its_own_verdict_and_behind_one_not_settled_its_key_comes_back(
    bench: Make,
) -> None:
    pool = bench()
    #  a0  b1*  a2*  b3  c4~  a5, and while the call runs b6 and c7
    keys = dict(enumerate("abab")) | {4: "c", 5: "a"}
    pool.submit(*(record(offset, key) for offset, key in keys.items()))
    pool.submit(record(6, "b"), record(7, "c"))
    said = pool.answer(0, [None, Retry(after=5), ValueError("no"), None, Drop(), None])
    assert said == [
        ("SliceEnded", 0),
        *(("Failed", 1), ("SliceEnded", 1), ("Failed", 2), ("SliceEnded", 2)),
        *(("SetAside", 3), ("SliceEnded", 3), ("SliceEnded", 4)),
        *(("SetAside", 5), ("SliceEnded", 5), ("SetAside", 6), ("SliceEnded", 6)),
    ]
    assert pool.calls[1:] == [[7]], "of c nothing has failed"


def test_of_a_failed_key_nothing_more_runs_until_its_fence(bench: Make) -> None:
    pool = bench()
    pool.submit(record(0, "a"), record(1, "b"))
    pool.answer(0, [DeadLetter("no"), None])
    pool.submit(record(2, "a"), record(3, "b"))
    assert pool.heard() == [("SetAside", 2), ("SliceEnded", 2)]
    assert pool.calls[1:] == [[3]]
    pool.pool.fence(Fence(*WORKER, (lane_of(record(2, "a")),)))
    pool.host.turn()
    pool.said.clear()
    pool.submit(record(2, "a"))
    assert pool.calls[2:] == [[2]]


def test_a_call_that_fails_is_an_attempt_of_none_and_each_of_its_records_runs_alone(
    bench: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pool = bench(limit=2)
    slices = pool.submit(record(0, "a"), record(1, "b"), record(2, "b"), record(3, "c"))
    spoilt: Any = slices[0].records[0]
    spoilt.set_value(b"spoilt")
    assert pool.answer(0, ValueError("no")) == []
    assert spoilt.value() != b"spoilt", "it is what it was"
    (line,) = [each for each in caplog.records if each.name.startswith("kafka_keyshared")]
    said = "a call with 4 records failed (ValueError: no), so each is handled alone"
    assert line.getMessage() == f"worker-0: {said}"
    assert vars(line)["worker"] == "worker-0"
    pool.submit(record(4, "c"), record(5, "d"))
    assert pool.calls[1:] == [[0], [5]], "c is the first call's until it is over"
    assert pool.running() == [0, 5]
    assert pool.answer(1) == [("SliceEnded", 0)]
    assert pool.answer(3, ValueError("no")) == [
        *(("Failed", 1), ("SliceEnded", 1)),
        *(("SetAside", 2), ("SliceEnded", 2)),
    ]
    assert pool.answer(4) == [("SliceEnded", 3)]
    assert pool.calls[1:] == [[0], [5], [1], [3], [4]]


def test_a_single_verdict_is_one_for_all_and_splits_nothing(bench: Make) -> None:
    pool = bench()
    pool.submit(record(0, "a"), record(1, "b"))
    assert [kind for kind, _ in pool.answer(0, Retry(after=1))] == ["Failed", "SliceEnded"] * 2
    assert pool.calls == [[0, 1]]


def test_what_waits_is_taken_back_and_what_runs_is_not(bench: Make) -> None:
    pool = bench(2, limit=1)
    zero, *_ = pool.submit(record(0, "a"), record(1, "b"))
    two, three, _ = pool.submit(record(2, "b"), record(3, "c"), record(4, "d"))
    assert pool.recall(zero, two, three) == [2, 3]
    assert pool.recall() == [4]
    assert pool.recall() == []
    pool.answer(0)
    assert pool.calls == [[0, 1]]


def test_what_waits_to_run_alone_is_taken_back(bench: Make) -> None:
    pool = bench()
    _, one, _ = pool.submit(record(0, "a"), record(1, "b"), record(2, "a"))
    pool.answer(0, ValueError("no"))
    assert pool.recall(one) == [1]
    assert pool.recall() == [2]
    pool.answer(1)
    assert pool.calls == [[0, 1, 2], [0]]


def test_who_has_asked_back_what_had_not_started_waits_for_what_then_runs_alone(
    bench: Make,
) -> None:
    """At a revoke it would be forgotten, run all the same, and run again at the next member."""
    pool = bench()
    pool.submit(record(0, "a"), record(1, "b"))
    assert pool.recall() == []
    pool.answer(0, ValueError("no"))
    assert pool.running() == [0, 1], "1 waits to run alone"
    pool.answer(1)
    assert pool.running() == [1]
    pool.answer(2)
    assert pool.running() == []


def test_a_call_past_its_time_is_cancelled_and_each_of_its_records_has_its_time_alone(
    bench: Make,
) -> None:
    """Nobody can say which of them it was: one that hangs takes nobody along."""
    pool = bench()
    zero, one = pool.submit(record(0, "a"), record(1, "b"))
    pool.now = 60.0
    assert pool.time_out(zero, one).stuck == ()
    assert pool.calls == [[0, 1], [0]]
    assert pool.heard() == []
    pool.now = 61.0
    assert pool.time_out(zero).stuck == (), "who asks saw it run since the call before"
    assert pool.answer(1) == [("SliceEnded", 0)]
    assert pool.calls[2:] == [[1]]
    pool.now = 121.0
    pool.time_out(one)
    failed = pool.said[0]
    assert isinstance(failed, Failed)
    assert failed.failure.timed_out
    assert "ack timeout" in failed.failure.message
    assert pool.heard() == [("Failed", 1), ("SliceEnded", 1)]


def test_a_call_that_does_not_heed_is_stuck_and_others_go_on_beside_it(bench: Make) -> None:
    pool = bench(3, limit=1)
    pool.heeds = False
    slices = pool.submit(record(0, "a"), record(1, "b"), record(2, "b"))
    (waits,) = pool.submit(record(3, "c"))
    assert pool.time_out(*slices).stuck == ()
    answer = pool.time_out(*slices)
    assert [id_ for id_, _ in answer.slices] == [slices[2].id, waits.id], "b's second is back"
    assert [(each.slice, each.goes_on) for each in answer.stuck] == [
        (slices[0].id, True),
        (slices[1].id, True),
    ]
    assert pool.time_out(*slices).stuck == (), "and that is said once"
    pool.submit(record(4, "d"))
    assert pool.calls == [[0, 1, 2], [4]]
    said = pool.answer(0, [None, ValueError("no"), None])
    assert said == [("SliceEnded", 0), ("Failed", 1), ("SliceEnded", 1)]


def test_a_call_that_somebody_cancels_before_it_begins_has_failed(bench: Make) -> None:
    pool = bench()
    slice_ = slice_of(record(0, "a"))
    pool._slices[slice_.id] = 0
    pool.pool.submit(slice_)
    pool.host.turn(1)
    for task in asyncio.all_tasks(pool.host.loop):
        task.cancel()
    pool.host.turn()
    assert pool.calls == []
    assert pool.heard() == [("Failed", 0), ("SliceEnded", 0)]
    pool.pool.fence(Fence(*WORKER, (lane_of(record(0, "a")),)))
    pool.submit(record(1, "a"))
    assert pool.calls == [[1]], "and its key is free"


def test_each_call_has_the_context_of_the_start_and_each_record_its_own_lease(
    bench: Make,
) -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    seen: list[int] = []
    leases: list[Any] = []

    async def handle(records: Sequence[Any]) -> None:
        seen.append(variable.get())
        variable.set(1)
        leases.extend(await asyncio.gather(*(asyncio.to_thread(lease_of, e) for e in records)))

    pool = bench(2, handler=handle)
    one, two = record(1, "a"), record(2, "b")
    slices = pool.submit(one, two)
    pool.submit(record(3, "a"), record(4, "c"))

    async def asked() -> None:
        while len(leases) < 4:
            await asyncio.sleep(0.001)

    pool.host.loop.run_until_complete(asyncio.wait_for(asked(), WAIT))
    assert len(seen) > 1 and not any(seen)
    assert {each.worker for each in leases} == {"worker-0"}
    assert not leases[0].over()
    pool.pool.lapse(Lapse(*WORKER, (slices[0].id,), frozenset({partition_of(one)})))


class Keeper:
    """A handler class whose state is what it was called with."""

    made: list[Keeper] = []  # noqa: RUF012 - the only one of the test

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.closed = False
        self.made.append(self)

    async def handle(self, records: Sequence[Any]) -> None:
        self.seen += [each.offset() for each in records]

    def release(self, slots: Sequence[int]) -> list[int]:
        return [*self.seen]

    def adopt(self, slots: Sequence[int], state: Any) -> None:
        self.seen += state

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True


def test_state_is_given_up_behind_all_that_waits_and_taken_over_before_it(bench: Make) -> None:
    pool = bench(10, wait=3_000.0, handler=Keeper)
    pool.pool.adopt(Adopt(*WORKER, (1,), [100]))
    pool.submit(record(0, "a"), record(1, "b"))
    pool.pool.release(Release(*WORKER, 7, (1,)))
    pool.host.turn()
    released = pool.said.pop()
    assert isinstance(released, Released)
    assert released.state == [100, 0, 1], "and nothing waits for more any longer"
    assert pool.heard() == [("SliceEnded", 0), ("SliceEnded", 1)]
    pool.pool.end(*WORKER)
    pool.host.turn()
    assert Keeper.made.pop().closed


def test_a_stop_starts_nothing_of_what_waits(bench: Make) -> None:
    pool = bench(1, limit=1)
    pool.submit(record(0, "a"), record(1, "b"))
    assert pool.pool.stop(0.0) == ["worker-0"]
    pool.answer(0)
    assert pool.pool.stop(0.0) == []
    assert pool.calls == [[0]]


def test_who_quits_cancels_what_runs_and_starts_nothing_alone(bench: Make) -> None:
    pool = bench()
    pool.submit(record(0, "a"), record(1, "b"))
    pool.host.loop.run_until_complete(pool.pool.quit())
    pool.host.turn()
    assert pool.calls == [[0, 1]]
    assert pool.heard() == [("Failed", 0), ("SliceEnded", 0), ("Failed", 1), ("SliceEnded", 1)]


def test_a_new_loop_goes_on_behind_what_ran_on_one_that_has_ended(bench: Make) -> None:
    pool = bench()
    pool.submit(record(0, "a"), record(1, "b"), record(2, "b"), record(3, None))
    pool.answer(0, ValueError("no"))
    pool.submit(record(4, "b"))
    assert pool.running() == [0]
    pool.host.alive = False
    assert pool.pool.dead() == [WORKER]
    for _ in range(2):
        pool.pool.workers[WORKER].lose()
    assert pool.heard() == [("Failed", 0), ("SliceEnded", 0)]
    pool.pool.replace(*WORKER)
    pool.host.turn()
    assert pool.heard() == []
    assert sorted(pool.calls[-1]) == [1, 2, 3, 4]


def test_where_a_call_stands_is_told_for_each_of_its_records(bench: Make) -> None:
    pool = bench(2)
    slices = pool.submit(record(0, "a"), record(1, "b"))
    places = {pool.pool.where(*WORKER, each.id, 0) for each in slices}
    assert len(places) == 1 and places.pop().startswith("at ")


def test_what_a_call_leaves_on_its_task_reaches_none_of_those_that_run_alone_behind_it(
    bench: Make,
) -> None:
    cancelling = []

    async def handle(records: Sequence[Any]) -> None:
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        cancelling.append((len(records), task.cancelling(), task.get_name() == "mine"))
        task.cancel()
        task.set_name("mine")
        if len(records) > 1:
            raise ValueError("one of them")

    pool = bench(3, handler=handle)
    pool.submit(*(record(offset, "a") for offset in range(3)))
    pool.host.turn()
    assert cancelling == [(3, 0, False), *[(1, 0, False)] * 3]
    assert pool.heard() == [("SliceEnded", 0), ("SliceEnded", 1), ("SliceEnded", 2)]
