"""Commit texts of other logs beside the positions of a simulated group.

A mirror leaves them: it translates the position and not the text. So does a tool that copies
offsets to another partition or topic, and a backup that is restored under the same name. The
position is good: everything before it has settled. A reader that believed the text would leave out
records that never ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from kafka_keyshared.core.offsets.commit_metadata import LogPosition, Runs, encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried
from kafka_keyshared.lab.simulator.topic_names import topic_id
from kafka_keyshared.lab.simulator.world import World
from kafka_keyshared.model import TopicPartition

LOOK_EVERY = 0.02
GIVE_UP_AFTER = 5.0
"""Seconds between two checks that no member has a partition, and seconds until that is given up.

A member that has it would overwrite the text.
"""

Moved = Callable[[LogPosition, Random], LogPosition]


def _mirrored(at: LogPosition, chance: Random) -> LogPosition:
    """Shift the position: the mirror has more records in front than the source, or fewer."""
    shift = chance.choice((-50, -3, 1, 5, 50))
    return at._replace(offset=at.offset + (shift if at.offset + shift >= 0 else 7))


def _of_another_topic(at: LogPosition, chance: Random) -> LogPosition:
    """Take the id of an earlier topic or of one on another cluster, with the same numbers."""
    return at._replace(topic_id=topic_id("elsewhere", chance.randrange(9)))


def _of_another_partition(at: LogPosition, chance: Random) -> LogPosition:
    topic, number = at.partition
    return at._replace(partition=TopicPartition(topic, number + chance.randint(1, 3)))


def _of_another_name(at: LogPosition, chance: Random) -> LogPosition:
    del chance
    return at._replace(partition=TopicPartition("elsewhere", at.partition.partition))


KINDS: Mapping[str, Moved] = {
    "began beside a text for another position": _mirrored,
    "began beside a text of another topic id": _of_another_topic,
    "began beside a text of another partition": _of_another_partition,
    "began beside a text of another topic name": _of_another_name,
}
"""Change of a text's log and position against its place, by the name of the counter."""


def copy_a_text(world: World, chance: Random) -> bool:
    """Write a text of another log beside a position once no member has the partition."""
    cluster, partition = world.cluster, world.some_partition(chance)
    kind = chance.choice(list(KINDS))
    until = world.timeline.now + GIVE_UP_AFTER

    def look() -> None:
        if world.healed or world.timeline.now > until:
            return
        stored = cluster.commits.stored.get(partition)
        taken = any(partition in each.fetcher.parts for each in cluster.clients)
        if stored is None or stored.position is None or taken:
            world.timeline.after(LOOK_EVERY, look)
            return
        known = cluster.topic_id(partition.topic) if cluster.settings.tells_ids else None
        at = KINDS[kind](LogPosition(partition, stored.position, known), chance)
        names = [each.name for each in world.plan.member.subscriptions]
        end = cluster.log(partition).end
        text = encode(
            at,
            {name: _runs(at.offset, end, chance) for name in names},
            notes={name: _notes(at.offset, end, chance) for name in names},
        ).text
        cluster.commits.copy_text(partition, text, kind)

    look()
    return True


def _runs(position: int, end: int, chance: Random) -> Runs:
    """Return runs that would cover much of the log beyond the position, if they were believed."""
    runs = []
    start = position + chance.randint(0, 2)
    while start < max(end, position + 5):
        until = start + chance.randint(1, 20)
        runs.append((start, until))
        start = until + chance.randint(1, 3)
    return tuple(runs)


def _notes(position: int, end: int, chance: Random) -> LaneNotes:
    there = range(position, max(end, position + 5))
    tried = {each: Tried(9, chance.random() < 0.5) for each in there if chance.random() < 0.3}
    return LaneNotes(frozenset({chance.randbytes(16)}), tried)
