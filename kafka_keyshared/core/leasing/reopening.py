"""Steps of a closed lane: its head retries or settles, it opens.

:mod:`kafka_keyshared.core.failures.follow_up` carries out the decision on a head and calls this
module. The lane opens in the same ``handle`` call in which its head settles, as far as its fence
allows.
"""

from __future__ import annotations

from collections import deque

from kafka_keyshared.core.lanes.closed import ClosedLane, LaneEvent, LaneState
from kafka_keyshared.core.subscription.subscription import Subscription


def advance(sub: Subscription, closed: ClosedLane) -> None:
    """Open the lane or ready its head, as far as fence and delay allow."""
    if closed.fence_at is not None or closed.due is not None:
        return
    if closed.state is LaneState.OPENING:
        open_lane(sub, closed)
    elif closed.state is LaneState.WAITING:
        sub.routing.ready([closed])
    elif closed.state is LaneState.DIVERTED:
        sub.diverted.due[closed] = None


def open_lane(sub: Subscription, closed: ClosedLane) -> None:
    """Open the lane; its waiting records go before all backlog records of its key."""
    sub.closed.open(closed)
    if closed.lane not in sub.diverted.met:
        sub.routing.put_back(closed.waiting())
        return
    # Another partition brought the lane as diverted while a record of this one was retried.
    waiting, where = deque(closed.waiting()), closed.partition
    diverted = ClosedLane(closed.lane, closed.key, LaneState.DIVERTED, None, where, queue=waiting)
    sub.closed.close(diverted)
    sub.look_ahead.grown += 1
    sub.diverted.due[diverted] = None


def settle_head(
    sub: Subscription, closed: ClosedLane, event: LaneEvent = LaneEvent.SETTLED
) -> None:
    """Settle the head, which frees its place in the window, and let the lane go on."""
    closed.on(event)
    closed.head = None
    sub.window.free(1)
    sub.closed.cancel(closed)
    advance(sub, closed)
