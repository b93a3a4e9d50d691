"""Looks twice at what a group has committed, and at the records at which positions stand still.

It reads those records without joining the group, and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.core.metadata import LogPosition, Runs, clip, decode
from kafka_keyshared.doctor.checks import PartitionFacts, running_in
from kafka_keyshared.doctor.progress_checks import (
    NAMED,
    Nothing,
    Read,
    RecordFacts,
    Records,
    Standing,
    Told,
    Unread,
    age_of,
)
from kafka_keyshared.model import Coordinates, TopicPartition, in_words, some

WATCH_SECONDS = 6.0
"""How long positions are watched: longer than the 5 s at which a plain consumer commits."""

LONGEST = 60.0
"""For so long one that may be stuck is watched on."""

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
    """What became of positions, what stands where they stood still, and what an instance says."""

    standing: Sequence[Standing]
    records: Records
    told: Mapping[TopicPartition, Told]

    @property
    def seconds(self) -> float:
        """For how long they were watched."""
        return max((each.seconds for each in self.standing), default=0.0)


@dataclass(frozen=True, slots=True)
class Looking:
    """How the doctor looks whether a group gets on; times are in seconds.

    ``watch`` is for how long positions are watched; None: until it is known. One that has stood
    for ``held_after`` is stuck. ``status_url`` is where an instance gives its status. ``spark``:
    what Spark needs on this machine is looked at too.
    """

    watch: float | None = None
    held_after: float = 60.0
    status_url: str | None = None
    spark: bool = False


AS_USUAL = Looking()

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
) -> list[Standing]:
    """Return what became of the positions within that time.

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
            partition
            for partition in waiting
            if partition not in latest or latest[partition].position == first[partition].committed
        ]
    took = clock() - began
    return [
        _standing(partition, facts, latest.get(partition))._replace(seconds=took)
        for partition, facts in first.items()
    ]


class Asking(NamedTuple):
    """Whom :func:`observe` asks: what became of positions within some seconds, what stands at
    offsets, what an instance says of positions that stood still, and the time in ms since 1970.

    ``note`` is told what takes long, before it begins.
    """

    watch: Callable[[Sequence[PartitionFacts], float], list[Standing]]
    read: Callable[[Sequence[Coordinates]], Records]
    told: Callable[[Sequence[Standing]], Mapping[TopicPartition, Told]]
    now_ms: Callable[[], int]
    note: Callable[[str], None]


def observe(behind: Sequence[PartitionFacts], looking: Looking, ask: Asking) -> Seen:
    """Watch positions, and those that may be stuck for longer, unless it is said for how long.

    A handler that is slow with records of an old backlog looks like one that hangs, until its
    position moves.
    """
    standing = ask.watch(behind, WATCH_SECONDS if looking.watch is None else looking.watch)
    records = dict(ask.read(wanted(standing)))
    seen = Seen(standing, records, ask.told([each for each in standing if not each.moved]))
    doubtful = [each for each in standing if _is_doubtful(each, seen, looking, ask.now_ms())]
    left = min(looking.held_after, LONGEST) - seen.seconds
    if looking.watch is not None or not doubtful or left <= 0:
        return seen
    ask.note(
        f"{some(f'{each.partition}@{each.position}' for each in doubtful)} did not move in "
        f"{seen.seconds:.0f} s: watching on for {in_words(left)} at most, to tell slow from stuck "
        "(--watch says for how long)"
    )
    again = {each.partition for each in doubtful}
    facts = [each for each in behind if (each.topic, each.partition) in again]
    later = {
        each.partition: each._replace(seconds=each.seconds + seen.seconds)
        for each in ask.watch(facts, left)
    }
    standing = [later.get(each.partition, each) for each in standing]
    unread = [each for each in wanted(later.values()) if not _is_known(records.get(each))]
    return Seen(standing, records | dict(ask.read(unread)), seen.told)


