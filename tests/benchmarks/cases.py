"""Cases of ``verify.py``, their floors, and the table of results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_keyshared.lab.bench.common import Progress
from kafka_keyshared.testing.clusters.cluster import Cluster


class OnCluster(ABC):
    """A plan that measures itself on a cluster."""

    @abstractmethod
    def measure(self, cluster: Cluster, repeat: int | None, progress: Progress) -> dict[str, Any]:
        """Return the figures. ``repeat`` replaces the plan's own number of runs."""


@dataclass(frozen=True, slots=True)
class Floor:
    """What a figure of a result must reach (or, with ``at_most``, must not pass).

    ``goal`` is better than the bound, and is only reported. ``runs`` is the figure that has the
    values of the single runs. ``beside`` names another figure, and what it is of.
    """

    figure: str
    bound: float
    at_most: bool = False
    goal: float | None = None
    runs: str | None = None
    beside: tuple[str, str] | None = None

    def holds(self, value: float) -> bool:
        """Return whether this value is within the bound."""
        return self._within(value, self.bound)

    def reaches_goal(self, value: float) -> bool:
        """Return whether this value is within the goal. False without one."""
        return self.goal is not None and self._within(value, self.goal)

    def _within(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound

    def __str__(self) -> str:
        return self._shown(self.bound)

    @property
    def shown_goal(self) -> str:
        """Return the goal as the table shows it."""
        return "" if self.goal is None else self._shown(self.goal)

    def _shown(self, bound: float) -> str:
        return f"{'<=' if self.at_most else '>='} {bound:,g}"


@dataclass(frozen=True, slots=True)
class Case:
    """One measurement: a plan for the bench, or a function of its own that returns the figures."""

    name: str
    title: str
    floors: tuple[Floor, ...]
    plan: object | None = None
    run: Callable[[int | None], dict[str, Any]] | None = None


@dataclass(slots=True)
class Outcome:
    """A case's figures and which floors they miss."""

    case: Case
    result: dict[str, Any]
    missed: list[Floor] = field(default_factory=list)


def judged(case: Case, result: dict[str, Any]) -> Outcome:
    """Return the outcome of a case with this result."""
    missed = [floor for floor in case.floors if not floor.holds(result[floor.figure])]
    return Outcome(case, result, missed)


HEAD = (
    "| case | figure | median | range | runs | floor | goal | | beside |",
    "|---|---|---|---|---|---|---|---|---|",
)


def table(outcomes: Sequence[Outcome]) -> str:
    """The judged figures as a Markdown table."""
    rows = [_row(outcome, floor) for outcome in outcomes for floor in outcome.case.floors]
    return "\n".join([*HEAD, *rows]) + "\n"


def _row(outcome: Outcome, floor: Floor) -> str:
    result = outcome.result
    value = result[floor.figure]
    spread, count = "", ""
    if floor.runs is not None:
        values = result[floor.runs]
        spread, count = f"{min(values):,} to {max(values):,}", str(len(values))
    beside = "" if floor.beside is None else f"{floor.beside[0]}: {result[floor.beside[1]]}"
    verdict = "MISSED" if floor in outcome.missed else "holds"
    if floor.reaches_goal(value):
        verdict = "reaches the goal"
    cells = (
        *(outcome.case.title, floor.figure, f"{value:,}", spread, count),
        *(str(floor), floor.shown_goal, verdict, beside),
    )
    return f"| {' | '.join(cells)} |"
