"""The screen of ``keyshared top``.

It needs the extra ``tui``. Only :mod:`.top` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Static

from kafka_keyshared.cli.lag import number, seconds
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.diagnosis.judge import diagnose
from kafka_keyshared.observability.web.snapshot import (
    REFRESH,
    SnapshotTotals,
    stuck,
    totals,
    without_keys,
)
from kafka_keyshared.status import Status, WorkerStatus

COLUMNS = {
    "workers": ("worker", "state", "runs", "queued", "leased", "share", "record", "for"),
    "partitions": ("partition", "committed", "log end", "lag", "backlog", "behind", "held back by"),
    "stuck": ("record", "state", "key or slot", "for", "attempts", "waiting", "error or place"),
}

Row = Sequence[str]


class Screen(App[None]):
    """Draws the status that ``read`` returns, which may raise :class:`KeySharedError`.

    The numbers come from the same functions as those of the console. When an instance does not
    answer, the first line says so, and the last status stays.
    """

    TITLE = "keyshared top"
    CSS = "Static { padding: 0 1; } DataTable { height: 1fr; border-top: solid $primary; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "quit")]

    def __init__(self, read: Callable[[], Status], *, where: str, keys: bool) -> None:
        super().__init__()
        self._read_status = read
        self._where = where
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Return the widgets of the screen."""
        yield Static(id="diagnosis")
        yield Static(id="totals")
        for name, columns in COLUMNS.items():
            table: DataTable[Text] = DataTable(id=name, cursor_type="none", zebra_stripes=True)
            table.add_columns(*columns)
            table.border_title = name
            yield table
        yield Footer()

    def on_mount(self) -> None:
        """Start the refresh."""
        self.look()
        self.set_interval(REFRESH, self.look)

    @work(thread=True, exclusive=True)
    def look(self) -> None:
        """Query the instance on a separate thread, and draw its status."""
        try:
            status = self._read_status()
        except KeySharedError as error:
            self.call_from_thread(self._say, f"no answer: {error}", "bold red")
            return
        self.call_from_thread(self.draw, status)

    def _say(self, text: str, style: str) -> None:
        self.query_one("#diagnosis", Static).update(Text(text, style))

    def draw(self, status: Status) -> None:
        """Show a status."""
        diagnosis = diagnose(status, keys=self._keys)
        status = status if self._keys else without_keys(status)
        mark, style = ("OK", "green") if diagnosis.healthy else ("STANDS STILL", "bold red")
        if diagnosis.healthy and diagnosis.findings:
            mark, style = "WARNING", "yellow"
        cure = "" if diagnosis.first is None else f"\nto do: {diagnosis.first.cure}"
        self._say(f"{mark}  {diagnosis.text}{cure}", style)
        about = f"{status.group} at {self._where}, {status.phase}\n{in_a_line(totals(status))}"
        self.query_one("#totals", Static).update(Text(about))
        rows = {
            "workers": worker_rows(status),
            "partitions": partition_rows(status),
            "stuck": stuck_rows(status),
        }
        for name, those in rows.items():
            table = self.query_one(f"#{name}", DataTable)
            table.clear()
            for row in those:
                table.add_row(*map(Text, row))


def in_a_line(sums: SnapshotTotals) -> str:
    """Return the sums as one line."""
    return (
        f"ok {sums.ok:,}  failed {sums.failed_attempts:,}  retried {sums.retried:,}  "
        f"dead letters {sums.dead_letters:,}  held {sums.held:,} of {sums.held_max:,}  "
        f"workers busy {sums.busy:,} of {sums.workers:,}  lag {number(sums.lag)}  "
        f"backlog {number(sums.backlog)}  {seconds(sums.lag_seconds)} behind"
    )


def worker_rows(status: Status) -> list[Row]:
    """Return a row for each worker."""
    return [_worker(each) for sub in status.subscriptions for each in sub.workers]


def _worker(each: WorkerStatus) -> Row:
    run = each.running
    record = "" if run is None else f"{run.topic}-{run.partition}@{run.offset}"
    return (
        each.name,
        each.state,
        *(f"{count:,}" for count in (each.runs, each.queued, each.leased)),
        f"{each.share:.1%}",
        record,
        "" if run is None else seconds(run.seconds),
    )


def partition_rows(status: Status) -> list[Row]:
    """Return a row for each partition."""
    return [
        (
            f"{each.topic}-{each.partition}",
            *(number(at) for at in (each.committed, each.log_end, each.lag, each.backlog)),
            seconds(each.lag_seconds),
            ", ".join(each.held_back),
        )
        for each in status.partitions
    ]


def stuck_rows(status: Status) -> list[Row]:
    """Return a row for each record that makes no progress."""
    return [
        (
            f"{each.topic}-{each.partition}@{each.offset}",
            each.state,
            each.key or ("no key" if each.slot is None else f"{each.slot:#06x}"),
            seconds(each.seconds),
            f"{each.attempts:,}",
            f"{each.waiting:,}",
            each.error or each.where,
        )
        for each in stuck(status)
    ]
