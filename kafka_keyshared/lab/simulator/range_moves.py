"""Orders that move ranges between workers of a simulated member."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from random import Random

from kafka_keyshared.core.contract.events import AssignRange
from kafka_keyshared.core.routing.ranges import StickyRanges
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.lab.simulator.keys import key_by
from kafka_keyshared.lab.simulator.routings import may_be_withdrawn
from kafka_keyshared.lab.simulator.world import World
from kafka_keyshared.runtime.loop import Loop

UNASSIGNED_SHARE = 0.3
"""The share of the orders that leave slots without a worker, where all slots were declared."""


def assign_a_range(world: World, chance: Random) -> bool:
    """Order that a worker take over a part of a range, preferably with a running record.

    It is one of the workers that every member begins with, present or not. Records for another one
    would still wait at the end. If all slots were declared, the range may have no worker for a
    while.
    """
    sticky = [each for each in world.plan.member.subscriptions if each.routing.mode == "sticky"]
    present = [member for member in world.present() if not member.stopping]
    if not present or not sticky:
        return False
    member, settings = chance.choice(present), chance.choice(sticky)
    worker, which = chance.choice(settings.workers), chance.random()
    part, width, busy = chance.random(), chance.choice((0.0, 0.2, 1.0)), chance.random() < 0.7
    withdrawn = may_be_withdrawn(settings)
    taker = None if withdrawn and chance.random() < UNASSIGNED_SHARE else worker
    back = taker is not None and withdrawn and chance.random() < 0.5

    def order(loop: Loop) -> Generator[None, None, None]:
        yield from ()
        sub = loop.core.subscriptions[settings.name]
        routing = sub.table.routing
        if not isinstance(routing, StickyRanges):
            return
        running = sorted(
            {
                sub.keys.slot(key)
                for (name, _), each in member.pool.seen().items()
                if name == settings.name and each.running is not None
                if (key := key_by(settings, each.running.key())) is not None
            }
        )
        free = routing.uncovered()
        ranges = free if free and (back or not routing.ranges) else routing.ranges
        one = ranges[int(which * len(ranges))]
        middle = one.first + int(part * (one.last - one.first + 1))
        if busy and running and ranges is not free:
            slot = running[int(which * len(running))]
            of_slot = [each for each in ranges if each.first <= slot <= each.last]
            one, middle = (of_slot[0], slot) if of_slot else (one, middle)
        first = middle - int(width * (middle - one.first))
        last = middle + int(width * (one.last - middle))
        # A worker that is away and has no range left is refused: it would have to join first.
        with suppress(ConfigError):
            loop.tell(AssignRange(settings.name, first, last, taker, take_over=True))

    member.order("assign a range", order)
    return True
