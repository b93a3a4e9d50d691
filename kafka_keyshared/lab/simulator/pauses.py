"""Pauses by hand of a simulated member's partitions, resumed later."""

from __future__ import annotations

from random import Random

from kafka_keyshared.lab.simulator.member_orders import EVERYTHING, order_a_pause
from kafka_keyshared.lab.simulator.world import World
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.pauses import Those


def pause_by_hand(world: World, chance: Random) -> bool:
    """Pause everything, a topic or a partition of a member; resume it, or all, later.

    The partition may be assigned to the member or not.
    """
    present = [member for member in world.present() if not member.stopping]
    if not present:
        return False
    member, those = chance.choice(present), _some(world, chance)
    seconds = chance.expovariate(1 / chance.choice((0.1, 1.0, 5.0)))
    back = EVERYTHING if chance.random() < 0.3 else those
    order_a_pause(world.history, member, those, paused=True)

    def again() -> None:
        if member.alive and not member.stopping and not world.healed:
            order_a_pause(world.history, member, back, paused=False)

    world.timeline.after(seconds, again)
    return True


def _some(world: World, chance: Random) -> Those:
    topic, width = chance.choice(world.topics), chance.random()
    partition = TopicPartition(topic, chance.randrange(world.plan.partitions))
    if width < 0.3:
        return EVERYTHING
    return Those(topics=[topic]) if width < 0.6 else Those(partitions=[partition])
