"""Statistics of measured values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value that at least this share of the values does not exceed.

    ``ordered`` is sorted and not empty; this is the nearest-rank definition, so it is always a
    value that was measured.
    """
    # A little less, or 0.07 of 100 values would be the eighth of them.
    rank = math.ceil(share * len(ordered) - 1e-9)
    return ordered[max(0, rank - 1)]


def median(values: Iterable[float], digits: int = 3) -> float:
    """Return the median, rounded to so many digits behind the point."""
    return round(statistics.median(values), digits)


def lost(before: float, after: float) -> float:
    """Return which share of the first value the second one lacks; negative where it has more."""
    return 1 - after / before


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median with the lowest and the highest value, as a table shows them."""
    shown = (f"{each:.{digits}f}" for each in (statistics.median(values), min(values), max(values)))
    middle, least, most = shown
    return f"{middle} ({least} to {most})"
