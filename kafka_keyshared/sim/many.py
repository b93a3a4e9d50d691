"""Many seeds, on as many processes as are wanted, and what came of all of them."""

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

from kafka_keyshared.sim.run import Outcome, run_seed
from kafka_keyshared.sim.sometimes import UNREACHED

WHOLE_SEEDS, WHOLE_STEPS = 200, 5_000
"""A whole run has so many seeds, and each so many steps, or more."""

OFTEN = 100
"""So often a whole run reaches each of the rare states, or it has shown too little."""

GARBAGE_AFTER = (50_000, 20, 100)
"""Thresholds of the collector in a process that runs seeds, one after the other."""


@dataclass
class Report:
    """What many seeds came to. ``broken`` are seeds, with what they have found.

    ``whole`` says that the run was large enough to have met every rare state.
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

    def add(self, outcome: Outcome) -> None:
        """Take a seed in."""
        self.seeds += 1
        self.steps += outcome.steps
        self.events += outcome.events
        self.happenings += outcome.happenings
        self.busy_seconds += outcome.seconds
        self.simulated += outcome.simulated
        self.sometimes.update(outcome.sometimes)  # a sum would leave out those that are 0
        self.digest = outcome.digest
        if outcome.violations:
            self.broken[outcome.seed] = outcome.violations

    def seldom(self) -> dict[str, int]:
        """Return the rare states that were not reached often, and how often they were."""
        return {
            name: count
            for name, count in sorted(self.sometimes.items())
            if count < OFTEN and name not in UNREACHED
        }

    @property
    def failed(self) -> bool:
        """Say whether a seed has found something, or the run has not met what it had to."""
        return bool(self.broken) or (self.whole and bool(self.seldom()))

    def events_per_second(self) -> float:
        """Return how many events one processor core simulates in a second."""
        return self.events / self.busy_seconds if self.busy_seconds else 0.0

    def shown(self) -> dict[str, Any]:
        """Return it for a person, or a program, to read."""
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
    seeds: Sequence[int], steps: int, processes: int, told: Callable[[Outcome], object]
) -> Report:
    """Run these seeds; ``told`` hears of each as it ends, in the order of the seeds."""
    report = Report(whole=len(seeds) >= WHOLE_SEEDS and steps >= WHOLE_STEPS)
    began = time.perf_counter()
    for outcome in _outcomes(seeds, steps, processes):
        report.add(outcome)
        told(outcome)
    report.seconds = time.perf_counter() - began
    return report


def _outcomes(seeds: Sequence[int], steps: int, processes: int) -> Iterator[Outcome]:
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
    """Leave the collector little to do: what a seed makes is in use until that is over.

    Looking for garbage among all of it again and again took a sixth of the time.
    """
    gc.freeze()
    gc.set_threshold(*GARBAGE_AFTER)


def _one_of_many(seed: int, steps: int) -> Outcome:
    outcome = run_seed(seed, steps, summed=False)
    gc.collect()  # its world goes before the next one comes
    return outcome
