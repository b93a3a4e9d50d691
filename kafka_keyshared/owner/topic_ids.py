"""Sees that a topic is still the one that it was when a partition of it began.

Deleted and made anew, a topic has the same name, offsets that begin over, and another id. Where the
new log is shorter than what was received, the broker says so; where it has grown past that, nobody
does: fetches go on as if nothing had happened. So the ids are asked for when partitions begin, and
every minute after that. Nobody waits for such an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kafka_keyshared.client.port import Client, TopicIdsAsked
from kafka_keyshared.core.offsets import PartitionState
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.loop")

LOOK_EVERY = 60.0
"""Seconds between two looks at the ids: so long a topic that has grown too fast goes unnoticed."""

LOOK_SELDOM = 600.0
"""And where nobody has told an id yet, as with brokers that have none."""

ANSWER_WITHIN = 15.0
"""Seconds after which a question is given up. The client gives up before that."""

States = Mapping[TopicPartition, PartitionState]


class TopicId(NamedTuple):
    """The id of a topic when the partition began, and now; None: not known."""

    began: str | None = None
    now: str | None = None

    @property
    def known(self) -> bool:
        """Say whether they can be compared."""
        return self.began is not None and self.now is not None

    @property
    def changed(self) -> bool:
        """Say whether the topic is another one, for certain."""
        return self.known and self.began != self.now


class _Began(NamedTuple):
    state: PartitionState
    id: str


class TopicIds:
    """The ids of the topics that the assigned partitions were begun of."""

    def __init__(self, client: Client) -> None:
        self._client = client
        # Of this assignment, which its state stands for: each has one of its own.
        self._began: dict[TopicPartition, _Began] = {}
        self._asked: TopicIdsAsked | None = None
        self._asked_for: States = {}
        self._asked_at = 0.0
        self._look_at = float("-inf")

    def began(self, partition: TopicPartition, state: PartitionState) -> str | None:
        """Return the id of the topic that it was when this assignment of the partition began."""
        began = self._began.get(partition)
        return began.id if began is not None and began.state is state else None

    def look_soon(self) -> None:
        """Ask at the next beat: something has hinted at a topic that went."""
        self._look_at = float("-inf")

    def beat(self, states: States, now: float) -> list[TopicPartition]:
        """Ask, or take an answer; return the partitions whose topic is another one by now."""
        self._began = {
            each: began for each, began in self._began.items() if states.get(each) is began.state
        }
        if self._asked is not None:
            return self._hear(self._asked, states, now)
        fresh = any(self._asked_for.get(each) is not state for each, state in states.items())
        if states and (fresh or now >= self._look_at):
            self._asked = self._client.ask_topic_ids({each.topic for each in states})
            self._asked_for, self._asked_at = dict(states), now
        return []

    def _hear(self, asked: TopicIdsAsked, states: States, now: float) -> list[TopicPartition]:
        found = asked.answer(0.0)
        if found is None and now - self._asked_at < ANSWER_WITHIN:
            return []
        self._asked = None
        another = []
        for partition, state in self._asked_for.items():
            told = (found or {}).get(partition.topic)
            if told is None or states.get(partition) is not state:
                continue
            if self._began.setdefault(partition, _Began(state, told)).id != told:
                another.append(partition)
        self._look_at = now + (LOOK_EVERY if self._began else LOOK_SELDOM)
        return another


class Comparison:
    """What some topics are now beside what they were, asked for while something else is asked.

    Nothing is asked where nothing is known to compare the answer with.
    """

    def __init__(
        self, client: Client, ids: TopicIds, states: States, those: Collection[TopicPartition]
    ) -> None:
        self._began = {
            each: began
            for each in those
            if each in states and (began := ids.began(each, states[each])) is not None
        }
        topics = {each.topic for each in self._began}
        self._asked = client.ask_topic_ids(topics) if topics else None

    def answer(self, timeout: float) -> dict[TopicPartition, TopicId]:
        """Return what is known of each by then; at most ``timeout`` seconds are waited for it."""
        found = self._asked.answer(max(timeout, 0.0)) if self._asked is not None else None
        return {
            each: TopicId(began, (found or {}).get(each.topic))
            for each, began in self._began.items()
        }
