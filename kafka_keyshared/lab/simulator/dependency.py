"""Outage of a dependency of all handlers.

Their calls fail or postpone their records."""

from __future__ import annotations

from random import Random

from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.lab.simulator.member_events import HealthLooked
from kafka_keyshared.lab.simulator.world import World

LOOK_EVERY = 1.0
"""Seconds between two health checks of the members, during the outage and for a while after."""

LOOK_AFTER = 25.0


def dependency_away(world: World, chance: Random) -> bool:
    """Make the handlers of all members fail, or postpone records, for a while."""
    if world.around.away is not None:
        return False
    put_off = chance.random() < 0.3
    away = Disposition.PUT_OFF if put_off else Disposition.ERROR
    world.let_go_away(away)
    world.timeline.after(chance.uniform(10.0, 20.0), lambda: bring_back(world, away))
    _look(world, until=None)
    return True


def bring_back(world: World, away: Disposition) -> None:
    """End the outage, unless it is over."""
    if world.around.away is away:
        world.let_go_away(None)
        _look(world, until=world.timeline.now + LOOK_AFTER)


def _look(world: World, until: float | None) -> None:
    """Check the members' health regularly, until that time or as long as the outage lasts."""

    def look() -> None:
        if world.finishing or (until is None) == (world.around.away is None):
            return
        if until is not None and world.timeline.now > until:
            return
        world.history.tell(HealthLooked())
        world.timeline.after(LOOK_EVERY, look)

    world.timeline.after(LOOK_EVERY, look)
