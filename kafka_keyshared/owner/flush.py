"""The order to flush: what is leased settles, what has settled is committed."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.owner.loop import Loop
from kafka_keyshared.owner.orders import OrderRefusedError

LOOK_EVERY = 0.01
"""Seconds between two looks at what is still leased: each is one at every slice there is."""


def flush(loop: Loop) -> Generator[None, None, Mapping[TopicPartition, int]]:
    """Wait until all that is leased now has come back, commit, and return what the broker has.

    The answer has the committed position of each partition that has stayed here since. What has
    failed and waits for its next attempt is not leased, and not waited for; nor is what is leased
    meanwhile.
    """
    leased = set(loop.pool.progress())
    look_at = loop.ports.clock()
    while leased:
        yield
        now = loop.ports.clock()
        if now >= look_at:
            look_at = now + LOOK_EVERY
            leased.intersection_update(loop.pool.progress())
    core = loop.core
    while core.commits.in_flight:  # one at a time
        yield
    if loop.commits_stopped:
        raise OrderRefusedError("nothing is committed until the group has assigned partitions anew")
    committable = loop.committable()
    if not committable:
        return {}
    loop.commit(committable)
    states = {each: core.partitions[each] for each in committable if each in core.snapshots.derived}
    wanted = {each: core.snapshots.derived[each].position for each in states}
    while True:
        here = [each for each, state in states.items() if core.partitions.get(each) is state]
        found = {each: core.commits.committed(each) for each in here}
        known = {each: at for each, at in found.items() if at is not None and at >= wanted[each]}
        if len(known) == len(here):
            return known
        yield
