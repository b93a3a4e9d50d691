"""What happened to ranges, as a value beside those of :mod:`.history`."""

from __future__ import annotations

from typing import NamedTuple


class RangeAssigned(NamedTuple):
    """The slots ``first`` to ``last`` are this worker's, or nobody's, in the process by order."""

    member: int
    subscription: str
    first: int
    last: int
    worker: str | None
