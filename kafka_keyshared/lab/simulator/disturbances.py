"""Disturbances of a simulated run that is not yet healed.

Each has its own clock and dice. A disturbance is a function here, a line in :data:`DISTURBANCES`
and one in :data:`~.disturbance_rates.RATES`. A seed has some of them, as its plan says. One more
does not change when the others happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TypeAlias

from kafka_keyshared.lab.simulator import worker_faults
from kafka_keyshared.lab.simulator.copied_texts import copy_a_text
from kafka_keyshared.lab.simulator.dependency import dependency_away
from kafka_keyshared.lab.simulator.disturbance_rates import RATES
from kafka_keyshared.lab.simulator.keys import registries
from kafka_keyshared.lab.simulator.lane_orders import order_a_lane
from kafka_keyshared.lab.simulator.pauses import pause_by_hand
from kafka_keyshared.lab.simulator.range_moves import assign_a_range
from kafka_keyshared.lab.simulator.rights_disturbances import refuse_a_topic, refuse_the_group
from kafka_keyshared.lab.simulator.world import World

MEMBERS_MOST = 4
PARTITIONS_MOST = 12

DEADLY_MOST = 6
"""Most records at a time that end each process that runs them."""


Disturbance: TypeAlias = Callable[[World, Random], bool]
"""A disturbance of the given world, with its own dice.

It returns whether there was anything to disturb.
"""


class Disturbances:
    """Disturbs a world at random moments, by its plan, until it is healed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._refill = world.chance("refill")
        world.reached.update(dict.fromkeys(DISTURBANCES, 0))

    def begin(self) -> None:
        """Start to disturb the world."""
        for name, strength in self._world.plan.disturbances.items():
            self._next(name, RATES[name] / strength)

    def _next(self, name: str, every: float) -> None:
        chance = self._world.chance(f"disturbance: {name}")

        def disturb() -> None:
            world = self._world
            if world.healed:
                return
            if DISTURBANCES[name](world, chance):
                world.reached[name] += 1
            if self._refill.random() < 0.5:
                world.refill()
            self._next(name, every)

        self._world.timeline.after(chance.expovariate(1 / every), disturb)


# --- members ---


def join(world: World, chance: Random) -> bool:
    """Add one more member."""
    del chance
    if len(world.present()) >= MEMBERS_MOST:
        return False
    world.add_member()
    return True


JOIN_STEPS = 0.01
"""Seconds in which a join takes its first steps, unless others keep the group waiting."""

STOPPED_JOINING = 0.5
"""The share of members that are stopped while they join. Half of these are killed instead."""


def stop(world: World, chance: Random) -> bool:
    """Stop a member in order: a present one, or one that is just starting."""
    if chance.random() < STOPPED_JOINING and len(world.present()) < MEMBERS_MOST:
        comes = world.add_member()
        end = comes.stop if chance.random() < 0.5 else comes.kill
        world.timeline.after(JOIN_STEPS * chance.random() ** 3, end)
        return True
    member = world.some_member(chance)
    if member is not None:
        member.stop()
    return member is not None


def kill(world: World, chance: Random) -> bool:
    """Kill a process without notice."""
    member = world.some_member(chance)
    if member is not None:
        member.kill()
    return member is not None


def end_with_a_record(world: World, chance: Random) -> bool:
    """Choose a record that ends the process of a member that runs it, 3 to 8 times."""
    partition = world.some_partition(chance)
    log = world.cluster.log(partition)
    if len(world.deadly) >= DEADLY_MOST or not world.cluster.known(partition):
        return False
    stored = world.cluster.commits.stored.get(partition)
    position = log.start if stored is None else max(log.start, stored.position or 0)
    # The oldest uncommitted record, another one, or the next one to be written.
    offset = chance.choice((position, chance.randint(position, max(position, log.end))))
    world.deadly[partition, offset] = chance.randint(3, 8)
    return True


def throw_out(world: World, chance: Random) -> bool:
    """Make the group expel a member."""
    member = world.some_member(chance)
    if member is not None:
        world.cluster.throw_out(member.client)
    return member is not None


