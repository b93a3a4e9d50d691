"""Numbers about numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(ordered: Sequence[int], share: float) -> int:
    """Return the smallest value that at least this share of the values does not exceed.

    ``ordered`` is sorted and not empty; this is the nearest-rank definition, so it is always a
    value that was measured.
    """
    # A little less, or 0.07 of 100 values would be the eighth of them.
    rank = math.ceil(share * len(ordered) - 1e-9)
    return ordered[max(0, rank - 1)]
