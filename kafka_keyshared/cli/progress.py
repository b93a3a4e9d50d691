"""Looks twice at what a group has committed, and at the records at which positions stand still.

It reads those records without joining the group, and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.cli.checks import PartitionFacts
from kafka_keyshared.cli.progress_checks import NAMED, RecordFacts, Standing
from kafka_keyshared.core.metadata import Runs, clip, decode
from kafka_keyshared.model import TopicPartition

LOOK_EVERY = 0.5
"""Seconds between two looks while something has yet to move."""

READ_SECONDS = 4.0
"""How long the records at positions that stand still are waited for, all together."""

ONE_RECORD: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # A record from each of many partitions is wanted, not what lies behind it.
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 65_536,
    "fetch.wait.max.ms": 50,
}
"""Settings of the client that reads single records."""

_WAIT = 0.1


class Committed(NamedTuple):
    """What a group has committed for a partition; ``metadata`` is None where it is no text."""

    position: int
    metadata: str | None


class Seen(NamedTuple):
    """What became of positions, in how many seconds, and the records where they stood still."""

    standing: list[Standing]
    seconds: float
    records: dict[tuple[TopicPartition, int], RecordFacts]


Ask = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, Committed]]


def metadata_of(answer: ClientPartition) -> str | None:
    """Return what was committed beside a position; another client's need not be text."""
    try:
        return answer.metadata
    except UnicodeDecodeError:
        return None


def watch(
    behind: Sequence[PartitionFacts],
    ask: Ask,
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> tuple[list[Standing], float]:
    """Return what became of the positions within that time, and how long that was.

    It ends as soon as all have moved. ``ask`` tells what is committed now; a partition of which it
    does not tell counts as not moved.
    """
    began = clock()
    first = {TopicPartition(each.topic, each.partition): each for each in behind}
    latest: dict[TopicPartition, Committed] = {}
    waiting = list(first)
    while waiting and (left := seconds - (clock() - began)) > 0:
        pause(min(LOOK_EVERY, left))
        latest |= ask(waiting)
        waiting = [
            place
            for place in waiting
            if place not in latest or latest[place].position == first[place].committed
        ]
    return [_standing(place, facts, latest.get(place)) for place, facts in first.items()], (
        clock() - began
    )


def _standing(place: TopicPartition, facts: PartitionFacts, now: Committed | None) -> Standing:
    position = facts.committed or 0
    if now is not None and now.position != position:
        return Standing(place, now.position, facts.end, moved=True)
    before = _settled(facts.metadata, position)
    after = before if now is None else _settled(now.metadata, position)
    if not after:
        return Standing(place, position, facts.end, moved=False)
    # What is unsettled below the end of the earlier set was so all the while.
    known = (before or after)[-1][1]
    return Standing(
        place,
        position,
        facts.end,
        moved=False,
        goes_on=after != before,
        held=clip(tuple(_gaps(position, after)), position, known),
        settled_end=after[-1][1],
    )


def _settled(metadata: str | None, position: int) -> Runs:
    """Return what every subscription has settled beyond the position; empty for foreign text."""
    every = list(decode(metadata, position).sections.values())
    # There is one, until an app fans out; then what one of them lacks is not done.
    return min(every, key=lambda runs: runs[-1][1], default=())


def _gaps(position: int, runs: Runs) -> Iterable[tuple[int, int]]:
    for start, end in runs:
        if start > position:
            yield position, start
        position = end


def wanted(standing: Iterable[Standing]) -> list[tuple[TopicPartition, int]]:
    """Return the places of the records that are worth a look: few, those at positions first."""
    still = [each for each in standing if not each.moved]
    return [(each.place, each.position) for each in still] + [
        (each.place, offset)
        for each in still[:NAMED]
        for offset in each.held_offsets(NAMED + 1)
        if offset != each.position
    ]


def read_records(
    consumer: Consumer,
    places: Sequence[tuple[TopicPartition, int]],
    seconds: float = READ_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[tuple[TopicPartition, int], RecordFacts]:
    """Return the first record at or after each place, where one comes in time."""
    found: dict[tuple[TopicPartition, int], RecordFacts] = {}
    give_up = clock() + seconds
    left = list(places)
    while left and clock() < give_up:
        # A partition can be read at one place at a time.
        turn = dict(reversed(left))
        left = [each for each in left if turn[each[0]] != each[1]]
        _read_turn(consumer, turn, found, give_up, clock)
    consumer.unassign()
    return found


def _read_turn(
    consumer: Consumer,
    turn: Mapping[TopicPartition, int],
    found: dict[tuple[TopicPartition, int], RecordFacts],
    give_up: float,
    clock: Callable[[], float],
) -> None:
    consumer.assign([ClientPartition(*place, offset) for place, offset in turn.items()])
    open_ = dict(turn)
    while open_ and clock() < give_up:
        message = consumer.poll(_WAIT)
        if message is None:
            continue
        error: KafkaError | None = message.error()
        place = TopicPartition(str(message.topic()), int(message.partition() or 0))
        if place not in open_ or (error is not None and _is_passing(error)):
            continue
        # One that may not be read, or behind which there is no record, is done too.
        at = open_.pop(place)
        if error is None:
            kind, stamp = message.timestamp()
            offset = int(message.offset() or 0)
            found[place, at] = RecordFacts(offset, message.key(), stamp if kind else None)


def _is_passing(error: KafkaError) -> bool:
    """Say whether an error of a partition is no answer yet."""
    return error.code() not in {
        KafkaError._PARTITION_EOF,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