def throw_out_asking(world: World, chance: Random) -> bool:
    """Make the group expel a member while it waits long for an answer: others are quicker."""
    member = world.some_member(chance)
    if member is None or len(world.present()) < 2:
        return False
    member.client.asking.next_unheard = True
    world.cluster.throw_out(member.client)
    until = world.timeline.now + 5.0

    def again() -> None:
        if member.alive and not world.healed and world.timeline.now < until:
            if member.client.asking.open:
                world.cluster.throw_out(member.client)
            else:
                world.timeline.after(0.05, again)

    world.timeline.after(0.5, again)
    return True


def raise_in_a_callback(world: World, chance: Random) -> bool:
    """Make the next rebalance callback of a member raise, which ends its process."""
    member = world.some_member(chance)
    if member is None or member.raises:
        return False
    member.raises = True
    return True


def stand_still(world: World, chance: Random) -> bool:
    """Block an owner for a moment."""
    return _hold_up(world, chance, chance.uniform(0.01, 2.0))


def stand_still_long(world: World, chance: Random) -> bool:
    """Block an owner for longer than its session and its poll interval."""
    return _hold_up(world, chance, chance.uniform(5.0, 90.0))


def _hold_up(world: World, chance: Random, seconds: float) -> bool:
    member = world.some_member(chance)
    if member is None or member.stands_still:
        return False  # otherwise it would hardly ever have a round
    member.held_up = seconds
    return True


# --- brokers ---


def outage(world: World, chance: Random) -> bool:
    """Take brokers down for a while: all, the coordinator, or one leader."""
    cluster, seconds = world.cluster, chance.expovariate(1 / 5.0)
    which = chance.random()
    if which < 0.4:
        cluster.outage(seconds)
    elif which < 0.7:
        cluster.coordinator_away(seconds)
    else:
        cluster.leader_away(world.some_partition(chance), seconds)
    return True


def cut(world: World, chance: Random) -> bool:
    """Cut a member off from its brokers for a while."""
    member = world.some_member(chance)
    if member is not None:
        member.client.cut_off(chance.expovariate(1 / 5.0))
    return member is not None


def _for_a_while(*names: str) -> Callable[[World, Random], bool]:
    """Return a disturbance that sets one of these faults for a while."""

    def disturb(world: World, chance: Random) -> bool:
        faults, name = world.cluster.faults, chance.choice(names)
        setattr(faults, name, chance.choice((0.05, 0.3, 1.0)))
        world.timeline.after(chance.expovariate(1 / 3.0), lambda: setattr(faults, name, 0.0))
        return True

    return disturb


def lose_registry(world: World, chance: Random) -> bool:
    """Make some keys unreadable to key functions for a while."""
    if not registries(world.plan.member.subscriptions):
        return False
    world.read_keys(away=True)
    world.timeline.after(chance.expovariate(1 / 1.5), lambda: world.read_keys(away=False))
    return True


def forget_schema(world: World, chance: Random) -> bool:
    """Make the schema of some records unknown to key functions until it is registered."""
    if not registries(world.plan.member.subscriptions):
        return False
    world.read_keys(unregistered=True)
    world.timeline.after(chance.expovariate(1 / 1.5), lambda: world.read_keys(unregistered=False))
    return True


# --- logs ---


def compact(world: World, chance: Random) -> bool:
    """Remove records that a later one with the same key follows."""
    world.cluster.compact(world.some_partition(chance), chance.choice((0.3, 1.0)))
    return True


def retention(world: World, chance: Random) -> bool:
    """Remove the beginning of a log, read or unread."""
    cluster, partition = world.cluster, world.some_partition(chance)
    log = cluster.log(partition)
    cluster.retain_from(partition, chance.randint(log.start, log.end))
    return True