def _is_doubtful(each: Standing, seen: Seen, looking: Looking, now_ms: int) -> bool:
    """Say whether a longer look would tell more of a position that stood still."""
    if each.moved or each.partition in seen.told:
        return False
    record = seen.records.get((each.partition, each.position))
    if isinstance(record, RecordFacts):
        age = age_of(record, now_ms)
        # A record cannot have been held for longer than it is there.
        return age is None or age >= looking.held_after
    return not isinstance(record, Nothing)


def _is_known(found: Read | None) -> bool:
    return found is not None and not isinstance(found, Unread)


def _standing(partition: TopicPartition, facts: PartitionFacts, now: Committed | None) -> Standing:
    position = facts.committed or 0
    if now is not None and now.position != position:
        return Standing(partition, now.position, facts.end, moved=True)
    at = LogPosition(partition, position, facts.topic_id)
    before = _settled(facts.metadata, at)
    after = before if now is None else _settled(now.metadata, at)
    running, _ = running_in(facts.metadata if now is None else now.metadata, at)
    if not after:
        return Standing(partition, position, facts.end, moved=False, running=running)
    # What is unsettled below the end of the earlier set was so all the while.
    known = (before or after)[-1][1]
    return Standing(
        partition,
        position,
        facts.end,
        moved=False,
        goes_on=after != before,
        held=clip(tuple(_gaps(position, after)), position, known),
        settled_end=after[-1][1],
        running=running,
    )


def _settled(metadata: str | None, at: LogPosition) -> Runs:
    """Return what every subscription has settled beyond the position; empty for foreign text.

    Text of another log is foreign too: a member ignores it by the same rule.
    """
    every = list(decode(metadata, at).sections.values())
    # There is one, until an app fans out; then what one of them lacks is not done.
    return min(every, key=lambda runs: runs[-1][1], default=())


def _gaps(position: int, runs: Runs) -> Iterable[tuple[int, int]]:
    for start, end in runs:
        if start > position:
            yield position, start
        position = end


def wanted(standing: Iterable[Standing]) -> list[Coordinates]:
    """Return which records are worth a look: few, those at positions first."""
    still = [each for each in standing if not each.moved]
    return [(each.partition, each.position) for each in still] + [
        (each.partition, offset)
        for each in still[:NAMED]
        for offset in each.held_offsets(NAMED + 1)
        if offset != each.position
    ]


def read_records(
    consumer: Consumer,
    records: Sequence[Coordinates],
    seconds: float = READ_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Coordinates, Read]:
    """Return the first record at or after each of them, that there is none, or why none is known.

    One that does not come in time may be there all the same.
    """
    found: dict[Coordinates, Read] = {}
    give_up = clock() + seconds
    left = list(records)
    while left and clock() < give_up:
        # A partition can be read at one offset at a time.
        turn = dict(reversed(left))
        left = [each for each in left if turn[each[0]] != each[1]]
        _read_turn(consumer, turn, found, give_up, clock)
    consumer.unassign()
    late = Unread(f"it did not come within {seconds:g} s")
    return {each: found.get(each, late) for each in records}


def _read_turn(
    consumer: Consumer,
    turn: Mapping[TopicPartition, int],
    found: dict[Coordinates, Read],
    give_up: float,
    clock: Callable[[], float],
) -> None:
    consumer.assign([ClientPartition(*partition, offset) for partition, offset in turn.items()])
    open_ = dict(turn)
    while open_ and clock() < give_up:
        message = consumer.poll(_WAIT)
        if message is None:
            continue
        error: KafkaError | None = message.error()
        partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
        if partition not in open_ or (error is not None and _is_passing(error)):
            continue
        at = open_.pop(partition)
        offset = int(message.offset() or 0)
        if error is None:
            kind, stamp = message.timestamp()
            found[partition, at] = RecordFacts(offset, message.key(), stamp if kind else None)
        elif error.code() == KafkaError._PARTITION_EOF:
            found[partition, at] = Nothing(offset)
        else:
            found[partition, at] = Unread(error.str())


def _is_passing(error: KafkaError) -> bool:
    """Say whether an error of a partition is no answer yet."""
    return error.code() not in {
        KafkaError._PARTITION_EOF,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
