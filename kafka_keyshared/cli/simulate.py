"""``keyshared simulate``: runs of simulation seeds, without Kafka."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from kafka_keyshared.cli.output import OutputFormat, write_error, write_note, write_result
from kafka_keyshared.lab.simulator.many import (
    OFTEN,
    WHOLE_SEEDS,
    WHOLE_STEPS,
    SeedsReport,
    run_seeds,
)
from kafka_keyshared.lab.simulator.run import SeedOutcome

TELL_EVERY = 5.0
"""Seconds between two progress messages."""

FAILED = 1
"""The exit status if a seed broke the contract, or rare states were met too seldom."""


def simulate_verb(
    seeds: Sequence[int], steps: int, processes: int | None, *, one: bool, shown: OutputFormat
) -> int:
    """Run the seeds and print the result; a single seed also has its digest."""
    told = _Progress(len(seeds))
    report = run_seeds(seeds, steps, processes or os.cpu_count() or 1, told.heard)
    result = report.shown()
    if one:
        result["digest"] = report.digest
    if shown is OutputFormat.TABLE:
        _tell(report)
        result.pop("sometimes")
        result.pop("broken")
        result.pop("seldom")
    write_result(result, shown, f"simulated, {steps} steps for each seed")
    return FAILED if report.failed else 0


def _tell(report: SeedsReport) -> None:
    for seed, violations in sorted(report.broken.items()):
        for words in violations:
            write_error(f"seed {seed}: {words}")
    seldom = report.seldom()
    if report.whole:
        for name, count in seldom.items():
            write_error(
                f"{name!r} occurred {count} times; a run of {report.seeds} seeds needs {OFTEN} "
                "occurrences to be conclusive"
            )
    elif seldom:
        write_note(
            f"{len(seldom)} of {len(report.sometimes)} rare states occurred fewer than {OFTEN} "
            f"times (-o json names them); {WHOLE_SEEDS} seeds of {WHOLE_STEPS} steps have to "
            "reach that number"
        )


class _Progress:
    """Prints progress from time to time, and each seed that broke the contract at once."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._ended = 0
        self._next = time.monotonic() + TELL_EVERY

    def heard(self, outcome: SeedOutcome) -> None:
        """Note a seed that has ended."""
        self._ended += 1
        if outcome.violations:
            write_note(f"seed {outcome.seed} violated a rule; details follow at the end")
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + TELL_EVERY
            write_note(f"{self._ended} of {self._count} seeds")
