"""Somebody looks at the closed lanes of a simulated member, and decides about one of them.

Or about what has come to its dead-letter limit.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import TYPE_CHECKING

from kafka_keyshared.core.events import DlqLimitLifted, LaneAction, LaneOrder
from kafka_keyshared.core.holds import Reason
from kafka_keyshared.core.lanes import ClosedLane, LaneState
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


def order_a_lane(world: World, chance: Random) -> bool:
    """Order that a closed lane be released, or its head be dropped or dead-lettered."""
    present = world.present()
    if not present:
        return False
    member, action = chance.choice(present), chance.choice(list(LaneAction))
    which, of_those = chance.random(), chance.random()

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
            if closed.head is None:
                loop.tell(LaneOrder(sub_name, action, closed.key))
            else:
                place = closed.partition, closed.head.offset()
                loop.tell(LaneOrder(sub_name, action, None, *place))
            loop.lane_answers.clear()

    member.order("look at lanes", look)
    return True