def transaction(world: World, chance: Random) -> bool:
    """Write in a transaction, which ends later."""
    cluster, partition = world.cluster, world.some_partition(chance)
    log = cluster.log(partition)
    if log.has_open_transaction or not cluster.known(partition):
        return False
    made = log.made
    keys = [world.key() for _ in range(chance.randint(1, 20))]
    cluster.append(partition, keys, in_transaction=True)
    commit = chance.random() < 0.6
    seconds = chance.expovariate(1 / 0.5)

    def end() -> None:
        if log.made == made:
            cluster.end_transaction(partition, commit=commit)

    world.timeline.after(seconds, end)
    return True


def remake(world: World, chance: Random) -> bool:
    """Delete a topic and create it again. Its offsets start over."""
    topic = chance.choice(world.topics)
    if not all(map(world.cluster.known, world.cluster.partitions([topic]))):
        return False
    world.cluster.remake(topic)
    for partition in world.cluster.partitions([topic]):
        for _ in range(chance.choice((0, 0, 1, 5))):
            world.cluster.new_leader(partition)  # so the epoch does not tell which log it is
    return True


def cut_log_off(world: World, chance: Random) -> bool:
    """Elect a leader that lagged behind. The log may end before a position that was read."""
    cluster, partition = world.cluster, world.some_partition(chance)
    log = cluster.log(partition)
    if log.start == log.end or not cluster.known(partition):
        return False
    cluster.cut_off(partition, max(log.start, log.end - chance.choice((1, 5, 50))))
    return True


def add_partition(world: World, chance: Random) -> bool:
    """Add a partition to a topic."""
    topic = chance.choice(world.topics)
    if len(world.cluster.topics[topic]) >= PARTITIONS_MOST:
        return False
    world.cluster.add_partition(topic)
    return True


def take_other_metadata(world: World, chance: Random) -> bool:
    """Change the metadata limit of the brokers, as after their restart."""
    world.cluster.take_metadata(chance.choice((4_096, 2_000, 400, 160, 100, 60, 1)))
    return True


DISTURBANCES: Mapping[str, Disturbance] = {
    "a member joined": join,
    "a member was stopped": stop,
    "a member was killed": kill,
    "a record became deadly": end_with_a_record,
    "a lane was ordered about": order_a_lane,
    "somebody paused and resumed": pause_by_hand,
    "a member was thrown out": throw_out,
    "a member that asks was thrown out": throw_out_asking,
    "a callback raised": raise_in_a_callback,
    "handlers hung": worker_faults.hang,
    "a worker that joins went": worker_faults.come_and_go,
    "a worker died": worker_faults.kill_worker,
    "a worker was added": worker_faults.add_worker,
    "a worker that filters was added": worker_faults.add_filtering,
    "a worker was given other filters": worker_faults.change_filters,
    "a worker was dismissed": worker_faults.dismiss_worker,
    "a subscription was resized": worker_faults.resize,
    "a range was assigned": assign_a_range,
    "an owner stood still": stand_still,
    "an owner stood still for long": stand_still_long,
    "the brokers were away": outage,
    "a member was cut off": cut,
    "commits went wrong": _for_a_while(
        *("commit_refused", "commit_partly", "commit_unheard", "commit_dropped"),
        *("commit_late", "commit_given_up", "commit_given_up", "commit_given_up"),
    ),
    "questions went wrong": _for_a_while(
        "committed_unanswered", "committed_partly", "bounds_unanswered", "slow"
    ),
    "fetches went wrong": _for_a_while(
        *("fetch_raises", "pause_refused", "seek_refused", "restart_late"),
        *("out_of_range", "fetch_errors"),
    ),
    "a right on a topic was away": refuse_a_topic,
    "the right on the group was away": refuse_the_group,
    "keys could not be read": lose_registry,
    "a schema was unknown": forget_schema,
    "a text of another log was copied": copy_a_text,
    "brokers took other metadata": take_other_metadata,
    "a dependency was away": dependency_away,
    "a log was compacted": compact,
    "retention came by": retention,
    "a topic was made anew": remake,
    "a log was cut off": cut_log_off,
    "a transaction was written": transaction,
    "a partition was added": add_partition,
}
"""The function of each disturbance, by its name (:data:`~.disturbance_rates.RATES`)."""
