"""Two observations of a group's commits, and of records at unmoved positions.

It reads those records without joining the group, and commits nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.core.offsets.commit_metadata import LogPosition, Runs, clip, decode
from kafka_keyshared.model import Coordinates, TopicPartition, in_words, some
from kafka_keyshared.observability.doctor.checks import PartitionFacts, running_in
from kafka_keyshared.observability.doctor.progress_checks import (
    NAMED,
    InstanceAnswer,
    Nothing,
    Read,
    RecordFacts,
    Records,
    Standing,
    UnreadPosition,
    age_of,
)

WATCH_SECONDS = 6.0
"""Seconds of observation, longer than the 5 s at which a plain consumer commits."""

LONGEST = 60.0
"""Maximum seconds of observation for a position that may be stuck."""

LOOK_EVERY = 0.5
"""Seconds between two queries while a position has not moved."""

READ_SECONDS = 4.0
"""Seconds to wait for all the records at unmoved positions together."""

ONE_RECORD: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    # One record from each of many partitions is needed, not the records after it.
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 65_536,
    "fetch.wait.max.ms": 50,
}
"""Settings of the client that reads single records."""

_WAIT = 0.1


class Committed(NamedTuple):
    """A group's commit for a partition. ``metadata`` is None where it is no text."""

    position: int
    metadata: str | None


class ProgressObservation(NamedTuple):
    """The observed positions, the records at unmoved ones, and the instance's facts about them."""

    standing: Sequence[Standing]
    records: Records
    told: Mapping[TopicPartition, InstanceAnswer]

    @property
    def seconds(self) -> float:
        """Seconds of observation."""
        return max((each.seconds for each in self.standing), default=0.0)


@dataclass(frozen=True, slots=True)
class Looking:
    """Options for the doctor's observation of a group. Times are in seconds.

    ``watch`` is the duration of the observation; None means until the result is known. A position
    that has stood for ``held_after`` is stuck. ``status_url`` is the status address of an instance.
    ``spark``: also check Spark's requirements on this machine. ``rules`` is a file of Prometheus
    rules, or a dashboard.
    """

    watch: float | None = None
    held_after: float = 60.0
    status_url: str | None = None
    spark: bool = False
    rules: Path | None = None


AS_USUAL = Looking()

Ask = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, Committed]]


def metadata_of(answer: ClientPartition) -> str | None:
    """Return the metadata of a committed position, None for another client's that is no text."""
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
    """Return the state of the positions after that time.

    It ends as soon as all have moved. ``ask`` returns the current commits. A partition that is
    missing in its answer counts as not moved.
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


class ProgressQueries(NamedTuple):
    """The queries that :func:`observe` uses.

    ``watch`` observes positions for some seconds, ``read`` returns the records at offsets. ``told``
    returns an instance's facts about unmoved positions, ``now_ms`` the time in ms since 1970.
    ``note`` receives a message before a long wait.
    """

    watch: Callable[[Sequence[PartitionFacts], float], list[Standing]]
    read: Callable[[Sequence[Coordinates]], Records]
    told: Callable[[Sequence[Standing]], Mapping[TopicPartition, InstanceAnswer]]
    now_ms: Callable[[], int]
    note: Callable[[str], None]


def observe(
    behind: Sequence[PartitionFacts], looking: Looking, ask: ProgressQueries
) -> ProgressObservation:
    """Observe positions, and longer those that may be stuck, unless ``watch`` is given.

    A handler that is slow with an old backlog looks like one that hangs, until its position moves.
    """
    standing = ask.watch(behind, WATCH_SECONDS if looking.watch is None else looking.watch)
    records = dict(ask.read(wanted(standing)))
    seen = ProgressObservation(
        standing, records, ask.told([each for each in standing if not each.moved])
    )
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
    return ProgressObservation(standing, records | dict(ask.read(unread)), seen.told)


def _is_doubtful(each: Standing, seen: ProgressObservation, looking: Looking, now_ms: int) -> bool:
    """Return whether a longer observation of an unmoved position could show more."""
    if each.moved or each.partition in seen.told:
        return False
    record = seen.records.get((each.partition, each.position))
    if isinstance(record, RecordFacts):
        age = age_of(record, now_ms)
        # A record cannot have been held for longer than it exists.
        return age is None or age >= looking.held_after
    return not isinstance(record, Nothing)


def _is_known(found: Read | None) -> bool:
    return found is not None and not isinstance(found, UnreadPosition)


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
    # Offsets unsettled now below the end of the earlier set were unsettled all the time.
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
    """Return the settled offsets beyond the position; empty for foreign text.

    With several subscriptions they are those of the one whose settled offsets end first.

    Text of another log is foreign too: a member ignores it by the same rule.
    """
    every = list(decode(metadata, at).sections.values())
    # There is one section, unless an app fans out. Then a record is done only if all have settled
    # it.
    return min(every, key=lambda runs: runs[-1][1], default=())


def _gaps(position: int, runs: Runs) -> Iterable[tuple[int, int]]:
    for start, end in runs:
        if start > position:
            yield position, start
        position = end


def wanted(standing: Iterable[Standing]) -> list[Coordinates]:
    """Return the few records to read, those at positions first."""
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
    """Return for each the first record at or after it, that there is none, or why it is unknown.

    A record that does not arrive in time may still exist.
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
    late = UnreadPosition(f"it did not come within {seconds:g} s")
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
            found[partition, at] = UnreadPosition(error.str())


def _is_passing(error: KafkaError) -> bool:
    """Return whether a partition's error is not yet a final answer."""
    return error.code() not in {
        KafkaError._PARTITION_EOF,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
