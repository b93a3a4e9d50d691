"""An app whose workers are processes, without a broker."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.cli.audit_log import audit_log
from kafka_keyshared.cli.output_sinks import outputs_to
from kafka_keyshared.cli.run import hand_out, write_down
from kafka_keyshared.core.worker_changes.worker_lifecycle import EVICT_AFTER
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.handling.outputs import JSON, OutputTarget
from kafka_keyshared.executors.processes.pool import STARTS, ProcessPool
from kafka_keyshared.executors.processes.worker_process import HandlerRaisedError
from kafka_keyshared.model import Output
from tests.support.handler_pipe import PLACE, tell
from tests.support.offline_instance import CONF, OfflineBroker
from tests.support.records import record

WAIT = 60.0
INODE = "KEYSHARED_TEST_INODE"
MADE = EVICT_AFTER
"""So often a handler that breaks down is made before."""


def an_app(broker: OfflineBroker, workers: str = "process:2", **options: Any) -> KeyShared:
    return KeyShared(CONF, ["orders"], workers=workers, hooks=broker.hooks, **options)


def handle(item: Any) -> None:
    """Tell of the record; each twentieth fails once, each fiftieth ends its process once."""
    key, offset = item.key().decode(), item.offset()
    path = Path(os.environ[PLACE])
    known = path.read_text()
    if offset % 20 == 3 and f"failed {offset}\n" not in known:
        tell(f"failed {offset}")
        raise ValueError
    if offset % 50 == 7 and f"died {offset}\n" not in known:
        tell(f"died {offset}")
        os._exit(1)
    tell(f"ran {key} {offset}")


def slow(item: Any) -> None:
    """Hang the first time."""
    if item.offset() == 0 and "hung" not in Path(os.environ[PLACE]).read_text():
        tell("hung")
        threading.Event().wait(WAIT)
    tell(f"ran {item.offset()}")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "told"
    path.touch()
    monkeypatch.setenv(PLACE, str(path))
    return path


def run(broker: OfflineBroker, app: KeyShared, at: int) -> int:
    """Run the app until so much is committed."""

    def stepped(_view: object) -> None:
        if at in broker.positions():
            app.stop()

    app.hooks = replace(app.hooks, stepped=stepped)
    return app.run()


def threads_of_the_client() -> list[str]:
    names = []
    for each in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile
            names.append((each / "comm").read_text())
    return [name for name in names if name.startswith("rdk:")]


def look_around(_item: Any) -> None:
    """Tell of what the parent has: its client's threads, and the socket that it was told of."""
    open_here = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the folder itself
            open_here.append(each.stat().st_ino)
    tell(len(threads_of_the_client()), int(os.environ[INODE]) in open_here)


