"""Somebody looks at the closed lanes of a simulated member, and decides about one of them.

Or about what has come to its dead-letter limit.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import TYPE_CHECKING

from kafka_keyshared.core.events import DlqLimitLifted, LaneAction, LaneOrder
from kafka_keyshared.core.holds import Reason
from kafka_keyshared.core.lane_orders import EVENTS
from kafka_keyshared.core.lanes import LANE_TABLE, ClosedLane, LaneState
from kafka_keyshared.owner.loop import Loop

if TYPE_CHECKING:
    from kafka_keyshared.sim.member import Member
    from kafka_keyshared.sim.world import World


def lift_limits(member: Member) -> None:
    """Order that all partitions of a member go on that their dead-letter limit has stopped."""

    def lift(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        stopped = sorted(loop.core.holds.held_back(Reason.DLQ_LIMIT))
        if stopped:
            member.lifted(stopped)
            loop.tell(DlqLimitLifted(stopped))

    member.order("lift limits", lift)


def release_blocked(member: Member) -> None:
    """Order that all blocked lanes of a member go on, where there are any.

    A mended handler and a restart do that for all but those which are diverted in one partition,
    and blocked in another one of which as many are diverted as may be.
    """

    def blocked() -> list[tuple[str, ClosedLane]]:
        return [
            (sub.name, closed)
            for sub in member.instance.core.subscriptions.values()
            for closed in sub.closed.lanes.values()
            if closed.state is LaneState.BLOCKED
        ]

    def release(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        for name, closed in blocked():
            if closed.head is not None:
                place = closed.partition, closed.head.offset()
                loop.tell(LaneOrder(name, LaneAction.RELEASE, None, *place))
        loop.lane_answers.clear()

    if blocked():
        member.order("release blocked lanes", release)


def order_a_lane(world: World, chance: Random) -> bool:
    """Order that a closed lane be released, or its head be dropped or dead-lettered.

    As many as the plan says are such as its state allows; the others may be refused.
    """
    present = world.present()
    if not present:
        return False
    member, action = chance.choice(present), chance.choice(list(LaneAction))
    which, of_those = chance.random(), chance.random()
    knows = world.chance("who looks after lanes").random() < world.plan.orders_possible

    def look(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        # First a state and then a lane in it: most lanes wait for their next attempt.
        by_state: dict[LaneState, list[tuple[str, ClosedLane]]] = {}
        for sub in loop.core.subscriptions.values():
            for closed in sub.closed.lanes.values():
                by_state.setdefault(closed.state, []).append((sub.name, closed))
        if by_state:
            those = list(by_state.values())[int(which * len(by_state))]
            sub_name, closed = those[int(of_those * len(those))]
            possible = [each for each in EVENTS if EVENTS[each] in LANE_TABLE[closed.state]]
            done = action
            if knows and possible and action not in possible:
                done = possible[int(of_those * 1_000) % len(possible)]
            if closed.head is None:
                loop.tell(LaneOrder(sub_name, done, closed.key))
            else:
                place = closed.partition, closed.head.offset()
                loop.tell(LaneOrder(sub_name, done, None, *place))
            loop.lane_answers.clear()

    member.order("look at lanes", look)
    return True
