"""Statistics of measured values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value that at least this share of the values does not exceed.

    ``ordered`` is sorted and not empty. This is the nearest-rank definition, so the result is
    always a measured value.
    """
    # Slightly less, because otherwise 0.07 of 100 values would be the eighth of them.
    rank = math.ceil(share * len(ordered) - 1e-9)
    return ordered[max(0, rank - 1)]


def median(values: Iterable[float], digits: int = 3) -> float:
    """Return the median, rounded to ``digits`` decimal places."""
    return round(statistics.median(values), digits)


def lost(before: float, after: float) -> float:
    """Return the share of the first value that the second one lacks; negative if it is larger."""
    return 1 - after / before


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median with the lowest and the highest value, as a table shows them."""
    shown = (f"{each:.{digits}f}" for each in (statistics.median(values), min(values), max(values)))
    middle, least, most = shown
    return f"{middle} ({least} to {most})"
