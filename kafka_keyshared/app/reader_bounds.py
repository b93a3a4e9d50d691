"""Start and end bounds of a reading, as given by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from kafka_keyshared.client.bounds import Moment, ReadingBound
from kafka_keyshared.client.patterns import is_pattern
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition


def bound_of(name: str, given: Any, topics: Sequence[str], now: float) -> ReadingBound:
    """Return the bound for a word, a time, a number or positions by partition.

    ``now`` is the time in seconds since 1970. Raises :class:`ConfigError` for an invalid bound.
    """
    match given:
        case ReadingBound():
            return given
        case "earliest" | "latest":
            return ReadingBound(name, given)
        case datetime() if given.tzinfo is None:
            raise ConfigError(f"{name}={given!r} has no time zone; give one, such as UTC")
        case datetime():
            return ReadingBound(name, moment_of(name, int(given.timestamp() * 1_000), now))
        case bool():
            pass
        case int() if given < 0:
            return ReadingBound(name, given)
        case Mapping() if given:
            return ReadingBound(name, None, single_of(name, given, topics))
        case _:
            pass
    raise ConfigError(
        f"{name}={given!r}: give 'earliest', 'latest', a datetime, -n for n offsets before the "
        "end, or offsets by partition such as {0: 120}"
    )


def moment_of(name: str, milliseconds: int, now: float) -> Moment:
    """Return a time as a bound; raise :class:`ConfigError` for one in the future."""
    if milliseconds > now * 1_000:
        raise ConfigError(f"{name} is a time in the future")
    return Moment(milliseconds)


def single_of(
    name: str, given: Mapping[Any, Any], topics: Sequence[str]
) -> dict[TopicPartition, int]:
    """Return offsets by partition, each given by its number, or by topic and number.

    Raises :class:`ConfigError` for a bare number when there are several topics.
    """
    found = {}
    for partition, offset in given.items():
        if type(offset) is not int:
            raise ConfigError(f"{name}: {offset!r} is no offset of partition {partition}")
        if isinstance(partition, tuple) and len(partition) == 2:
            found[TopicPartition(*partition)] = offset
        elif type(partition) is not int or partition < 0:
            raise ConfigError(f"{name}: {partition!r} is no partition: give its number, from 0")
        elif len(topics) != 1 or is_pattern(topics[0]):
            raise ConfigError(
                f"{name}: partition {partition} may be of any of the topics "
                f"({', '.join(topics)}): name the topic, too"
            )
        else:
            found[TopicPartition(topics[0], partition)] = offset
    return found
