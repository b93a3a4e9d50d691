"""Somebody or something of a simulated world, drawn."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kafka_keyshared.model import TopicPartition

if TYPE_CHECKING:
    from kafka_keyshared.sim.member import Member
    from kafka_keyshared.sim.world import World


def some_member(world: World, chance: Random) -> Member | None:
    """Return a member, if there is one."""
    present = world.present()
    return chance.choice(present) if present else None


def some_partition(world: World, chance: Random) -> TopicPartition:
    """Return a partition."""
    return chance.choice(world.cluster.partitions(world.topics))
