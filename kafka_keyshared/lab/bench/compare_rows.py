"""Rows of ``bench compare`` for each system and scenario, with doubts."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kafka_keyshared.lab.bench.compare_run import MeasuredRun
from kafka_keyshared.lab.bench.fair_side import OtherKeyWaits
from kafka_keyshared.lab.bench.figures import median
from kafka_keyshared.lab.bench.systems import system_of

LOADED = 1.0
"""A load per core from which figures are doubtful: other processes are at work."""


def per_s(found: MeasuredRun) -> float:
    """Return the records per second of a run."""
    return found.ran.records / found.ran.seconds


def rows_of(
    scenario: str, records: int, runs: Mapping[str, Sequence[MeasuredRun]]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each system that ran, in a scenario with ``records`` records.

    ``per_s`` is the best of its runs, and ``ratio`` is that over the best of ``bare``. ``beside``
    is its speed as a multiple of each other system's: the median over the rounds in which both ran.
    """
    rates = {name: [per_s(each) for each in found] for name, found in runs.items() if found}
    bare = max(rates.get("bare", [0.0]))
    for name, own in rates.items():
        best = max(runs[name], key=per_s)
        family = system_of(name).family
        yield {
            "system": name,
            "scenario": scenario,
            "per_s": round(per_s(best)),
            "per_s_runs": list(map(round, own)),
            "ratio": round(per_s(best) / bare, 3) if bare else None,
            "beside": {
                other: round(_median_ratio(own, theirs), 3)
                for other, theirs in rates.items()
                if other != name
            },
            "peak_mib": best.peak_mib,
            "records": best.ran.records,
            "complete": best.ran.records >= records,
            "key_order": family.key_order,
            "at_least_once": family.at_least_once,
            "bounded_memory": family.bounded_memory,
        }


def hot_row(name: str, runs: Sequence[OtherKeyWaits]) -> dict[str, Any]:
    """Return the row of a system beside a hot key: medians over its runs, in milliseconds."""
    return {
        "system": name,
        "others_p50_ms": median(each.others_p50_ms for each in runs),
        "others_p99_ms": median(each.others_p99_ms for each in runs),
        "others_p99s_ms": [round(each.others_p99_ms, 2) for each in runs],
        "others_unseen": sum(each.others_unseen for each in runs),
        "hot_per_s": median(each.hot_per_s for each in runs),
    }


def _median_ratio(own: Sequence[float], theirs: Sequence[float]) -> float:
    # A system that failed has had no later rounds.
    return statistics.median(ours / other for ours, other in zip(own, theirs, strict=False))


def load() -> float:
    """Return how many processes wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def circumstances(before: float) -> dict[str, Any]:
    """Return the time and machine of the measurement, and the reasons to doubt it.

    ``before`` is the load at the start. The load at the end is the bench's own, and shows nothing
    about other processes.
    """
    cores = os.cpu_count() or 1
    suspect = []
    if before > LOADED * cores:
        suspect.append(
            f"a load of {before:.1f} at the start on {cores} cores: compare within this run only, "
            "and measure again when the machine is idle"
        )
    return {
        "taken": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": cores,
        "python": platform.python_version(),
        "load": before,
        "suspect": suspect,
    }
