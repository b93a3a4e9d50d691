"""Sees that a topic is still the one that it was when a partition of it began.

Deleted and made anew, a topic has the same name, offsets that begin over, and another id. Where the
new log is shorter than what was received, the broker says so; where it has grown past that, nobody
does: fetches go on as if nothing had happened. So the ids are asked for when partitions begin, and
every minute after that. Nobody waits for such an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
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

ID_WAIT = 30.0
"""Seconds for which a partition waits for the id of its topic, while nobody answers."""

ID_UNTOLD_WAIT = 5.0
"""And where brokers answer without it: they know none, or this user may not describe the topic."""

IDS_ASKED_LEAST = 3
"""Times that it is asked for at least: an owner that stood still has not waited."""

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


class TopicIds:
    """The ids of the topics that the assigned partitions were begun of.

    The state of a partition has its own (:attr:`~.offsets.PartitionState.topic_id`): one that began
    without an id gets the first that is told, by :meth:`take_identified`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._identified: dict[TopicPartition, str] = {}
        self._asked: TopicIdsAsked | None = None
        self._asked_for: States = {}
        self._asked_at = 0.0
        self._look_at = float("-inf")

    def take_identified(self) -> dict[TopicPartition, str]:
        """Return the ids that were told since the last time, of partitions that had none."""
        identified, self._identified = self._identified, {}
        return identified

    def look_soon(self) -> None:
        """Ask at the next beat: something has hinted at a topic that went."""
        self._look_at = float("-inf")

    def beat(self, states: States, now: float) -> list[TopicPartition]:
        """Ask, or take an answer; return the partitions whose topic is another one by now."""
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
    """What some topics are now beside what they were, asked for while something else is asked.

    Nothing is asked where nothing is known to compare the answer with.
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
        """Return what is known of each by then; at most ``timeout`` seconds are waited for it."""
        found = self._asked.answer(max(timeout, 0.0)) if self._asked is not None else None
        return {
            each: TopicId(began, (found or {}).get(each.topic))
            for each, began in self._began.items()
        }


class IdsOfTexts:
    """The ids of topics that decide whether the text of a commit is believed (:mod:`.metadata`).

    Without the id such a text is ignored, and what has settled beyond the position runs again; to
    believe it could leave out records that never ran. So a partition waits for the id, but not for
    ever: an admin question that nobody answers must not stop what can be read.
    """

    def __init__(self, client: Client, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        # Since when each partition has waited, and how often it was asked for.
        self._since: dict[TopicPartition, float] = {}
        self._times: Counter[TopicPartition] = Counter()
        self._wanted: Collection[TopicPartition] = ()
        self._asked: TopicIdsAsked | None = None

    def ask(self, wanted: Collection[TopicPartition]) -> None:
        """Ask for the ids of these partitions' topics, and wait for nothing."""
        now = self._clock()
        self._since = {each: self._since.get(each, now) for each in wanted}
        self._times = Counter({each: self._times[each] + 1 for each in wanted})
        self._wanted = wanted
        topics = {each.topic for each in wanted}
        self._asked = self._client.ask_topic_ids(topics) if topics else None

    def answer(self, timeout: float) -> dict[TopicPartition, str | None]:
        """Return the ids, None for a partition that has waited for long enough.

        At most ``timeout`` seconds are waited for them. Partitions that wait on are left out.
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
