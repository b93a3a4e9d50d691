"""The pool of batches: what goes into a call, when, and what becomes of each of its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared import lease_of
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Adopt, Fence, Recall, Release, TimeOut
from kafka_keyshared.core.contract.events import (
    Failed,
    FencePassed,
    Recalled,
    Released,
)
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.records.lane_identity import lane_of
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.batches.batch_reports import CallReports
from kafka_keyshared.executors.batches.pool import BatchPool
from kafka_keyshared.executors.handling.batching import BatchRule
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.model import Ack, DeadLetter, Drop, Retry
from tests.support.records import FakeRecord, record
from tests.support.slices import slice_of

WAIT = 30.0
WORKER = ("default", 0)


class Bench:
    """A pool of one worker; its handler waits until the test lets it look at what has come."""

    def __init__(self, handler: Any, rule: BatchRule, *, one_thread: bool = False) -> None:
        self.mailbox: SimpleQueue[Any] = SimpleQueue()
        self.now = 0.0
        spec = WorkerSpec(*WORKER, "worker-0", maker(handler), one_thread=one_thread)
        self.pool = BatchPool([spec], self.mailbox, Clock(monotonic=lambda: self.now), rule)
        self.slices: dict[int, int] = {}

    def submit(self, *records: FakeRecord) -> list[Slice]:
        made = [slice_of(each) for each in records]
        for slice_, each in zip(made, records, strict=True):
            self.slices[slice_.id] = each.offset()
            self.pool.submit(slice_)
        return made

    def until_ended(self, count: int) -> list[tuple[str, int]]:
        """What is said until so many slices have ended: the kind of it, and the offset."""
        found: list[tuple[str, int]] = []
        while sum(kind == "SliceEnded" for kind, _ in found) < count:
            found.append(self.named(self.mailbox.get(timeout=WAIT)))
        return found

    def named(self, said: Any) -> tuple[str, int]:
        return type(said).__name__, self.slices[said.slice]


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(handler: Any, size: int = 10, wait: float = 0.0, **options: Any) -> Bench:
        same_key = options.pop("same_key", False)
        made.append(Bench(handler, BatchRule(size, wait, same_key), **options))
        made[-1].pool.start()
        return made[-1]

    yield make
    for each in made:
        assert each.pool.stop(WAIT) == []


class Gated:
    """A handler that notes its calls, and waits in the first one until the test lets it go on."""

    def __init__(self, answer: Callable[[Sequence[Any]], Any] = lambda records: None) -> None:
        self.calls: list[list[int]] = []
        self.started, self.go = threading.Event(), threading.Event()
        self.answer = answer

    def __call__(self, records: Sequence[Any]) -> Any:
        self.calls.append([each.offset() for each in records])
        self.started.set()
        assert self.go.wait(WAIT)
        return self.answer(records)


def held(bench: Callable[..., Bench], gated: Gated, *args: Any, **options: Any) -> Bench:
    """A bench whose worker is in its first call, with record 0."""
    made = bench(gated, *args, **options)
    made.submit(record(0, "first"))
    if not options.get("wait"):
        assert gated.started.wait(WAIT)
    return made


def test_a_call_has_what_waits_up_to_its_size_and_in_order(bench: Callable[..., Bench]) -> None:
    gated = Gated()
    pool = held(bench, gated, 3)
    pool.submit(*(record(offset, "abc"[offset % 3]) for offset in range(1, 6)))
    gated.go.set()
    pool.until_ended(6)
    assert gated.calls == [[0], [1, 2, 3], [4, 5]]


def test_a_call_waits_for_its_size_or_for_the_time_since_its_first_record() -> None:
    gated = Gated()
    gated.go.set()
    pool = Bench(gated, BatchRule(3, wait=10.0))
    (cell,) = pool.pool.cells.values()
    pool.submit(record(0, "a"))
    assert cell._due() == ([], 10.0)
    pool.now = 9.0
    pool.submit(record(1, "b"))
    assert cell._due() == ([], 1.0)
    pool.now = 10.0
    batch, _ = cell._due()
    assert [each.slice.records[0].offset() for each in batch] == [0, 1]
    pool.submit(*(record(offset, "c") for offset in range(2, 6)))
    batch, _ = cell._due()
    assert [each.slice.records[0].offset() for each in batch] == [2, 3, 4]
    assert cell._due() == ([], 10.0)


def test_with_same_key_a_call_has_one_key_and_each_key_is_counted_alone() -> None:
    pool = Bench(Gated(), BatchRule(2, wait=10.0, same_key=True))
    (cell,) = pool.pool.cells.values()

    def due() -> list[int]:
        return [each.slice.records[0].offset() for each in cell._due()[0]]

    pool.submit(record(0, "a"), record(1, "b"), record(2, "c"), record(3, "b"), record(4, "b"))
    assert due() == [1, 3], "b has as many as a call has"
    assert due() == []
    pool.now = 10.0
    assert [due(), due(), due()] == [[0], [2], [4]]


def test_each_record_has_its_own_verdict_and_behind_one_not_settled_its_key_comes_back(
    bench: Callable[..., Bench],
) -> None:
    verdicts = {1: None, 2: Retry(after=5), 3: Drop(), 4: Ack(), 5: ValueError("no"), 6: None}
    gated = Gated(lambda records: [verdicts.get(each.offset()) for each in records])
    pool = held(bench, gated, 10)
    #                a1 b2* c3 b4 d5* a6, and behind them, not in the call, b7 and a8
    keys = {1: "a", 2: "b", 3: "c", 4: "b", 5: "d", 6: "a"}
    pool.submit(*(record(offset, key) for offset, key in keys.items()))
    gated.go.set()
    said = pool.until_ended(7)[1:]
    assert said == [
        ("SliceEnded", 1),
        ("Failed", 2),
        ("SliceEnded", 2),
        ("SliceEnded", 3),
        ("SetAside", 4),
        ("SliceEnded", 4),
        ("Failed", 5),
        ("SliceEnded", 5),
        ("SliceEnded", 6),
    ]


def test_of_a_failed_key_nothing_more_runs_until_its_fence(bench: Callable[..., Bench]) -> None:
    fails = {1}
    gated = Gated(lambda records: [Retry() if e.offset() in fails else None for e in records])
    pool = held(bench, gated, 2)
    pool.submit(record(1, "a"), record(2, "b"), record(3, "a"), record(4, "b"))
    gated.go.set()
    said = pool.until_ended(5)
    assert said.index(("Failed", 1)) < said.index(("SetAside", 3))
    pool.submit(record(5, "a"))
    assert pool.until_ended(1) == [("SetAside", 5), ("SliceEnded", 5)]
    fence = Fence(*WORKER, (lane_of(record(5, "a")),))
    pool.pool.fence(fence)
    assert isinstance(pool.mailbox.get(timeout=WAIT), FencePassed)
    pool.submit(record(5, "a"))
    assert pool.until_ended(1) == [("SliceEnded", 5)]
    assert gated.calls == [[0], [1, 2], [4], [5]]


@pytest.mark.parametrize("raised", [True, False])
@pytest.mark.parametrize(
    ("verdict", "kinds"),
    [
        (Drop(), ["SliceEnded", "SliceEnded", "SliceEnded"]),
        (Ack(), ["SliceEnded", "SliceEnded", "SliceEnded"]),
        (
            DeadLetter("no"),
            ["Failed", "SliceEnded", "Failed", "SliceEnded", "SetAside", "SliceEnded"],
        ),
        (
            Retry(after=1),
            ["Failed", "SliceEnded", "Failed", "SliceEnded", "SetAside", "SliceEnded"],
        ),
    ],
)
def test_a_single_verdict_is_one_for_all(
    bench: Callable[..., Bench], verdict: Any, kinds: list[str], raised: bool
) -> None:
    def answer(records: Sequence[Any]) -> Any:
        if len(records) == 1:
            return None
        if raised:
            raise verdict
        return verdict

    gated = Gated(answer)
    pool = held(bench, gated)
    pool.submit(record(1, "a"), record(2, "b"), record(3, "a"))
    gated.go.set()
    assert [kind for kind, _ in pool.until_ended(4)[1:]] == kinds
    assert gated.calls == [[0], [1, 2, 3]]


def test_a_call_that_fails_is_an_attempt_of_none_and_each_of_its_records_runs_alone(
    bench: Callable[..., Bench],
) -> None:
    def answer(records: Sequence[Any]) -> None:
        if any(each.offset() == 2 for each in records):
            for each in records:
                each.set_value(b"spoilt")
            raise ValueError("no")

    gated = Gated(answer)
    pool = held(bench, gated, 4)
    pool.submit(*(record(offset, key) for offset, key in enumerate("abbc", start=1)))
    pool.submit(record(5, "d"))
    gated.go.set()
    said = pool.until_ended(6)[1:]
    assert gated.calls == [[0], [1, 2, 3, 4], [1], [2], [4], [5]]
    assert said[:5] == [
        ("SliceEnded", 1),
        ("Failed", 2),
        ("SliceEnded", 2),
        ("SetAside", 3),
        ("SliceEnded", 3),
    ]


def test_who_has_asked_back_what_had_not_started_waits_for_what_then_runs_alone(
    bench: Callable[..., Bench],
) -> None:
    """At a revoke it would be forgotten, run all the same, and run again at the next member."""
    running: list[list[int]] = []
    calls: list[list[int]] = []

    def handle(records: Sequence[Any]) -> None:
        calls.append([each.offset() for each in records])
        found = pool.pool.progress().items()
        running.append(sorted(pool.slices[id_] for id_, each in found if each.running()))
        if len(records) > 1:
            answer = pool.pool.recall(Recall(*WORKER, None))
            assert [pool.slices[id_] for id_, _ in answer.slices] == []
            raise ValueError("no")

    pool = bench(handle, 2, 60.0)
    pool.submit(record(1, "a"), record(2, "b"))
    assert pool.until_ended(2) == [("SliceEnded", 1), ("SliceEnded", 2)]
    assert calls == [[1, 2], [1], [2]]
    assert running == [[1, 2], [1, 2], [2]]


def test_as_many_verdicts_as_records_or_the_call_has_failed(bench: Callable[..., Bench]) -> None:
    gated = Gated(lambda records: [None] if len(records) > 1 else None)
    pool = held(bench, gated)
    pool.submit(record(1, "a"), record(2, "b"))
    gated.go.set()
    assert pool.until_ended(3) == [("SliceEnded", 0), ("SliceEnded", 1), ("SliceEnded", 2)]
    assert gated.calls == [[0], [1, 2], [1], [2]]


def test_what_is_raised_alone_is_described_as_for_a_single_record(
    bench: Callable[..., Bench],
) -> None:
    gated = Gated(lambda records: 1 / 0)
    pool = held(bench, gated)
    gated.go.set()
    failed = pool.mailbox.get(timeout=WAIT)
    assert isinstance(failed, Failed)
    assert failed.failure.disposition is Disposition.ERROR
    assert failed.failure.error_type == "ZeroDivisionError"


def test_what_waits_is_taken_back_and_what_runs_is_not(bench: Callable[..., Bench]) -> None:
    gated = Gated()
    pool = held(bench, gated)
    one, two, three = pool.submit(record(1, "a"), record(2, "b"), record(3, "a"))
    answer = pool.pool.recall(Recall(*WORKER, {one.id: [0], three.id: [0]}))
    assert [each for each, _ in answer.slices] == [one.id, three.id]
    assert pool.until_ended(2) == [("SliceEnded", 1), ("SliceEnded", 3)]
    progress = {id_: [*each.running()] for id_, each in pool.pool.progress().items()}
    assert sorted(progress.values()) == [[], [0]] and progress[two.id] == []
    gated.go.set()
    pool.until_ended(2)
    assert gated.calls == [[0], [2]]


def test_a_stuck_call_is_stuck_with_all_its_records_and_another_thread_goes_on(
    bench: Callable[..., Bench],
) -> None:
    first = Gated(lambda records: [None, Retry(), records[2].set_value(b"spoilt")])
    later = Gated()
    later.go.set()
    calls = iter([first])

    def handle(records: Sequence[Any]) -> Any:
        return next(calls, later)(records)

    pool = bench(handle, 3, wait=1.0)
    slices = pool.submit(record(0, "a"), record(1, "b"), record(2, "b"))
    assert first.started.wait(WAIT)
    behind = pool.submit(record(3, "c"))
    pool.pool.time_out(TimeOut(*WORKER, ((slices[0].id, 0),)))
    answer = pool.mailbox.get(timeout=WAIT)
    assert isinstance(answer, Recalled)
    assert [each for each, _ in answer.slices] == [slices[2].id, behind[0].id], "b's second is back"
    assert [each.slice for each in answer.stuck] == [slices[0].id, slices[1].id]
    assert all(each.goes_on for each in answer.stuck)
    assert pool.until_ended(2) == [("SliceEnded", 2), ("SliceEnded", 3)]
    pool.now = 5.0
    pool.submit(record(4, "d"), record(5, "e"), record(6, "f"))
    pool.until_ended(3)
    assert later.calls == [[4, 5, 6]]
    first.go.set()
    assert pool.until_ended(2) == [("SliceEnded", 0), ("Failed", 1), ("SliceEnded", 1)]
    assert slices[2].records[0].value() != b"spoilt", "it is what it was, and runs again"
    pool.submit(record(7, "b"), record(8, "b"), record(9, "b"))
    pool.until_ended(3)
    assert later.calls[1:] == [[7, 8, 9]], "the core closes the lane of what is stuck, not we"


def test_where_nobody_may_go_on_the_worker_waits_for_its_stuck_call(
    bench: Callable[..., Bench],
) -> None:
    gated = Gated()
    pool = held(bench, gated, one_thread=True)
    (slice_id,) = pool.slices
    pool.pool.time_out(TimeOut(*WORKER, ((slice_id, 0),)))
    answer = pool.mailbox.get(timeout=WAIT)
    assert [each.goes_on for each in answer.stuck] == [False]
    gated.go.set()
    pool.until_ended(1)
    pool.pool.time_out(TimeOut(*WORKER, ((slice_id, 0),)))
    assert pool.mailbox.get(timeout=WAIT).stuck == []


class Keeper:
    """A handler class whose state is what it was called with."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.closed = False

    def handle(self, records: Sequence[Any]) -> None:
        self.seen += [each.offset() for each in records]

    def release(self, slots: Sequence[int]) -> list[int]:
        return [*self.seen]

    def adopt(self, slots: Sequence[int], state: Any) -> None:
        self.seen += state


