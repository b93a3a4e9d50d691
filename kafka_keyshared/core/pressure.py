"""Back-pressure on single partitions: when what was received of one holds it back.

Other partitions go on all the while. A key that cannot be read yet holds its partition back too
(:mod:`.admission`); every reason that there is stands in :mod:`.holds`.
"""

from __future__ import annotations

from kafka_keyshared.core.burst import Line
from kafka_keyshared.core.commands import Command, Level, Notice
from kafka_keyshared.core.holds import Holds, Reason
from kafka_keyshared.core.subscription import Subscription

PARKED_SHARE = 8
"""Parked records of a partition may fill one part in this many of the window."""


def weigh_parked(holds: Holds, sub: Subscription, now: float) -> list[Command]:
    """Stop fetching where much is parked, and go on where little is left of it."""
    commands: list[Command] = []
    parking = sub.parking
    most = max(1, sub.window.records_max // PARKED_SHARE)
    back = holds.held_back_by(Reason.SET_FULL, sub.name)
    little = [each for each in back if len(parking.parked.get(each, ())) * 2 < most]
    holds.let_go(Reason.SET_FULL, little, sub.name)
    for partition, waiting in parking.parked.items():
        if len(waiting) < most or partition in back or partition in sub.closing:
            continue
        holds.hold_back(Reason.SET_FULL, [partition], sub.name)
        text = (
            f"{partition}: {Reason.SET_FULL}; until "
            f"older records settle, only those before {parking.ceilings.get(partition)} start"
        )
        commands += sub.bursts.held_back.add(Line(text), now)
    return commands


def stop_overfull(holds: Holds, sub: Subscription, assigned: int) -> list[Command]:
    """Stop fetching from partitions whose blocked lanes hold too much; name the key."""
    commands: list[Command] = []
    back = holds.held_back_by(Reason.BLOCKED, sub.name)
    for partition, closed in sub.blocked.take_overfull(assigned).items():
        if partition in back:
            continue
        holds.hold_back(Reason.BLOCKED, [partition], sub.name)
        commands.append(
            Notice(
                Level.ERROR,
                f"{partition} is stopped: records behind blocked keys fill a quarter of the "
                f"window; the key {closed.key!r:.80} was the last to grow. Other partitions go on",
            )
        )
    return commands


def release(holds: Holds, sub: Subscription, assigned: int) -> None:
    """Fetch again from stopped partitions once blocked lanes hold little."""
    back = holds.held_back_by(Reason.BLOCKED, sub.name)
    little = [each for each in back if sub.blocked.holds_little(each, assigned)]
    holds.let_go(Reason.BLOCKED, little, sub.name)
