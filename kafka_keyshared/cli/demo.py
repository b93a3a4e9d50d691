"""``keyshared demo`` and ``keyshared demo load``."""

from __future__ import annotations

import sys
import time
from typing import Any

from kafka_keyshared.cli.output import Output, write_note, write_result
from kafka_keyshared.cli.settings import client_settings
from kafka_keyshared.demo.data import CANCELLED, RECORDS
from kafka_keyshared.demo.load import load
from kafka_keyshared.demo.run import DLQ, PARTITIONS, TOPIC, WORKERS, Demo, Progress
from kafka_keyshared.demo.sabotage import check_kind
from kafka_keyshared.errors import ConfigError

NOT_SHOWN = ("findings", "differences")


def demo_verb(output: Output, sabotage: str | None) -> int:
    """Run the demo with live progress on a terminal; return 0 when nothing was wrong."""
    check_kind(sabotage)
    write_note(
        f"a year of flights: {RECORDS:,} records, topic {TOPIC} with {PARTITIONS} partitions on an "
        f"embedded Kafka, {WORKERS}, {CANCELLED:,} cancelled flights go to {DLQ}"
    )
    result = _watched(sabotage) if sys.stderr.isatty() else _unwatched(sabotage)
    for line in (*result["findings"], *result["differences"]):
        write_note(line)
    shown = {name: value for name, value in result.items() if name not in NOT_SHOWN}
    write_result(shown, output, "a year of flights, in order")
    return 0 if result["ok"] else 1


def _unwatched(sabotage: str | None) -> dict[str, Any]:
    said = [time.monotonic()]

    def watch(progress: Progress) -> None:
        if time.monotonic() - said[0] >= 2:
            said[0] = time.monotonic()
            write_note(_line(progress))

    return Demo(watch, sabotage).run()


def _watched(sabotage: str | None) -> dict[str, Any]:
    from rich.console import Console
    from rich.live import Live
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    bars = Bars(
        TextColumn("{task.description:>14}"),
        BarColumn(bar_width=40),
        TextColumn("{task.completed:>9,.0f} of {task.total:,.0f}"),
        TextColumn("{task.fields[note]}"),
    )
    produced = bars.add_task("produced", total=RECORDS, note="")
    settled = bars.add_task("settled", total=RECORDS, note="")
    committed = bars.add_task("committed", total=RECORDS, note="")
    letters = bars.add_task("dead letters", total=CANCELLED, note="")
    with Live(bars, console=Console(stderr=True), refresh_per_second=10):

        def watch(progress: Progress) -> None:
            bars.update(produced, completed=progress.produced)
            bars.update(
                settled,
                completed=progress.settled,
                note=f"{progress.held:,} held, {progress.closed_keys:,} keys waiting for a retry",
            )
            bars.update(committed, completed=progress.committed)
            bars.update(letters, completed=progress.dead_letters_read)

        demo = Demo(watch, sabotage)
        result = demo.run()
        watch(demo.progress)
    return result


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
    result = load(conf, topic, partitions, progress)
    write_result(result, output, "loaded")
    return 0