def test_state_is_given_up_behind_all_that_waits_and_taken_over_before_it(
    bench: Callable[..., Bench],
) -> None:
    pool = bench(Keeper, 10, wait=3_000.0)
    pool.pool.adopt(Adopt(*WORKER, (1,), [100]))
    pool.submit(record(0, "a"), record(1, "b"))
    pool.pool.release(Release(*WORKER, 7, (1,)))
    assert pool.until_ended(2) == [("SliceEnded", 0), ("SliceEnded", 1)]
    released = pool.mailbox.get(timeout=WAIT)
    assert isinstance(released, Released)
    assert released.state == [100, 0, 1]


def test_each_record_of_a_call_has_its_own_lease(bench: Callable[..., Bench]) -> None:
    found: list[Any] = []

    def handle(records: Sequence[Any]) -> None:
        found.extend(lease_of(each) for each in records)
        with pytest.raises(KeySharedError):
            lease_of(record(99, "z"))

    pool = bench(handle, 2, wait=3_000.0)
    pool.submit(record(1, "a"), record(2, "b"))
    pool.until_ended(2)
    assert [each.worker for each in found] == ["worker-0"] * 2
    assert not found[0].over()


def test_a_stop_starts_nothing_of_what_waits(bench: Callable[..., Bench]) -> None:
    gated = Gated()
    pool = held(bench, gated)
    pool.submit(record(1, "a"))
    assert pool.pool.stop(0.0) == ["worker-0"]
    gated.go.set()
    assert pool.pool.stop(WAIT) == []
    assert gated.calls == [[0]]


class Broken:
    def __init__(self) -> None:
        raise OSError("no disk")

    def handle(self, records: Any) -> None: ...


def test_a_handler_that_cannot_be_made_is_told_at_the_start() -> None:
    with pytest.raises(ConfigError, match="worker-0 could not be made: OSError: no disk"):
        Bench(Broken, BatchRule(3)).pool.start()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_a_thread_ran_that_has_ended_has_failed_once_and_another_goes_on(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = Gated()
    pool = held(bench, gated)
    described = CallReports.described

    def dies(*_: Any) -> Any:
        monkeypatch.setattr(CallReports, "described", described)
        raise SystemExit

    monkeypatch.setattr(CallReports, "described", dies)
    pool.submit(record(1, "a"), record(2, "a"))
    gated.go.set()
    (cell,) = pool.pool.cells.values()
    assert cell.thread is not None
    cell.thread.join(WAIT)
    assert pool.pool.dead() == [WORKER]
    pool.pool.replace(*WORKER)
    said = pool.until_ended(3)
    assert said == [("Failed", 0), ("SliceEnded", 0), ("SliceEnded", 1), ("SliceEnded", 2)]
    assert gated.calls == [[0], [1, 2]]
