"""``keyshared bench``: runs of the measurements, and their output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kafka_keyshared.cli.output import Justify, OutputFormat, write_note, write_result, write_table
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.config import make_options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.lab.bench import compare, fair, idle, latency, memory, noop, scale, skew, stuck
from kafka_keyshared.lab.bench.compare import ComparePlan
from kafka_keyshared.lab.bench.fair import FairPlan
from kafka_keyshared.lab.bench.idle import IdlePlan
from kafka_keyshared.lab.bench.latency import LatencyPlan
from kafka_keyshared.lab.bench.memory import MemoryPlan
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.lab.bench.scale import ScalePlan
from kafka_keyshared.lab.bench.skew import SkewPlan
from kafka_keyshared.lab.bench.stuck import StuckPlan


class _Plan(Protocol):
    @property
    def workers(self) -> str | tuple[str, ...]: ...

    def check(self) -> None: ...


P = TypeVar("P", bound=_Plan)
Measure = Callable[[P, str | None, Callable[[str], None]], dict[str, Any]]
_Table = tuple[dict[str, Justify], Callable[[dict[str, Any]], list[str]]]
"""The columns of a table, and the function that returns the cells of a result's row."""


def noop_verb(plan: NoopPlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure throughput and print it."""
    return _verb(
        "bench noop",
        noop.measure_at,
        plan,
        bootstrap,
        output,
        one_in_flight_per_key=plan.one_in_flight_per_key,
    )


def latency_verb(plan: LatencyPlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure latency and print it."""
    return _verb("bench latency", latency.measure_at, plan, bootstrap, output)


def fair_verb(plan: FairPlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure how long other keys wait beside a hot one, and print it."""
    return _verb("bench fair", fair.measure_at, plan, bootstrap, output)


def skew_verb(plan: SkewPlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure how far skewed backlogs are from their lower bound, and print a row for each."""
    return _verb(
        "bench skew", skew.measure_at, plan, bootstrap, output, table=(_SKEW_COLUMNS, _skew_row)
    )


_SKEW_COLUMNS: dict[str, Justify] = {
    "keys": "left",
    "records": "right",
    "hottest": "right",
    "bound s": "right",
    "ratio": "right",
    "bare threads": "right",
}


def _skew_row(row: dict[str, Any]) -> list[str]:
    return [
        *(row["distribution"], f"{row['records']:,}", f"{row['hottest_share']:.2%}"),
        *(f"{row['bound_s']:.2f}", row["ratio_spread"], row["bare_ratio_spread"]),
    ]


def scale_verb(plan: ScalePlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure the cost and the gain of more threads, and print it."""
    return _verb("bench scale", scale.measure_at, plan, bootstrap, output)


def stuck_verb(plan: StuckPlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure the delay of other records while one record is stuck; print a row for each pool."""
    return _verb(
        "bench stuck", stuck.measure_at, plan, bootstrap, output, table=(_STUCK_COLUMNS, _stuck_row)
    )


_STUCK_COLUMNS: dict[str, Justify] = {
    "workers": "left",
    "records": "right",
    "on time": "right",
    "before": "right",
    "p99 ms": "right",
}


def _stuck_row(row: dict[str, Any]) -> list[str]:
    return [
        *(row["workers"], f"{row['others']:,}", row["share_spread"]),
        *(f"{row['before_share']:.4f}", f"{row['p99_ms']:.1f}"),
    ]


def memory_verb(plan: MemoryPlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure memory and print it."""
    return _verb("bench memory", memory.measure_at, plan, bootstrap, output)


def idle_verb(plan: IdlePlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Measure the cost of waiting and print it."""
    return _verb("bench idle", idle.measure_at, plan, bootstrap, output)


def compare_verb(plan: ComparePlan, bootstrap: str | None, output: OutputFormat) -> int:
    """Compare, and print a row for each system and scenario, or the full result."""
    plan.check_plan()
    if bootstrap is not None:
        require_broker({"bootstrap.servers": bootstrap})
    result = compare.measure_at(plan, bootstrap, write_note)
    for reason in result["suspect"]:
        write_note(f"suspect: {reason}")
    if output is not OutputFormat.TABLE:
        write_result(result, output, "bench compare")
        return 0
    write_table("bench compare", _COLUMNS, [_shown(row) for row in result["rows"]])
    if result["latency"]:
        write_table(
            "latency",
            {"system": "left", "p50 ms": "right", "p99 ms": "right", "added p50 ms": "right"},
            [
                [str(row[name]) for name in ("system", "p50_ms", "p99_ms", "added_p50_ms")]
                for row in result["latency"]
            ],
        )
    if result["hot_key"]:
        write_table("one hot key", _HOT_COLUMNS, [_hot_row(row) for row in result["hot_key"]])
    return 0


_HOT_COLUMNS: dict[str, Justify] = {
    "system": "left",
    "others p50 ms": "right",
    "others p99 ms": "right",
    "hot key/s": "right",
}


def _hot_row(row: dict[str, Any]) -> list[str]:
    figures = ("others_p50_ms", "others_p99_ms", "hot_per_s")
    return [row["system"], *(f"{row[name]:,.1f}" for name in figures)]


_COLUMNS: dict[str, Justify] = {
    "scenario": "left",
    "system": "left",
    "records/s": "right",
    "of bare": "right",
    "MiB": "right",
    "order per key": "left",
    "at least once": "left",
    "bounded memory": "left",
}


def _shown(row: dict[str, Any]) -> list[str]:
    promises = ("key_order", "at_least_once", "bounded_memory")
    return [
        *(row["scenario"], row["system"], f"{row['per_s']:,}"),
        *("–" if row[name] is None else str(row[name]) for name in ("ratio", "peak_mib")),
        *("yes" if row[name] else "no" for name in promises),
    ]


def _verb(
    title: str,
    measure_at: Measure[P],
    plan: P,
    bootstrap: str | None,
    output: OutputFormat,
    *,
    one_in_flight_per_key: bool = False,
    table: _Table | None = None,
) -> int:
    plan.check()
    # Checked here, because the measuring process would find a bad setting only after producing.
    pools = (plan.workers,) if isinstance(plan.workers, str) else plan.workers
    for workers in pools:
        subscription_settings(
            make_options({"workers": workers, "one_in_flight_per_key": one_in_flight_per_key})
        )
    if bootstrap is not None:
        require_broker({"bootstrap.servers": bootstrap})
    result = measure_at(plan, bootstrap, write_note)
    for reason in result["suspect"]:
        write_note(f"suspect: {reason}")
    if table is None or output is not OutputFormat.TABLE:
        write_result(result, output, title)
    else:
        columns, shown = table
        write_table(title, columns, [shown(row) for row in result["rows"]])
    return 0
