"""A dependency of all handlers that is away for a while: calls fail or put their records off."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kafka_keyshared.core.dispositions import Disposition
from kafka_keyshared.core.status import take
from kafka_keyshared.core.surroundings import Surroundings
from kafka_keyshared.diagnosis.causes import MOST_ATTEMPTS_FAIL
from kafka_keyshared.diagnosis.judge import diagnose
from kafka_keyshared.sim.happenings import DependencyAway, HealthLooked

if TYPE_CHECKING:
    from kafka_keyshared.sim.member import Member
    from kafka_keyshared.sim.world import World

LOOK_EVERY = 1.0
"""Seconds between two looks at what the members say, while it is away and for a while after."""

LOOK_AFTER = 25.0


def dependency_away(world: World, chance: Random) -> bool:
    """Let the handlers of all members fail, or put records off, for a while."""
    if world.around.away is not None:
        return False
    put_off = chance.random() < 0.3
    away = Disposition.PUT_OFF if put_off else Disposition.ERROR
    let_go_away(world, away)
    world.timeline.after(chance.uniform(10.0, 20.0), lambda: bring_back(world, away))
    _look(world, until=None)
    return True


def let_go_away(world: World, away: Disposition | None) -> None:
    """Let the dependency be away from now on, or back with None."""
    world.around.away = away
    for member in world.present():
        member.handlers.away = away
    world.history.tell(DependencyAway(away is not None))


def bring_back(world: World, away: Disposition) -> None:
    """Let it be there again, unless it is already."""
    if world.around.away is away:
        let_go_away(world, None)
        _look(world, until=world.timeline.now + LOOK_AFTER)


def _look(world: World, until: float | None) -> None:
    """Have the members looked at now and then, until that time or as long as it is away."""

    def look() -> None:
        if world.finishing or (until is None) == (world.around.away is None):
            return
        if until is not None and world.timeline.now > until:
            return
        world.history.tell(HealthLooked())
        world.timeline.after(LOOK_EVERY, look)

    world.timeline.after(LOOK_EVERY, look)


def names_an_outage(member: Member, wall: float) -> frozenset[str]:
    """Return the subscriptions of a member of which its diagnosis says that most attempts fail.

    Of a subscription that has it for a topic or a partition only, nothing is said.
    """
    core, pool = member.instance.core, member.pool
    around = Surroundings(
        wall=wall,
        started_at=0.0,
        phase="running",
        joined=True,
        group="group",
        pool="",
        polled_at=None,
        poll_used=0.0,
        log_ends={},
    )
    status = take(core, pool.progress(), wall, around)
    return frozenset(
        each.subscription
        for each in diagnose(status).findings
        if each.code == MOST_ATTEMPTS_FAIL.code and not each.topic
    )
