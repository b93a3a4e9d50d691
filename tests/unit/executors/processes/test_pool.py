"""The pool of processes: what a process that dies or hangs costs, and what crosses the pipe."""

from __future__ import annotations

import errno
import functools
import gc
import os
import pickle
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ClassVar

import pytest

from kafka_keyshared import lease_of
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import (
    Adopt,
    Lapse,
    Recall,
    Release,
    StartWorker,
    TimeOut,
)
from kafka_keyshared.core.contract.events import Failed, Recalled, Released, SliceEnded
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.decoding import Making
from kafka_keyshared.executors.processes.pool import STARTS, ProcessPool
from kafka_keyshared.executors.processes.shm_values import KEPT, LARGE, Segment
from kafka_keyshared.executors.processes.wire_records import columns_of
from kafka_keyshared.executors.processes.worker_process import HandlerRaisedError
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.headers import NOT_UTF_8, UnreadableHeaders, headers_of_all
from kafka_keyshared.model import Drop, Retry
from kafka_keyshared.testing.records import record as message
from tests.conftest import Eventually
from tests.support.handler_pipe import PLACE, Told, tell, wait_for_go
from tests.support.records import P0, FakeRecord
from tests.support.slices import slice_of

WAIT = 60.0
WORKER = ("default", 0)


def hang() -> None:
    threading.Event().wait()


GARBAGE = {
    "text": b"what somebody else would have liked to read\n",
    "a length": (16).to_bytes(4, "big"),
    "negative": b"\xff" * 64,
    "zeros": bytes(64),
}
"""What a handler writes, by the word that has it do so."""


def garble(text: bytes) -> None:
    """Write into whatever this process has open, but for what multiprocessing tracks it by.

    That belongs to the process of the tests: others in it would go without their tracker.
    """
    tracked = resource_tracker._resource_tracker._fd  # type: ignore[attr-defined]
    for descriptor in sorted(int(each.name) for each in Path("/proc/self/fd").iterdir()):
        if descriptor > 2 and descriptor != tracked:
            with suppress(OSError):
                os.write(descriptor, text)


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("x" * 100_000, lambda: None)


def harm(word: str) -> None:
    """Do what no handler should do, if the word says so."""
    if word == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        waits = [sys.executable, "-c", "input()"]
        tell("child", subprocess.Popen(waits, stdin=subprocess.PIPE).pid)
        hang()
    if word == "hold":
        re.match("(a+)+$", "a" * 60 + "b")  # years, in which no other thread of the process runs
    if word in GARBAGE:
        garble(GARBAGE[word])
    if word == "garble and hang":
        garble(GARBAGE["text"])
        hang()


