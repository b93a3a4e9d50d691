"""``keyshared demo`` and ``keyshared demo load``."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kafka_keyshared.cli.output import Output, write_note, write_result
from kafka_keyshared.cli.reach import require_broker
from kafka_keyshared.cli.settings import client_settings
from kafka_keyshared.demo.data import RECORDS
from kafka_keyshared.demo.load import load
from kafka_keyshared.demo.run import DLQ, PARTITIONS, TOPIC, WORKERS, Demo, Progress, Totals
from kafka_keyshared.errors import ConfigError

NOT_SHOWN = ("findings", "differences")


def demo_verb(output: Output, sabotage: str | None, records: int | None) -> int:
    """Run the demo with live progress on a terminal; return 0 when nothing was wrong."""
    watcher = _Bars() if sys.stderr.isatty() else _Lines()
    demo = Demo(watcher.watch, sabotage, RECORDS if records is None else records)
    totals = demo.totals
    write_note(
        f"a year of flights: {totals.records:,} records, topic {TOPIC} with {PARTITIONS} "
        f"partitions on an embedded Kafka, {WORKERS}, {totals.cancelled:,} cancelled flights go to "
        f"{DLQ}"
    )
    with watcher.shown(totals):
        result = demo.run()
        watcher.watch(demo.progress)
    for line in (*result["findings"], *result["differences"]):
        write_note(line)
    shown = {name: value for name, value in result.items() if name not in NOT_SHOWN}
    write_result(shown, output, "a year of flights, in order")
    return 0 if result["ok"] else 1


class _Lines:
    """Progress for a file or a pipe: a line every two seconds."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def shown(self, _totals: Totals) -> AbstractContextManager[Any]:
        return nullcontext()

    def watch(self, progress: Progress) -> None:
        if time.monotonic() - self._said >= 2:
            self._said = time.monotonic()
            write_note(_line(progress))


class _Bars:
    """Progress for a terminal: four bars that stay where they are."""

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

    def shown(self, totals: Totals) -> AbstractContextManager[Any]:
        for name in ("produced", "settled", "committed"):
            self._bars.add_task(name, total=totals.records, note="")
        self._bars.add_task("dead letters", total=totals.cancelled, note="")
        return self._bars

    def watch(self, progress: Progress) -> None:
        done = (
            progress.produced,
            progress.settled,
            progress.committed,
            progress.dead_letters_read,
        )
        for task, completed in zip(self._bars.task_ids, done, strict=True):
            self._bars.update(task, completed=completed)
        note = f"{progress.held:,} held, {progress.closed_keys:,} keys wait for a retry"
        self._bars.update(self._bars.task_ids[1], note=note)


def _line(progress: Progress) -> str:
    return (
        f"produced {progress.produced:,}, settled {progress.settled:,}, committed "
        f"{progress.committed:,}, dead letters {progress.dead_letters_read:,}, "
        f"{progress.held:,} held, {progress.closed_keys:,} keys waiting for a retry"
    )


def load_verb(
    bootstrap: str | None, topic: str, partitions: int, settings: list[str], output: Output
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