# Before the others: what is forked may hang in them, and then nobody sees why.
def test_nothing_of_the_client_or_of_what_is_open_is_in_a_process(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is spawned: what is forked would have both, be the socket inheritable or not."""
    there: list[str] = []
    broker = OfflineBroker(record(0, "a"))

    def stepped(_view: object) -> None:
        there.extend(threads_of_the_client())
        if 1 in broker.positions():
            app.stop()

    with socket.create_server(("127.0.0.1", 0)) as opened:
        opened.set_inheritable(True)
        monkeypatch.setenv(INODE, str(os.fstat(opened.fileno()).st_ino))
        app = an_app(broker)
        app.handler(look_around)
        app.hooks = replace(app.hooks, stepped=stepped)
        assert app.run() == 0
    assert there, "the parent has a client"
    assert told.read_text() == "0 False\n"


def test_each_key_is_in_order_whatever_fails_and_dies(told: Path) -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset % 7}") for offset in range(200)))
    app = an_app(broker, retry={"backoff": 0})
    app.handler(handle)
    assert run(broker, app, 200) == 0
    ran: dict[str, list[int]] = {}
    lines = told.read_text().splitlines()
    for line in lines:
        if line.startswith("ran"):
            _, key, offset = line.split()
            ran.setdefault(key, []).append(int(offset))
    assert sorted(chain.from_iterable(ran.values())) == [*range(200)]
    assert all(offsets == sorted(offsets) for offsets in ran.values())
    assert sum(line.startswith("failed") for line in lines) == 10
    assert sum(line.startswith("died") for line in lines) == 4
    assert app.instance is not None
    times = app.instance.core.subscriptions["default"].counts.process_seconds
    assert (sum(times.counts) >= 200, times.total > 0) == (True, True)


def test_a_record_past_the_ack_timeout_ends_with_its_process_and_runs_again(told: Path) -> None:
    broker = OfflineBroker(record(0, "a"), record(1, "b"))
    app = an_app(broker, ack_timeout=1.0, retry={"backoff": 0})
    app.handler(slow)
    assert run(broker, app, 2) == 0
    assert sorted(told.read_text().splitlines()) == ["hung", "ran 0", "ran 1"]


def read(data: bytes, _context: Any) -> tuple[bytes, int]:
    return data, os.getpid()


def compare(item: Any) -> None:
    value, reader = item.value()
    tell(value.decode(), reader == os.getpid(), reader == os.getppid())


def test_a_deserializer_runs_in_the_process(told: Path) -> None:
    broker = OfflineBroker(record(0, "a"))
    app = an_app(broker, value_deserializer=read)
    app.handler(compare)
    assert run(broker, app, 1) == 0
    assert told.read_text() == "vvvvvvvvvv True False\n"


class BreaksDown:
    """Ends its process at a record; made so many times, it cannot be made any more."""

    def __init__(self) -> None:
        tell("made")
        if Path(os.environ[PLACE]).read_text().count("made") > MADE:
            raise RuntimeError("no database")

    def handle(self, _item: Any) -> None:
        os._exit(1)


def dead_at_each_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every heartbeat wait until a worker has died that has something to do."""

    def beat(pool: ProcessPool) -> None:
        for cell in pool.cells.values():
            while cell.lives() and cell.given and cell.thread is not None:
                cell.thread.join(0.01)
        before(pool)

    before = ProcessPool.beat
    monkeypatch.setattr(ProcessPool, "beat", beat)


def starting_at_many_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have so many heartbeats that each start outlasts some."""
    monkeypatch.setattr("kafka_keyshared.runtime.loop.BEAT_SECONDS", 0.001)


@pytest.mark.parametrize("beats", [dead_at_each_beat, starting_at_many_beats])
def test_a_handler_that_can_be_made_no_more_ends_the_run_with_what_it_said(
    told: Path, monkeypatch: pytest.MonkeyPatch, beats: Callable[[pytest.MonkeyPatch], None]
) -> None:
    """However fast it starts: who is dead at each heartbeat is given up, unless it has lived."""
    broker = OfflineBroker(*(record(offset, f"key-{offset}") for offset in range(20)))
    app = an_app(
        broker,
        "process:1",
        retry={"attempts": 1},
        on_exhausted="drop",
        stop_timeout=2.0,
        revoke_deadline=1.0,
    )
    app.handler(BreaksDown)
    beats(monkeypatch)
    with pytest.raises(HandlerRaisedError, match=r"in 5 processes, .*no database\n.*in __init__"):
        app.run()
    assert told.read_text().splitlines() == ["made"] * (MADE + STARTS)
    assert set(broker.positions()) <= {*range(MADE + 1)}, "what was not done is not committed"


UNGUARDED = """
from kafka_keyshared import KeyShared
from tests.support.offline_instance import CONF, OfflineBroker

app = KeyShared(CONF, ["orders"], workers="process:1", hooks=OfflineBroker().hooks)

@app.handler
def handle(record): ...

app.run()
"""


def test_a_program_without_a_guard_is_told_to_have_one_and_runs_in_no_worker(
    tmp_path: Path,
) -> None:
    """Each worker's process imports the program, and would run it."""
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert ended.returncode == 1
    assert "run() is called while the module is imported: put it under if __name__" in ended.stderr
    assert (
        "could not be made: HandlerRaisedError: the process ended during the start" in ended.stderr
    )


def handing_out(item: Any) -> list[Output]:
    """Hand out two; the fourth record fails once, the seventh ends its process once."""
    handle_once(item)
    key = item.key()
    return [Output(b"first %d" % item.offset(), key), Output(b"second", key)]


def handle_once(item: Any) -> None:
    path = Path(os.environ[PLACE])
    for offset, word in ((3, "failed"), (6, "died")):
        if item.offset() == offset and word not in path.read_text():
            tell(word)
            if word == "died":
                os._exit(1)
            raise ValueError


def test_what_processes_did_and_handed_out_is_written_as_that_of_threads(
    told: Path, tmp_path: Path
) -> None:
    """A call that ended with its process is a failed attempt, too, and hands out nothing."""
    written = []
    for workers in ("process:2", "thread:2"):
        told.write_text("died" if workers == "thread:2" else "")
        broker = OfflineBroker(*(record(offset, f"key-{offset % 3}") for offset in range(9)))
        app = an_app(broker, workers, retry={"backoff": 0})
        place = OutputTarget(JSON, str(tmp_path / workers / "outputs"))
        folder = tmp_path / workers / "log"
        with outputs_to(place, CONF) as take, audit_log(str(folder)) as ledger:
            write_down(app, hand_out(app, handing_out, take), ledger)
            if workers == "process:2":
                app.handler(handing_out)
            assert run(broker, app, 9) == 0
        written.append((rows_in(folder), lines_in(Path(place.name))))
    (processes, out), (threads, also_out) = written
    assert {row.pop("worker") for row in processes} == {"worker-0", "worker-1"}
    assert all(row["started"] <= row["ended"] for row in processes)
    came = sorted((row["offset"], row.get("attempt"), row["outcome"]) for row in processes)
    assert came == sorted(
        [(row["offset"], row["attempt"] + (row["offset"] == 6), row["outcome"]) for row in threads]
        + [(6, 1, "failed")]
    )
    assert sorted(out) == sorted(also_out)
    assert len(out) == 18


def lines_in(folder: Path) -> list[str]:
    return [line for file in folder.iterdir() for line in file.read_text().splitlines()]


def rows_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_in(folder)]


def test_an_output_that_is_not_written_is_a_failed_attempt(
    told: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[tuple[int, int]] = []

    def take(item: Any, outputs: Any) -> None:
        taken.append((item.offset(), len(outputs)))
        if taken == [(0, 2)]:
            raise KeySharedError("the topic is away")

    broker = OfflineBroker(record(0, "a"), record(1, "a"))
    app = an_app(broker, retry={"backoff": 0})
    app.handler(hand_out(app, handing_out, take))
    assert run(broker, app, 2) == 0
    assert taken == [(0, 2), (0, 2), (1, 2)]
    assert "the topic is away" in caplog.text


def test_the_line_at_the_start_says_how_many_there_are() -> None:
    assert "2 processes" in an_app(OfflineBroker()).banner()


def test_what_does_not_fit_is_refused_by_name() -> None:
    app = an_app(OfflineBroker())
    with pytest.raises(ConfigError, match="declared with 'async def'"):

        @app.handler
        async def wait(_item: Any) -> None: ...

    app.handler(lambda _item: None)
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        app.run()
    for workers in ("process:0", "process:-2", "process:"):
        with pytest.raises(ConfigError, match=f"workers='{workers}'"):
            an_app(OfflineBroker(), workers)
