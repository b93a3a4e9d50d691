"""Validation of the topics and partitions that an order names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_keyshared.client.patterns import is_pattern, matching
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.platform.reentry_guard import refuse_inside_handler
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.runtime.pauses import Those


def those_of(
    call: str,
    read: Sequence[str],
    topics: Sequence[str] | None,
    partitions: Iterable[tuple[str, int]] | None,
) -> Those:
    """Return the target of an order. ``read`` are names and patterns of the consumed topics.

    Raises :class:`ConfigError` for an invalid list of topics or partitions, and inside a handler.
    Raises :class:`OrderRefusedError` for a topic that is not consumed.
    """
    refuse_inside_handler(f"{call}()")
    if isinstance(topics, str):
        raise ConfigError(f"{call}(topics={topics!r}): give a list of names")
    named = None if topics is None else list(topics)
    found: list[TopicPartition] | None = None
    if partitions is not None:
        try:
            found = [_partition(topic, number) for topic, number in partitions]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{call}(partitions={partitions!r}): give pairs such as ('orders', 3)"
            ) from error
    for topic in dict.fromkeys([*(named or ()), *(each.topic for each in found or ())]):
        if not any(matching(each, [topic]) if is_pattern(each) else each == topic for each in read):
            raise OrderRefusedError(
                f"{call}: the app does not read {topic!r}; it reads {', '.join(map(repr, read))}"
            )
    return Those(named, found)


def _partition(topic: object, number: object) -> TopicPartition:
    if not isinstance(topic, str) or not isinstance(number, int) or number < 0:
        raise ValueError(f"({topic!r}, {number!r})")
    return TopicPartition(topic, number)
