"""Orders for closed lanes of a simulated member."""

from __future__ import annotations

from collections.abc import Generator
from random import Random

from kafka_keyshared.core.contract.events import LaneAction, LaneOrder
from kafka_keyshared.core.failures.lane_actions import EVENTS
from kafka_keyshared.core.lanes.closed import LANE_TABLE, ClosedLane, LaneState
from kafka_keyshared.lab.simulator.world import World
from kafka_keyshared.runtime.loop import Loop


def order_a_lane(world: World, chance: Random) -> bool:
    """Order a closed lane to be released, or its head to be dropped or dead-lettered.

    The plan says which share of the orders fits the state of the lane. The others may be refused.
    """
    present = world.present()
    if not present:
        return False
    member, action = chance.choice(present), chance.choice(list(LaneAction))
    which, of_those = chance.random(), chance.random()
    knows = world.chance("who looks after lanes").random() < world.plan.orders_possible

    def look(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        # First choose a state and then a lane in it: most lanes wait for their next attempt.
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
