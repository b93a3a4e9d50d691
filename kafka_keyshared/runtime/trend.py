"""Backlog growth and busy workers over the last minute, from statuses."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafka_keyshared.core.status.builder import settled_in
from kafka_keyshared.status import Lately, Status

MINUTE = 60.0
GAP_MOST = 10.0
"""Maximum seconds between two statuses; a longer gap restarts the minute.

When only the beats to the group make statuses, they are five seconds apart.
"""


class _TrendSample(NamedTuple):
    at: float
    backlog: int
    busy: float
    full: bool
    fetched: int
    settled: int


class Minute:
    """A summary of the statuses of the last minute. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self._looks: deque[_TrendSample] = deque()
        self._known: frozenset[tuple[str, int]] = frozenset()

    def note(self, status: Status, now: float) -> None:
        """Add a status.

        A partition whose backlog is unknown is left out, for example one that never delivered a
        record. When the set of known partitions changes, the minute restarts: a newly counted
        partition is no growth of the backlog.
        """
        looks = self._looks
        backlogs = {
            (each.topic, each.partition): each.backlog
            for each in status.partitions
            if each.backlog is not None
        }
        if backlogs.keys() != self._known or (looks and now - looks[-1].at > GAP_MOST):
            looks.clear()
        self._known = frozenset(backlogs)
        if not backlogs:
            return
        workers = [each for sub in status.subscriptions for each in sub.workers]
        busy = sum(each.runs > 0 for each in workers) / max(1, len(workers))
        settled = settled_in(status)
        full = any(sub.full_seconds > 0 for sub in status.subscriptions)
        fetched = sum(status.fetched.values())
        looks.append(_TrendSample(now, sum(backlogs.values()), busy, full, fetched, settled))
        while len(looks) > 1 and now - looks[1].at >= MINUTE:
            looks.popleft()

    def shown(self) -> Lately | None:
        """Return the summary of the minute; None until a full minute is covered."""
        looks = self._looks
        if len(looks) < 2 or looks[-1].at - looks[0].at < MINUTE:
            return None
        first, last = looks[0], looks[-1]
        return Lately(
            seconds=last.at - first.at,
            partitions=len(self._known),
            backlog=first.backlog,
            busy=sum(each.busy for each in looks) / len(looks),
            full=sum(each.full for each in looks) / len(looks),
            fetched=last.fetched - first.fetched,
            settled=last.settled - first.settled,
        )
