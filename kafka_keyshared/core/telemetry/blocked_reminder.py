"""Periodic log reminders of blocked lanes.

:mod:`kafka_keyshared.core.limits.blocked_quota` decides how many records may be held behind them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kafka_keyshared.core.contract.commands import Level, Notice
from kafka_keyshared.core.lanes.closed import ClosedLane, LaneState
from kafka_keyshared.core.telemetry.failure_lines import kind_of, named_kind

REMIND_EVERY = 60.0
NAMED_MAX = 10


class Reminder:
    """Decides when the log names the blocked keys again.

    Code that blocks a lane sets ``blocked``. Very many closed lanes may only wait for a retry, and
    are not scanned without it.
    """

    def __init__(self, *, dlq: bool = False) -> None:
        self.blocked = False
        self._cure = cure(dlq=dlq)
        self._remind_at = float("-inf")

    def remind(self, closed: Iterable[ClosedLane], now: float) -> list[Notice]:
        """Name the blocked keys, the oldest first, once a minute while any is blocked.

        Nothing is named while the oldest block is younger than a minute: its own line has named it.
        """
        if now < self._remind_at or not self.blocked:
            return []
        oldest, count = oldest_blocked(closed)
        if not count:
            self.blocked = False
            return []
        since = min((each.blocked_at for each in oldest), default=now)
        if now - since < REMIND_EVERY:
            self._remind_at = since + REMIND_EVERY
            return []
        self._remind_at = now + REMIND_EVERY
        minutes = (now - since) / 60
        names = ", ".join(map(_named, oldest))
        more = f" and {count - NAMED_MAX:,} more" if count > NAMED_MAX else ""
        keys = "1 key is" if count == 1 else f"{count:,} keys are"
        text = f"{keys} blocked, the oldest for {minutes:.0f} min: {names}{more}. {self._cure}"
        return [Notice(Level.ERROR, text)]


def cure(*, dlq: bool) -> str:
    """Return the advice for blocked keys, with or without a dead-letter topic."""
    if dlq:
        orders = "app.unblock(), app.drop() or app.dead_letter()"
        return f"Mend the handler and restart, or say what becomes of it ({orders})"
    return "Mend the handler and restart, or give a dead-letter topic (dlq=True)"


def oldest_blocked(closed: Iterable[ClosedLane]) -> tuple[list[ClosedLane], int]:
    """Return the lanes that have been blocked for longest, and how many are blocked."""
    blocked = [each for each in closed if each.state is LaneState.BLOCKED]
    return heapq.nsmallest(NAMED_MAX, blocked, key=lambda each: each.blocked_at), len(blocked)


def _named(closed: ClosedLane) -> str:
    where = f"{closed.partition}@{closed.head.offset()}" if closed.head is not None else "nowhere"
    why = f" ({named_kind(kind_of(closed.last))})" if closed.last is not None else ""
    key = "no key" if closed.key is None else f"{closed.key!r:.80}"
    return f"{key} at {where}{why}"
