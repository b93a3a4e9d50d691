"""``keyshared demo`` and ``keyshared demo load``: progress and results."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

from kafka_keyshared.cli.audit_log import audit_log
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result, write_table
from kafka_keyshared.cli.settings import client_settings
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.config.worker_options import ASYNCIO, PROCESS, counted_workers
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.demo.calls import CALL_SECONDS
from kafka_keyshared.lab.demo.data import RECORDS
from kafka_keyshared.lab.demo.flights import LATE_MINUTES
from kafka_keyshared.lab.demo.load import load
from kafka_keyshared.lab.demo.run import DLQ, PARTITIONS, RETRY, Demo, DemoProgress, InputTotals
from kafka_keyshared.logs import only_from
from kafka_keyshared.observability.audit.processed import TOPIC as TOPIC_PLACE

NOT_SHOWN = ("findings", "differences")

JUDGING = "All records are committed. Now a judge checks them record by record."

HELD = "All records are committed. The console stays open until Ctrl-C; then the judge checks them."

CONSOLE_NEEDS = ("starlette", "uvicorn")
"""The packages of the extra ``console``."""

POOL_WORDS = {"thread": "workers", ASYNCIO: "coroutines", PROCESS: "processes"}

SPEAK_EVERY = 3.0
"""Seconds between two messages while the judge runs."""

WORDS = {
    "records": "records",
    "flights": "  flights; the aircraft is the key",
    "weather": "  weather reports, without a key",
    "dead_lettered": "flights cancelled, in the dead-letter topic",
    "partitions": "partitions",
    "workers": "workers",
    "calls": f"late flights, each a wait of {CALL_SECONDS * 1000:g} ms",
    "at_once": "  maximum of concurrent waits",
    "one_by_one_s": "  seconds of waiting in sequence",
    "per_partition_s": f"  seconds with {PARTITIONS} consumers, one per partition",
    "elapsed_s": "seconds of this run",
    "order_violations": "records out of order for their aircraft",
    "overlaps": "records that overlapped for their aircraft",
    "lost": "records lost",
    "duplicates": "settled records that ran again",
    "commits_past_unsettled": "commits of unsettled records",
    "commit_sequence_falls": "commits that went backwards",
    "commits_without_ownership": "commits for a partition of another member",
    "oracle_match": "same result as from the file",
    "ok": "contract kept",
}
"""The rows of the table, in this order; ``-o json`` has the names and all other values."""


def demo_verb(
    output: OutputFormat,
    sabotage: str | None,
    records: int | None,
    log: str | None = None,
    *,
    console: bool = False,
    workers: str | None = None,
) -> int:
    """Run the demo with live progress on a terminal; return 0 if every check passed.

    ``log`` is the folder for the processed log. With ``console`` its address is printed, and it
    stays open at the end until the user ends it.
    """
    _check_console(console)
    if log is not None and log.startswith(TOPIC_PLACE):
        raise ConfigError(
            f"--audit-log {log}: give a folder; the Kafka of the demo ends with the demo"
        )
    watcher: _Bars | _Lines = _Bars() if sys.stderr.isatty() else _Lines()
    with nullcontext() if log is None else audit_log(log) as rows:
        watch = _Console(watcher).watch if console else watcher.watch
        many = RECORDS if records is None else records
        demo = Demo(watch, sabotage, many, rows, console=console, workers=workers)
        totals = demo.totals
        write_note(_introduced(totals, demo.workers))
        # The failures are part of the demo and were announced.
        with watcher.shown(totals), only_from(logging.ERROR):
            result = demo.run()
    for line in (*result["findings"], *result["differences"]):
        write_note(line)
    if output is OutputFormat.TABLE:
        write_table("a year of flights, in order", {"": "left", " ": "right"}, _rows(result))
    else:
        shown = {name: value for name, value in result.items() if name not in NOT_SHOWN}
        write_result(shown, output, "")
    return 0 if result["ok"] else 1


def story_verb(output: OutputFormat, *, console: bool, others: tuple[object, ...]) -> int:
    """Run the story of four problems; ``others`` are options that do not apply to it."""
    from kafka_keyshared.cli.demo_story import tell_story

    if any(each is not None for each in others):
        raise ConfigError("--story has its own records; leave out --audit-log and --workers")
    _check_console(console)
    return tell_story(output, console=console)


def _check_console(console: bool) -> None:
    if console and (missing := [each for each in CONSOLE_NEEDS if find_spec(each) is None]):
        raise ConfigError(
            f"--console: {missing[0]} is not installed; pip install 'kafka-keyshared[console]'"
        )


def _introduced(totals: InputTotals, workers: int | str) -> str:
    """Return an introduction, in lines that fit a terminal of 80 columns."""
    return (
        f"A year of flights: {totals.records:,} records in a topic of {PARTITIONS} partitions, on "
        "a\n"
        f"Kafka inside this process. {_counted(workers)}, the flights of each aircraft in order.\n"
        f"A flight more than {LATE_MINUTES} minutes late costs a wait of "
        f"{CALL_SECONDS * 1000:g} ms, as for a database.\n"
        f"{totals.cancelled:,} flights were cancelled: they fail {RETRY.attempts} times and go to "
        f"{DLQ}."
    )


def _counted(workers: int | str) -> str:
    pool, count = counted_workers(workers)
    return f"{count} {POOL_WORDS[pool]}"


def _rows(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(words, _value(result[name])) for name, words in WORDS.items() if name in result]


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


@contextmanager
def judging(say: Callable[[str], None], every: float = SPEAK_EVERY) -> Iterator[Callable[[], None]]:
    """Yield a function that announces the judge, and print its progress every few seconds."""
    begun = threading.Event()
    over = threading.Event()

    def speak() -> None:
        begun.wait()
        seconds = 0.0
        while not over.wait(every):
            seconds += every
            say(f"  the judge is still working, {seconds:.0f} s")

    def begin() -> None:
        if not begun.is_set():
            say(JUDGING)
            begun.set()

    speaker = threading.Thread(target=speak, name="demo-judging", daemon=True)
    speaker.start()
    try:
        yield begin
    finally:
        over.set()
        begun.set()
        speaker.join()


class _Console:
    """Prints the address of the console, and that it stays open, each once."""

    def __init__(self, watcher: _Bars | _Lines) -> None:
        self._watcher = watcher
        self._left: list[tuple[Callable[[DemoProgress], str | bool], str]] = [
            (lambda progress: progress.console, "Console: {}/"),
            (lambda progress: progress.held, HELD),
        ]

    def watch(self, progress: DemoProgress) -> None:
        while self._left and (found := self._left[0][0](progress)):
            self._watcher.say(self._left.pop(0)[1].format(found))
        if progress.judging or not progress.held:
            self._watcher.watch(progress)


class _Lines:
    """Progress for a file or a pipe: a line every two seconds."""

    say = staticmethod(write_note)

    def __init__(self) -> None:
        self._said = time.monotonic()

    @contextmanager
    def shown(self, _totals: InputTotals) -> Iterator[None]:
        with judging(write_note) as self._judge:
            yield

    def watch(self, progress: DemoProgress) -> None:
        if progress.judging:
            self._judge()
        elif time.monotonic() - self._said >= 2:
            self._said = time.monotonic()
            write_note(_line(progress))


class _Bars:
    """Progress for a terminal: four bars at a fixed place."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            refresh_per_second=10,
        )
        self.say = self._bars.console.print

    @contextmanager
    def shown(self, totals: InputTotals) -> Iterator[None]:
        for name in ("written", "done", "committed"):
            self._bars.add_task(name, total=totals.records, note="")
        self._bars.add_task("dead letters", total=totals.cancelled, note="")
        with self._bars, judging(self.say) as self._judge:
            yield

    def watch(self, progress: DemoProgress) -> None:
        done = (
            progress.produced,
            progress.settled,
            progress.committed,
            progress.dead_letters_read,
        )
        for task, completed in zip(self._bars.task_ids, done, strict=True):
            self._bars.update(task, completed=completed)
        note = "" if progress.judging else f"{progress.calls} concurrent waits"
        self._bars.update(self._bars.task_ids[1], note=note)
        if progress.judging:
            self._judge()


def _line(progress: DemoProgress) -> str:
    return (
        f"written {progress.produced:,}, done {progress.settled:,}, committed "
        f"{progress.committed:,}, dead letters {progress.dead_letters_read:,}, "
        f"{progress.calls} concurrent waits"
    )


def load_verb(
    bootstrap: str | None, topic: str, partitions: int, settings: list[str], output: OutputFormat
) -> int:
    """Write the year to a cluster."""
    if not bootstrap:
        raise ConfigError("demo load needs the address of a broker: -b host:port")
    said = [0.0]

    def progress(written: int) -> None:
        if time.monotonic() - said[0] >= 2:
            said[0] = time.monotonic()
            write_note(f"written {written:,} of {RECORDS:,}")

    conf = {"bootstrap.servers": bootstrap, **client_settings(settings)}
    require_broker(conf)
    result = load(conf, topic, partitions, progress)
    write_result(result, output, "loaded")
    return 0
