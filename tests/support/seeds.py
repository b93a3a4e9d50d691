"""How many seeds a test runs: its own number, times ``KEYSHARED_SEEDS``.

``KEYSHARED_SEEDS=20`` looks for what one run of the suites is too short for; a share of one, such
as 0.05, leaves a glance at each for the inner loop of development (``make check``).
"""

from __future__ import annotations

import os

SCALE = float(os.environ.get("KEYSHARED_SEEDS", "1"))


def seeds(count: int, first: int = 0) -> range:
    """Return the seeds to run from the first on, where one run of the suites has this many."""
    return range(first, first + max(1, round(count * SCALE)))


def examples(count: int) -> int:
    """Return how many examples hypothesis tries, where one run of the suites tries this many."""
    return max(5, round(count * SCALE))


def enough() -> bool:
    """Return whether so many seeds run that they have to reach what is rare, too."""
    return SCALE >= 1.0


def patience(seconds: float) -> float:
    """Return the seconds that a test may take which needs no more than this at its own number."""
    return seconds * max(1.0, SCALE)
