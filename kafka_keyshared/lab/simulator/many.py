"""Runs of many seeds on several processes, and their report."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka_keyshared.lab.simulator.coverage import UNREACHED
from kafka_keyshared.lab.simulator.run import SeedOutcome, run_seed

WHOLE_SEEDS, WHOLE_STEPS = 200, 5_000
"""A full run has at least this many seeds, and each at least this many steps."""

OFTEN = 100
"""Least number of times that a full run reaches each rare state, or it has shown too little."""

GARBAGE_AFTER = (50_000, 20, 100)
"""Thresholds of the garbage collector in a process that runs one seed after the other."""


@dataclass
class SeedsReport:
    """Result of many seeds. ``broken`` are seeds with the violations found.

    ``whole`` says that the run was large enough to reach every rare state.
    """

    whole: bool = False
    seeds: int = 0
    steps: int = 0
    events: int = 0
    happenings: int = 0
    busy_seconds: float = 0.0
    seconds: float = 0.0
    simulated: float = 0.0
    broken: dict[int, list[str]] = field(default_factory=dict)
    sometimes: Counter[str] = field(default_factory=Counter)
    digest: str = ""

    def add(self, outcome: SeedOutcome) -> None:
        """Add the outcome of a seed."""
        self.seeds += 1
        self.steps += outcome.steps
        self.events += outcome.events
        self.happenings += outcome.happenings
        self.busy_seconds += outcome.seconds
        self.simulated += outcome.simulated
        self.sometimes.update(outcome.sometimes)  # a sum would drop states with count 0
        self.digest = outcome.digest
        if outcome.violations:
            self.broken[outcome.seed] = outcome.violations

    def seldom(self) -> dict[str, int]:
        """Return the rare states that were not reached often enough, with their counts."""
        return {
            name: count
            for name, count in sorted(self.sometimes.items())
            if count < OFTEN and name not in UNREACHED
        }

    @property
    def failed(self) -> bool:
        """Whether a seed found a violation, or the run did not reach every state that it must."""
        return bool(self.broken) or (self.whole and bool(self.seldom()))

    def events_per_second(self) -> float:
        """Return how many events one processor core simulates in a second."""
        return self.events / self.busy_seconds if self.busy_seconds else 0.0

    def shown(self) -> dict[str, Any]:
        """Return the report for a person or a program to read."""
        return {
            "seeds": self.seeds,
            "steps": self.steps,
            "violations": sum(map(len, self.broken.values())),
            "broken": {str(seed): words for seed, words in sorted(self.broken.items())},
            "events": self.events,
            "events_per_s": round(self.events_per_second()),
            "happenings": self.happenings,
            "simulated_s": round(self.simulated),
            "seconds": round(self.seconds, 1),
            "sometimes": dict(sorted(self.sometimes.items())),
            "seldom": self.seldom(),
        }


def run_seeds(
    seeds: Sequence[int], steps: int, processes: int, told: Callable[[SeedOutcome], object]
) -> SeedsReport:
    """Run these seeds; ``told`` is called with each outcome, in the order of the seeds."""
    report = SeedsReport(whole=len(seeds) >= WHOLE_SEEDS and steps >= WHOLE_STEPS)
    began = time.perf_counter()
    for outcome in _outcomes(seeds, steps, processes):
        report.add(outcome)
        told(outcome)
    report.seconds = time.perf_counter() - began
    return report


def _outcomes(seeds: Sequence[int], steps: int, processes: int) -> Iterator[SeedOutcome]:
    if len(seeds) == 1:
        yield run_seed(seeds[0], steps)
        return
    if processes == 1:
        yield from map(partial(run_seed, steps=steps, summed=False), seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _collect_seldom) as pool:
        yield from pool.map(partial(_one_of_many, steps=steps), seeds, chunksize=1)


def _collect_seldom() -> None:
    """Give the collector little to do: the objects of a seed are in use until it is over.

    Repeated searches for garbage among all of them took a sixth of the time.
    """
    gc.freeze()
    gc.set_threshold(*GARBAGE_AFTER)


def _one_of_many(seed: int, steps: int) -> SeedOutcome:
    outcome = run_seed(seed, steps, summed=False)
    gc.collect()  # frees its world before the next one
    return outcome
