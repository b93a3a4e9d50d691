"""Detection of topics that were deleted and recreated while being read.

A recreated topic has the same name, offsets that start over, and another id. If the new log is
shorter than the received end, the broker reports it. If it has grown past that, no broker does, and
fetches go on as before. The ids are therefore queried when partitions start and every minute after
that. The owner never waits for these answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from kafka_keyshared.client.port import Client, TopicIdsAsked
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition

log = log_of("kafka_keyshared.loop")

LOOK_EVERY = 60.0
"""Seconds between two checks of ids: how long a quickly grown new log may go unnoticed."""

LOOK_SELDOM = 600.0
"""Seconds between two checks while no id is known, as with brokers that have none."""

ANSWER_WITHIN = 15.0
"""Seconds after which a query is given up. The client gives up before that."""

ID_WAIT = 30.0
"""Seconds that a partition waits for its topic's id while no broker answers."""

ID_UNTOLD_WAIT = 5.0
"""Seconds that a partition waits when brokers answer without its topic's id.

They know none, or this user may not describe the topic.
"""

IDS_ASKED_LEAST = 3
"""Minimum number of queries before giving up: a standstill of the owner is no waiting time."""

States = Mapping[TopicPartition, PartitionState]


class TopicId(NamedTuple):
    """The id of a topic when the partition started, and now. None means not known."""

    began: str | None = None
    now: str | None = None

    @property
    def known(self) -> bool:
        """Return whether both ids are known and can be compared."""
        return self.began is not None and self.now is not None

    @property
    def changed(self) -> bool:
        """Return whether the topic has certainly been replaced."""
        return self.known and self.began != self.now


class TopicIds:
    """The topic ids with which the assigned partitions were started.

    The state of a partition keeps its id (:attr:`~.offsets.PartitionState.topic_id`). A partition
    that started without an id gets the first one that is learned, by :meth:`take_identified`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._identified: dict[TopicPartition, str] = {}
        self._asked: TopicIdsAsked | None = None
        self._asked_for: States = {}
        self._asked_at = 0.0
        self._look_at = float("-inf")

    def take_identified(self) -> dict[TopicPartition, str]:
        """Return the ids learned since the last call, for partitions that had none."""
        identified, self._identified = self._identified, {}
        return identified

    def look_soon(self) -> None:
        """Query at the next heartbeat: an error suggests that a topic was deleted."""
        self._look_at = float("-inf")

    def beat(self, states: States, now: float) -> list[TopicPartition]:
        """Query, or take an answer; return the partitions whose topic has been replaced."""
        if self._asked is not None:
            return self._hear(self._asked, states, now)
        fresh = any(
            state.topic_id is None and self._asked_for.get(each) is not state
            for each, state in states.items()
        )
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
            if state.topic_id is None:
                self._identified[partition] = told
            elif state.topic_id != told:
                another.append(partition)
        known = self._identified or any(state.topic_id is not None for state in states.values())
        self._look_at = now + (LOOK_EVERY if known else LOOK_SELDOM)
        return another


class Comparison:
    """A query of current topic ids, compared with the ids at the partitions' start.

    It runs alongside another query. Nothing is queried when no earlier id is known.
    """

    def __init__(self, client: Client, states: States, those: Collection[TopicPartition]) -> None:
        self._began = {
            each: began
            for each in those
            if each in states and (began := states[each].topic_id) is not None
        }
        topics = {each.topic for each in self._began}
        self._asked = client.ask_topic_ids(topics) if topics else None

    def answer(self, timeout: float) -> dict[TopicPartition, TopicId]:
        """Return the ids known for each partition, after at most ``timeout`` seconds."""
        found = self._asked.answer(max(timeout, 0.0)) if self._asked is not None else None
        return {
            each: TopicId(began, (found or {}).get(each.topic))
            for each, began in self._began.items()
        }


class IdsOfTexts:
    """Topic ids that decide whether commit metadata is trusted (:mod:`.metadata`).

    Without the id the metadata is ignored, and records settled beyond the position run again.
    Trusting it could skip records that never ran. A partition therefore waits for the id, but with
    a limit: an unanswered admin query must not stop readable partitions.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        # Since when each partition has waited, and how often its id was queried.
        self._since: dict[TopicPartition, float] = {}
        self._times: Counter[TopicPartition] = Counter()
        self._wanted: Collection[TopicPartition] = ()
        self._asked: TopicIdsAsked | None = None

    def ask(self, wanted: Collection[TopicPartition]) -> None:
        """Query the ids of these partitions' topics without waiting."""
        now = self._clock()
        self._since = {each: self._since.get(each, now) for each in wanted}
        self._times = Counter({each: self._times[each] + 1 for each in wanted})
        self._wanted = wanted
        topics = {each.topic for each in wanted}
        self._asked = self._client.ask_topic_ids(topics) if topics else None

    def answer(self, timeout: float) -> dict[TopicPartition, str | None]:
        """Return the ids, None for a partition that has waited long enough.

        Waits at most ``timeout`` seconds. Partitions that go on waiting are left out.
        """
        if self._asked is None:
            return {}
        found = self._asked.answer(max(timeout, 0.0))
        self._asked = None
        most = ID_WAIT if found is None else ID_UNTOLD_WAIT
        late = self._clock() - most
        ids = {each: (found or {}).get(each.topic) for each in self._wanted}
        return {
            each: id_
            for each, id_ in ids.items()
            if id_ is not None
            or (self._since[each] <= late and self._times[each] >= IDS_ASKED_LEAST)
        }
