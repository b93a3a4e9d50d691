"""Start and end of a group-less reading, as requested and as positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.offset_queries import ask_bounds
from kafka_keyshared.client.port import LogBounds
from kafka_keyshared.client.topics import ANSWER_TIMEOUT
from kafka_keyshared.errors import BrokerUnavailableError, ConfigError
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import TopicPartition, some

log = log_of("kafka_keyshared.reader")

LogsBounds: TypeAlias = Mapping[TopicPartition, LogBounds]
Positions: TypeAlias = dict[TopicPartition, int]


class Moment(NamedTuple):
    """A time in milliseconds since 1970. It means the first record of that time or later."""

    milliseconds: int


Everywhere: TypeAlias = Literal["earliest", "latest"] | int | Moment
"""A bound for all partitions. A number is below 0 and counts offsets back from the end."""


@dataclass(frozen=True, slots=True)
class ReadingBound:
    """A requested start or end of a reading. ``name`` is its name in error messages.

    ``single`` has positions of single partitions; below 0 they count back from the end. A start
    whose ``everywhere`` is None leaves out all other partitions. Such an end does too, unless the
    start has named the partitions. Then the other partitions end at their log ends.
    """

    name: str
    everywhere: Everywhere | None = None
    single: Mapping[TopicPartition, int] = field(default_factory=dict)


def check_pair(start: ReadingBound, until: ReadingBound | None) -> None:
    """Raise :class:`ConfigError` for bounds with no room for a record between them."""
    if until is None:
        return
    first, last = start.everywhere, until.everywhere
    if last == "earliest":
        raise ConfigError(f"{until.name} is earliest, before which there is nothing")
    if first == last == "latest" and not start.single:
        raise ConfigError(
            f"{start.name} is latest and {until.name} too: nothing lies between; let it go on, or "
            "begin earlier"
        )
    if isinstance(first, Moment) and isinstance(last, Moment) and last <= first:
        raise ConfigError(f"{until.name} is not after {start.name}: nothing lies between")
    for partition, offset in until.single.items():
        begin = start.single.get(partition, -1)
        if 0 <= offset <= begin:
            raise ConfigError(
                f"{until.name} {partition}@{offset} is not after {start.name} {partition}@{begin}: "
                "nothing lies between"
            )


def meant(
    partitions: Sequence[TopicPartition], start: ReadingBound, until: ReadingBound | None
) -> list[TopicPartition]:
    """Return those of the existing partitions that are to be read.

    Raises :class:`ConfigError` for a named partition that does not exist or is not read.
    """
    bounds = [start] if until is None else [start, until]
    # A start that only names partitions leaves out the others. Otherwise such an end does.
    only = next((each for each in bounds if each.everywhere is None), None)
    chosen = [each for each in partitions if only is None or each in only.single]
    for bound in bounds:
        for partition in bound.single:
            if partition not in partitions:
                there = [each for each in partitions if each.topic == partition.topic]
                what = f"it has {len(there)}, from 0" if there else "that topic is not read"
                raise ConfigError(
                    f"{bound.name}: there is no partition {partition.partition} of "
                    f"{partition.topic!r}: {what}"
                )
            if only is not None and partition not in chosen:
                raise ConfigError(
                    f"{bound.name} names {partition}, which {only.name} leaves out: name it there "
                    "too"
                )
    return chosen


def ask_logs(consumer: Consumer, partitions: Sequence[TopicPartition]) -> LogsBounds:
    """Return the current start and end of logs.

    Raises :class:`BrokerUnavailableError` naming the partitions without an answer.
    """
    found = ask_bounds(consumer, partitions, ANSWER_TIMEOUT, Seldom(log), consumer.list_topics)
    if missing := [each for each in partitions if each not in found]:
        raise BrokerUnavailableError(
            f"no answer in time where {some(missing)} begin and end ({len(found)} of "
            f"{len(partitions)} partitions have answered); see whether their leaders are up"
        )
    return found


def positions(
    bound: ReadingBound,
    logs: LogsBounds,
    at: Callable[[Moment, Iterable[TopicPartition]], Positions],
) -> Positions:
    """Return the bound as a position in each log. ``at`` looks positions up by time.

    A position may lie before its log's start; the caller handles that. Raises :class:`ConfigError`
    for one beyond its end.
    """
    everywhere = bound.everywhere
    others = [each for each in logs if each not in bound.single]
    found: Positions = {}
    if isinstance(everywhere, Moment):
        found = at(everywhere, others)
    elif everywhere is not None:
        found = {each: _position(everywhere, logs[each]) for each in others}
    for partition, offset in bound.single.items():
        found[partition] = _position(offset, logs[partition]) if offset < 0 else offset
        if offset > logs[partition].end:
            raise ConfigError(
                f"{bound.name} {partition}@{offset}: the log ends at {logs[partition].end}; give "
                "at most that"
            )
    return found


def _position(where: Literal["earliest", "latest"] | int, log_: LogBounds) -> int:
    if where == "earliest":
        return log_.start
    return log_.end if where == "latest" else max(log_.start, log_.end + where)


def ask_at(
    consumer: Consumer, logs: LogsBounds
) -> Callable[[Moment, Iterable[TopicPartition]], Positions]:
    """Return a function that looks positions up by time.

    It returns a log's end where all records are older. It raises :class:`BrokerUnavailableError`
    when the cluster does not answer.
    """

    def at(moment: Moment, partitions: Iterable[TopicPartition]) -> Positions:
        asked = [ClientPartition(*each, moment.milliseconds) for each in partitions]
        try:
            answers = consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT) if asked else []
            failed = next((each.error for each in answers if each.error is not None), None)
        except KafkaException as error:
            failed = error.args[0]
        if failed is not None:
            raise BrokerUnavailableError(
                f"the cluster does not tell which offsets a time means: {failed.str()}; see "
                "whether all partitions have a leader"
            )
        found = {TopicPartition(each.topic, each.partition): each.offset for each in answers}
        # A record that arrived after the end was queried is not part of the reading.
        return {
            each: logs[each].end if offset < 0 else min(offset, logs[each].end)
            for each, offset in found.items()
        }

    return at
