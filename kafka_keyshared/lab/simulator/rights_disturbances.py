"""Disturbances that remove a right on a topic or the group."""

from __future__ import annotations

from random import Random

from kafka_keyshared.lab.simulator.world import World

USUAL = 1.5
LONG = 30.0
"""Mean seconds for which a right is missing: mostly for a moment, now and then for long."""


MISSING = ((True, True), (True, False), (False, True), (False, True))
"""Whether fetches of a topic are refused, and whether its commits are."""


def refuse_a_topic(world: World, chance: Random) -> bool:
    """Remove a right on a topic for a while."""
    rights, topic = world.cluster.rights, chance.choice(world.topics)
    if topic in rights.fetches or topic in rights.commits:
        return False
    fetches, commits = chance.choice(MISSING)
    rights.refuse(topic, fetches=fetches, commits=commits)
    world.timeline.after(_seconds(chance), lambda: rights.grant([topic]))
    return True


def refuse_the_group(world: World, chance: Random) -> bool:
    """Remove the right on the group for a while."""
    rights = world.cluster.rights
    if rights.group:
        return False
    rights.refuse_group()
    world.timeline.after(_seconds(chance), rights.grant_group)
    return True


def _seconds(chance: Random) -> float:
    return chance.expovariate(1 / (LONG if chance.random() < 0.15 else USUAL))
