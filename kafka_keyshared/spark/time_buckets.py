"""Counts over time, in few steps of the same length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STEPS = 60


def by_time(
    frame: DataFrame, at: str, low: int, high: int, counts: Sequence[Column]
) -> tuple[int, list[tuple[int, Mapping[str, Any] | None]]]:
    """Return the length of a step, and each step's begin and counts, None for an empty step.

    ``at`` is a column of times from ``low`` to ``high``, in any unit. The steps use the same unit.
    """
    from pyspark.sql import functions as f

    step = max(1, -(-(high - low + 1) // STEPS))
    number = f.floor((f.col(at) - low) / step).alias("step")
    found = frame.where(f.col(at).isNotNull()).groupBy(number).agg(*counts).collect()
    rows = {each["step"]: each.asDict() for each in found}
    return step, [(low + each * step, rows.get(each)) for each in range(max(rows, default=-1) + 1)]
