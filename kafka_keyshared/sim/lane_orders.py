"""Somebody looks at the closed lanes of a simulated member, and decides about one of them."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import TYPE_CHECKING

from kafka_keyshared.core.events import LaneAction, LaneOrder
from kafka_keyshared.owner.loop import Loop

if TYPE_CHECKING:
    from kafka_keyshared.sim.world import World


def order_a_lane(world: World, chance: Random) -> bool:
    """Order that a closed lane be released, or its head be dropped or dead-lettered."""
    present = world.present()
    if not present:
        return False
    member, action = chance.choice(present), chance.choice(list(LaneAction))
    which = chance.random()

    def look(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        every = [
            (sub.name, closed)
            for sub in loop.core.subscriptions.values()
            for closed in sub.closed.lanes.values()
        ]
        if every:
            sub, closed = every[int(which * len(every))]
            if closed.head is None:
                loop.tell(LaneOrder(sub, action, closed.key))
            else:
                place = closed.partition, closed.head.offset()
                loop.tell(LaneOrder(sub, action, None, *place))
            loop.lane_answers.clear()

    member.order("look at lanes", look)
    return True
