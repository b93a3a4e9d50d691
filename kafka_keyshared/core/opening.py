"""How a closed lane goes on: its head is readied, or settles, and the lane opens.

Whoever decides what becomes of a head (:mod:`.failures`, :mod:`.dead_letters`) ends up here: the
lane opens in the same ``handle`` call in which its head settles, as far as its fence allows.
"""

from __future__ import annotations

from collections import deque

from kafka_keyshared.core.lanes import ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.subscription import Subscription


def advance(sub: Subscription, closed: ClosedLane) -> None:
    """Open the lane or ready its head, as far as fence and delay allow."""
    if closed.fence_at is not None or closed.due is not None:
        return
    if closed.state is LaneState.OPENING:
        open_lane(sub, closed)
    elif closed.state is LaneState.WAITING:
        sub.ready([closed])
    elif closed.state is LaneState.DIVERTED:
        sub.diverted.due[closed] = None


def open_lane(sub: Subscription, closed: ClosedLane) -> None:
    """Open the lane; what waited in it goes before anything its key has in a backlog."""
    sub.closed.open(closed)
    if closed.lane not in sub.diverted.met:
        sub.put_back(closed.waiting())
        return
    # It came diverted with another partition while a record of this one was tried again.
    waiting, where = deque(closed.waiting()), closed.partition
    diverted = ClosedLane(closed.lane, closed.key, LaneState.DIVERTED, None, where, queue=waiting)
    sub.closed.close(diverted)
    sub.look_ahead.grown += 1
    sub.diverted.due[diverted] = None


def settle_head(
    sub: Subscription, closed: ClosedLane, event: LaneEvent = LaneEvent.SETTLED
) -> None:
    """Take the head for settled, which frees its place in the window; the lane goes on."""
    closed.on(event)
    closed.head = None
    sub.window.free(1)
    sub.closed.cancel(closed)
    advance(sub, closed)