def handle(record: Any) -> Any:
    """Do what the record says."""
    tell(record.offset())
    word = (record.value() or b"").decode()
    if word == "exit":
        os._exit(7)
    if word.startswith("SIG"):
        os.kill(os.getpid(), getattr(signal, word))
        hang()
    if word == "hang":
        hang()
    harm(word)
    if word == "fail":
        raise ValueError("on purpose")
    if word == "unpicklable":
        raise UnpicklableError
    if word == "drop":
        return Drop()
    if word == "retry":
        return Retry(after=2.5)
    if word == "fork":
        pid = os.fork()
        if pid:
            tell("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    if word == "group":
        tell("group", os.getpgid(0) == os.getpid())
        os.killpg(os.getpgid(os.getppid()), 0)
    if word == "lease":
        lease = lease_of(record)
        tell("lease", lease.worker, lease.epoch, lease.over())
        wait_for_go()
        tell("over", lease.over())
    return None


class Counting:
    """A handler class with state."""

    state: ClassVar[Any] = None

    def __init__(self) -> None:
        self.counts: dict[Any, int] = {}
        tell("made")

    def handle(self, record: Any) -> None:
        self.counts[record.key()] = self.counts.get(record.key(), 0) + 1
        tell(record.key().decode(), self.counts[record.key()])

    def release(self, slots: Any) -> Any:
        if 7 in slots:
            return lambda: None
        return self.counts

    def adopt(self, slots: Any, state: Any) -> None:
        del slots
        self.counts |= state

    def close(self) -> None:
        tell("closed")


class Broken:
    """Cannot be made; or cannot any more, where there is this file."""

    def __init__(self) -> None:
        if not (at := os.environ.get("FAILS_AT")) or Path(at).exists():
            raise RuntimeError("no database")

    def handle(self, record: Any) -> None:
        Path(os.environ["FAILS_AT"]).touch()
        os._exit(7)


class Clinging:
    """Does not end when it is closed."""

    def handle(self, record: Any) -> None: ...

    def close(self) -> None:
        hang()


class Bench:
    """A pool of one worker, its mailbox, and what the handler has told."""

    def __init__(self, handler: Any, told: Told) -> None:
        self.told = told
        self.mailbox: SimpleQueue[Any] = SimpleQueue()
        self.pool = ProcessPool(
            [WorkerSpec(*WORKER, "worker-0", Making(handler))], self.mailbox, Clock()
        )
        self.pool.start()

    def submit(self, *values: str, first: int = 0, epoch: int = 0) -> int:
        """Give the worker a slice; each record has a key of its own."""
        records = [
            message(f"key-{offset}", value, topic="orders", offset=offset)
            for offset, value in enumerate(values, first)
        ]
        slice_ = slice_of(*records, epoch=epoch)
        self.pool.submit(slice_)
        return slice_.id

    def until(self, wanted: type[Any], count: int = 1) -> list[Any]:
        """Return what is said up to so many of a kind."""
        found: list[Any] = []
        while sum(isinstance(each, wanted) for each in found) < count:
            found.append(self.mailbox.get(timeout=WAIT))
        return found

    def run(self, *values: str) -> list[Any]:
        self.submit(*values)
        return self.until(SliceEnded)

    def gone(self) -> None:
        """Wait until the worker's process and its thread have ended."""
        thread = self.pool.cells[WORKER].thread
        assert thread is not None
        thread.join(WAIT)
        assert self.pool.dead() == [WORKER]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setenv(PLACE, str(tmp_path / "told"))
    found = Told(tmp_path / "told")
    yield found
    found.close()


@pytest.fixture
def bench(told: Told) -> Iterator[Bench]:
    found = Bench(handle, told)
    yield found
    for cell in found.pool.cells.values():
        if cell.lives() and cell.current is not None:
            cell.process.kill()  # type: ignore[attr-defined]
    found.pool.stop(WAIT)


# --- a process that ends ---


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", "exit status 7"),
        ("SIGSEGV", "SIGSEGV"),
        ("SIGKILL", "SIGKILL (by the system, where memory is short)"),
    ],
)
def test_a_process_that_dies_fails_the_record_that_it_was_in_and_no_other(
    bench: Bench, how: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = bench.submit("", "", how, "")
    later = bench.submit("", first=4)
    (failed,) = bench.until(Failed)
    assert (failed.slice, failed.index) == (id_, 2)
    ended = f"the worker's process ended while it was running: {said}"
    assert failed.failure.message == ended
    bench.gone()
    assert f"worker-0: {ended}; another one is started" in caplog.text
    assert "worker-0" in [vars(line).get("worker") for line in caplog.records]
    bench.pool.replace(*WORKER)
    assert [each.slice for each in bench.until(SliceEnded, 2)] == [id_, later]
    assert bench.told.lines() == ["0", "1", "2", "3", "4"]


def test_a_death_is_reported_within_a_second_and_nobody_has_to_ask(bench: Bench) -> None:
    took = []
    for offset in range(5):  # on a machine that is busy one of them may wait for its turn
        bench.submit("hang", first=offset)
        bench.told.until(str(offset))
        process = bench.pool.cells[WORKER].process  # type: ignore[attr-defined]
        killed = time.monotonic()
        os.kill(process.pid, signal.SIGKILL)
        bench.until(Failed)
        took.append(time.monotonic() - killed)
        bench.gone()
        bench.pool.replace(*WORKER)
        bench.until(SliceEnded)
        if took[-1] < 1.0:
            break
    assert min(took) < 1.0
    assert BEAT_SECONDS < 1.0, "so long at most until somebody goes on in its place"


def test_a_process_that_is_killed_keeps_no_other_one_waiting(bench: Bench) -> None:
    """They have a pipe each: there is nothing that one could hold on to."""
    bench.pool.add(StartWorker("default", 1, "worker-1"))
    bench.submit("hang")
    bench.told.until("0")
    bench.pool.cells[WORKER].process.kill()  # type: ignore[attr-defined]
    bench.gone()
    slices = [slice_of(message("b", offset=offset), worker=1) for offset in range(1, 4)]
    for each in slices:
        bench.pool.submit(each)
    ended = [each.slice for each in bench.until(SliceEnded, 3) if isinstance(each, SliceEnded)]
    assert ended == [each.id for each in slices]
    assert bench.told.lines() == ["0", "1", "2", "3"]


def test_a_process_that_dies_between_records_fails_none(bench: Bench) -> None:
    bench.run("")
    bench.pool.cells[WORKER].process.kill()  # type: ignore[attr-defined]
    id_ = bench.submit("", first=1)
    bench.gone()
    bench.pool.replace(*WORKER)
    (ended,) = bench.until(SliceEnded)
    assert (ended.slice, ended.dropped) == (id_, [])
    assert bench.told.lines() == ["0", "1"]


def test_a_record_past_its_time_is_ended_with_its_process_and_the_rest_goes_on(
    bench: Bench,
) -> None:
    id_ = bench.submit("", "hang", "")
    bench.told.until("1")
    bench.pool.time_out(TimeOut(*WORKER, ((id_, 1),)))
    failed, answer, ended = bench.until(SliceEnded)
    assert (failed.index, failed.failure.timed_out) == (1, True)
    assert failed.failure.message == "it ran past the ack timeout, and its process was killed"
    assert answer == Recalled(*WORKER)
    assert ended.slice == id_
    assert bench.told.lines() == ["0", "1", "2"]


def test_a_record_that_has_ended_meanwhile_is_not_ended_with_another_one(bench: Bench) -> None:
    id_ = bench.submit("", "hang")
    bench.told.until("1")
    bench.pool.time_out(TimeOut(*WORKER, ((id_, 0),)))
    assert bench.until(Recalled) == [Recalled(*WORKER)]
    assert list(bench.pool.progress()[id_].running()) == [1]


def test_a_handler_that_hangs_keeps_nothing_behind_it(bench: Bench) -> None:
    """All of it was sent already, and comes back at once."""
    id_ = bench.submit("", "hang", "", "")
    behind = bench.submit("", first=4)
    bench.told.until("1")
    answer = bench.pool.recall(Recall(*WORKER))
    assert [(each, list(back)) for each, back in answer.slices] == [(id_, [2, 3]), (behind, [0])]
    assert list(bench.pool.progress()[id_].running()) == [1]
    bench.pool.time_out(TimeOut(*WORKER, ((id_, 1),)))
    assert [type(each) for each in bench.until(SliceEnded, 2)] == [
        Failed,
        Recalled,
        SliceEnded,
        SliceEnded,
    ]
    assert bench.told.lines() == ["0", "1"]


def test_where_a_handler_hangs_is_known(bench: Bench) -> None:
    id_ = bench.submit("hang")
    bench.told.until("0")
    asked = (bench.pool.where(*WORKER, id_, 0) for _ in range(10_000))  # it may be on its way there
    where = next(each for each in asked if "in wait (threading.py:" in each)
    assert "test_pool.py:" in where


def test_a_worker_whose_process_cannot_be_started_is_dead_until_it_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    id_ = bench.submit("exit", "")
    bench.until(Failed)
    bench.gone()
    with monkeypatch.context() as without:
        without.setattr("sys.executable", "/nowhere")
        without.setattr("multiprocessing.spawn._python_exe", b"/nowhere")
        bench.pool.replace(*WORKER)
        bench.gone()
    bench.pool.replace(*WORKER)
    assert [each.slice for each in bench.until(SliceEnded)] == [id_]
    assert bench.told.lines() == ["0", "1"]


# --- what becomes of a record ---


def test_records_are_what_the_client_shows(told: Told) -> None:
    """And bytes that are no text, a null, an empty value and headers cross the pipe as they are."""
    bench = Bench(show, told)
    sent = [
        message(b"\xff", b"\x00" * 3, headers={"a": b"\xfe", "b": None}, partition=3, offset=8),
        message(None, None, timestamp=5, leader_epoch=7),
        message("", b"x" * 3_000_000),
    ]
    bench.pool.submit(slice_of(*sent))
    bench.until(SliceEnded)
    assert bench.told.lines() == [shown(each) for each in sent]
    assert bench.pool.stop(WAIT) == []


READ = (
    *("topic", "partition", "offset", "key", "headers", "timestamp", "leader_epoch"),
    *("error", "latency", "__len__"),
)


def shown(record: Any) -> str:
    return repr([getattr(record, name)() for name in READ] + [hash(record.value() or b"") == 0])


def test_large_values_cross_beside_the_pipe_and_small_ones_in_it() -> None:
    segment = Segment()
    values = [b"x" * size for size in (LARGE - 1, LARGE, 0, 10 * LARGE)]
    records = [message("a", each) for each in (*values, None)]
    columns = columns_of(records, segment)
    assert columns.large == {1: LARGE, 3: 10 * LARGE}
    assert len(pickle.dumps(columns)) < 2 * LARGE
    assert [each.value() for each in columns.records(segment)] == [*values, None]


def test_large_values_for_which_there_is_no_memory_cross_the_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", full)
    segment, value = Segment(), b"x" * LARGE
    columns = columns_of([message("a", value)], segment)
    assert columns.large == {}
    assert [each.value() for each in columns.records(segment)] == [value]


def test_nothing_of_large_values_is_left_whoever_ends(told: Told) -> None:
    """They have no name that somebody would have to remove, and the memory is given back."""
    gc.collect()  # or what other tests have left goes meanwhile, and its number is given again
    named = set(Path("/dev/shm").iterdir())
    file = lives_with_large_values(told)
    gc.collect()
    assert set(Path("/dev/shm").iterdir()) == named
    assert file not in open_segments()


def lives_with_large_values(told: Told) -> int:
    """Run some, of which one ends the process; return the file that they are in."""
    bench = Bench(ends_at_large, told)
    bench.pool.submit(slice_of(*(message(f"k{at}", b"x" * size) for at, size in enumerate(SIZES))))
    bench.until(Failed)
    bench.gone()
    process = bench.pool.cells[WORKER].process  # type: ignore[attr-defined]
    segment = process.board.shared.values
    assert os.fstat(segment.fd).st_size == KEPT + 1
    bench.pool.replace(*WORKER)
    bench.until(SliceEnded)
    assert os.fstat(segment.fd).st_size == LARGE
    assert bench.told.lines() == [*map(str, SIZES)]
    assert bench.pool.stop(WAIT) == []
    file = os.fstat(segment.fd).st_ino
    assert file in open_segments()
    return file


SIZES = (KEPT + 1, LARGE)


def ends_at_large(record: Any) -> None:
    """End the process at the larger value."""
    tell(len(record.value()))
    if len(record.value()) > KEPT:
        os.kill(os.getpid(), signal.SIGKILL)


def open_segments() -> list[int]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread has closed it meanwhile
            found += [each.stat().st_ino] if "keyshared-values" in str(each.readlink()) else []
    return found


def show(record: Any) -> None:
    record.value()
    tell(shown(record))
    record.set_key(b"other")
    record.set_value(None)
    record.set_headers([])
    assert (record.key(), record.value(), record.headers()) == (b"other", None, [])


def test_headers_that_nobody_can_read_end_only_who_looks_at_them(told: Told) -> None:
    bench = Bench(count_headers, told)
    records = [FakeRecord(P0, offset, b"k%d" % offset) for offset in range(2)]
    records[0].set_headers(UnreadableHeaders())
    bench.pool.submit(slice_of(*records))
    failed, _ = bench.until(SliceEnded)
    assert (failed.index, failed.failure.disposition) == (0, Disposition.DEAD_LETTER)
    assert NOT_UTF_8 in failed.failure.message
    assert bench.told.lines() == ["0"]
    assert bench.pool.stop(WAIT) == []


def test_headers_of_many_that_one_cannot_read_are_told_by_the_first_who_asks() -> None:
    class Torn(FakeRecord):
        """As the client's own: an error at first, and from then on what is no header."""

        asked = 0

        def headers(self) -> Any:
            self.asked += 1
            if self.asked == 1:
                raise SystemError
            return super().headers()

    records = [Torn(P0, 1, b"a"), FakeRecord(P0, 2, b"a"), Torn(P0, 3, b"a")]
    records[1].set_headers([("a", b"b")])
    first, fine, last = headers_of_all(records)
    assert fine == [("a", b"b")]
    assert type(first) is type(last) is UnreadableHeaders
    assert [records[at].headers() is each for at, each in ((0, first), (2, last))] == [True, True]


def count_headers(record: Any) -> None:
    tell(len(record.headers() or []))


def test_verdicts_are_those_of_a_thread(bench: Bench) -> None:
    said = bench.run("", "drop", "retry", "fail", "unpicklable", "drop", "")
    *failures, ended = said
    assert [each.index for each in failures] == [2, 3, 4]
    retry, error, unpicklable = (each.failure for each in failures)
    assert (retry.disposition, retry.after) == (Disposition.RETRY, 2.5)
    assert (error.error_type, error.message) == ("ValueError", "on purpose")
    assert error.where.endswith("test_pool.py:" + error.where.rpartition(":")[2])
    assert 'raise ValueError("on purpose")' in error.stack
    assert unpicklable.error_type == "UnpicklableError"
    assert len(unpicklable.message) <= 2_000
    assert ended.dropped == [1, 5]
    assert bench.told.lines() == ["0", "1", "2", "3", "4", "5", "6"]


def test_the_child_of_a_handler_ends_and_each_record_runs_once(bench: Bench) -> None:
    bench.run("", "fork", "")
    assert bench.told.lines() == ["0", "1", "status 1", "2"]


def test_a_lease_is_known_where_the_handler_is_and_so_is_its_end(bench: Bench) -> None:
    id_ = bench.submit("lease", epoch=5)
    bench.told.until("lease worker-0 5 False")
    bench.pool.lapse(Lapse(*WORKER, (id_,), frozenset({P0})))
    bench.pool.where(*WORKER, id_, 0)  # which is answered behind it
    bench.told.go()
    bench.until(SliceEnded)
    assert bench.told.lines()[-1] == "over True"


def test_a_signal_to_the_group_is_for_the_parent(bench: Bench) -> None:
    bench.run("group")
    assert bench.told.lines() == ["0", "group True"]


# --- a handler class ---


def test_each_worker_has_an_instance_which_is_made_and_closed_in_its_process(told: Told) -> None:
    bench = Bench(Counting, told)
    bench.pool.add(StartWorker("default", 1, "worker-1"))
    bench.run("", "")
    assert bench.pool.stop(WAIT) == []
    assert sorted(bench.told.lines()) == ["closed", "closed", "key-0 1", "key-1 1", "made", "made"]


def test_state_goes_from_one_process_to_another(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(Counting, told)
    bench.run("", "")
    bench.pool.release(Release(*WORKER, 1, (1, 2)))
    (given,) = bench.until(Released)
    assert given.state == {b"key-0": 1, b"key-1": 1}
    bench.pool.adopt(Adopt(*WORKER, (1, 2), given.state))
    bench.run("")
    assert bench.told.lines()[-1] == "key-0 2"
    bench.pool.release(Release(*WORKER, 2, (7,)))
    (broken,) = bench.until(Released)
    assert "pickle" in broken.error
    assert "release() of the handler failed" in caplog.text
    assert bench.pool.stop(WAIT) == []


def test_where_one_handler_cannot_be_made_no_process_of_another_stays(told: Told) -> None:
    makers = (Making(Clinging), Making(Broken))
    specs = [WorkerSpec("default", n, f"worker-{n}", make) for n, make in enumerate(makers)]
    pool = ProcessPool(specs, SimpleQueue(), Clock())
    with pytest.raises(ConfigError, match="of worker-1 could not be made"):
        pool.start()
    assert pool.cells[WORKER].process.ended(WAIT)  # type: ignore[attr-defined]


def test_a_handler_that_cannot_be_made_is_told_with_what_it_said(told: Told) -> None:
    with pytest.raises(ConfigError, match=r"of worker-0 could not be made: .*no database"):
        Bench(Broken, told)


class Dies(Broken):
    """The same, whose process ends as its handler is made."""

    def __init__(self) -> None:
        try:
            super().__init__()
        except RuntimeError:
            os._exit(9)


def test_a_process_that_ends_as_it_starts_five_times_ends_the_instance(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS_AT", str(tmp_path / "broken"))
    bench = Bench(Dies, told)
    bench.submit("")
    for _ in range(STARTS):
        bench.gone()
        bench.pool.beat()
        bench.pool.replace(*WORKER)
    bench.gone()
    said = "the process ended during the start: exit status 9; see its output"
    with pytest.raises(HandlerRaisedError, match=f"in 5 processes, one after the other: {said}"):
        bench.pool.beat()
    assert bench.pool.stop(WAIT) == []


def test_a_handler_that_can_be_made_no_more_ends_the_instance(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS_AT", str(tmp_path / "broken"))
    bench = Bench(Broken, told)
    bench.submit("")
    assert bench.pool.revived() == [WORKER]
    for _ in range(STARTS):
        bench.gone()
        bench.pool.beat()
        bench.pool.replace(*WORKER)
    bench.gone()
    with pytest.raises(HandlerRaisedError, match=r"in 5 processes, .*no database\n.*in __init__"):
        bench.pool.beat()
    assert bench.pool.revived() == [], "it has come to life in none of them"
    assert bench.pool.stop(WAIT) == []


@pytest.mark.parametrize(
    "handler", [lambda record: None, functools.partial(print, threading.Lock())]
)
def test_what_cannot_be_sent_is_refused_by_name(told: Told, handler: Any) -> None:
    with pytest.raises(ConfigError, match=r"cannot be sent to another process: .*workers=16"):
        Bench(handler, told)


# --- a process that writes where it should not ---


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_process_that_overwrites_what_is_not_its_own_ends_alone_and_its_batch_goes_on(
    bench: Bench, garbage: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench.submit("", garbage, "", "fail", "")
    said: list[Any] = []
    while not any(isinstance(each, SliceEnded) for each in said):
        try:
            said.append(bench.mailbox.get(timeout=0.05))
        except Empty:
            for whose in bench.pool.dead():
                bench.pool.replace(*whose)
    failed = [(each.index, each.failure.error_type) for each in said if isinstance(each, Failed)]
    # It may be noticed only when its handler is through.
    assert failed in ([(3, "ValueError")], [(1, "OverwritingError"), (3, "ValueError")])
    assert {int(line) for line in bench.told.lines()} == {*range(5)}
    (line,) = {each.getMessage() for each in caplog.records if each.levelname == "WARNING"}
    assert line.startswith("worker-0: the worker's process ended while it was running: it was kill")
    assert "its handler, or a library of it, writes into file descriptors that are" in line


def test_whoever_asks_where_such_a_process_stands_gets_no_answer_and_no_exception(
    bench: Bench,
) -> None:
    id_ = bench.submit("garble and hang", "")
    bench.told.until("0")
    while not bench.pool.dead():
        bench.pool.where(*WORKER, id_, 0)
    assert bench.mailbox.empty()  # nothing says yet that it was this record
    bench.pool.replace(*WORKER)
    (failed,) = bench.until(Failed)
    assert (failed.index, failed.failure.error_type) == (0, "OverwritingError")


def test_a_process_that_is_stopped_is_asked_once_and_keeps_nobody_waiting(
    bench: Bench, eventually: Eventually
) -> None:
    """A question that it does not read stays in the pipe; a thousand of them would fill it."""
    id_ = bench.submit("SIGSTOP")
    bench.told.until("0")
    process = bench.pool.cells[WORKER].process  # type: ignore[attr-defined]
    state = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", WAIT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kafka_keyshared.executors.processes.worker_process.ANSWERS", 0.001)
        for _ in range(50):
            process.where()
            bench.pool.where(*WORKER, id_, 0)
    assert process._asked == 1
    process.kill()


# --- the end ---


def test_a_stop_kills_what_ignores_sigterm_and_what_that_has_started(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.submit("ignore")
    bench.told.until("0")
    while not (told := [each for each in bench.told.lines() if each.startswith("child")]):
        bench.told.until("0")
    pid = bench.pool.cells[WORKER].process.pid  # type: ignore[attr-defined]
    watched = [os.pidfd_open(each) for each in (pid, int(told[0].split()[1]))]
    assert bench.pool.stop(0.0) == ["worker-0"]
    for each in watched:
        assert select.select([each], [], [], WAIT)[0]
        os.close(each)
    bench.gone()
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == [
        f"worker-0: its process {pid} still ran a record when the stop timeout was over, and was "
        "killed"
    ]
    assert not [each for each in caplog.records if "another one" in each.getMessage()]


def test_a_stop_kills_a_process_that_is_stopped(bench: Bench) -> None:
    bench.submit("SIGSTOP")
    bench.told.until("0")
    assert bench.pool.stop(0.0) == ["worker-0"]
    bench.gone()


# --- the parent ---

PARENT = """
import sys
from queue import Empty, SimpleQueue
from kafka_keyshared.clock import Clock
from kafka_keyshared.executors.handling.decoding import Making
from kafka_keyshared.headers import NOT_UTF_8, UnreadableHeaders
from kafka_keyshared.executors.processes.pool import ProcessPool
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.testing.records import record
from tests.support.slices import slice_of
from tests.support.handler_pipe import PLACE, Told, tell, wait_for_go
from tests.unit.executors.processes.test_pool import handle

pool = ProcessPool([WorkerSpec("default", 0, "worker-0", Making(handle))], SimpleQueue(), Clock())
pool.start()
pool.submit(slice_of(record("a", sys.argv[1])))
print(pool.cells["default", 0].process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("what", ["hang", "ignore", "SIGSTOP", "hold"])
@pytest.mark.parametrize("how", ["killed", "ends"])
def test_a_process_does_not_outlive_its_parent_nor_keep_it(told: Told, how: str, what: str) -> None:
    """Whatever its handler does, and although nobody has stopped the pool."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)  # readable once it has ended
        told.until("0")
        if how == "killed":
            parent.kill()
        else:
            parent.stdin.close()
        parent.wait(WAIT)
        assert select.select([watched], [], [], 20)[0]
    os.close(watched)
