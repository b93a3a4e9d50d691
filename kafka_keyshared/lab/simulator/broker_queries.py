"""Queries of a simulated client to its brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import Committed, CommittedOffset, LogBounds
from kafka_keyshared.lab.simulator.brokers import Brokers
from kafka_keyshared.lab.simulator.connection import Link
from kafka_keyshared.lab.simulator.history import OwnerResumed, OwnerWaits
from kafka_keyshared.lab.simulator.member_events import LimitHeard, LimitUnheard, LogsAsked
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess
from kafka_keyshared.model import TopicPartition

NOTHING = CommittedOffset(None, None)

ON_THE_WAY = (0.001, 0.05)
"""Seconds that a topic-id query takes to a broker, and its answer back."""


class TopicIdsOnTheirWay:
    """A query for topic ids. It is answered at one moment and received later."""

    def __init__(
        self, process: SimulatedProcess, waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._process = process
        self._waiting = waiting
        self.found: dict[str, str] | None = None

    def answer(self, timeout: float) -> dict[str, str] | None:
        """Return the ids; None without an answer yet."""
        if self.found is None and timeout > 0:
            with self._waiting():
                self._process.wait(timeout, lambda: self.found is not None)
        return self.found


class RightsOnTheirWay:
    """A query for the readable topics. It is answered at one moment and received later."""

    def __init__(self) -> None:
        self.found: frozenset[str] | None = None

    def answer(self) -> frozenset[str] | None:
        """Return the topics that may be read; None while there is no answer."""
        return self.found


class LimitOnItsWay:
    """A query for the limit of commit metadata. It is answered at one moment and received later."""

    def __init__(self, process: SimulatedProcess, unheard: Callable[[], None]) -> None:
        self._process = process
        self._unheard = unheard
        self.over = False
        self.limit: int | None = None

    def answered(self, timeout: float) -> bool:
        """Return whether the query is over. Report a wait that brought no limit."""
        if not self.over and timeout > 0:
            self._process.wait(timeout, lambda: self.over)
        if timeout > 0 and self.limit is None:
            self._unheard()
        return self.over


class ClientQueries:
    """The queries of one client. Times are in seconds."""

    def __init__(
        self, cluster: Brokers, process: SimulatedProcess, link: Link, member: int
    ) -> None:
        self._member = member
        self._cluster = cluster
        self._timeline = cluster.timeline
        self._process = process
        self._link = link
        self._chance = cluster.chance("client")
        # A generator of its own: without recreated topics, a run is the same as without this query.
        self._ids = cluster.chance("topic ids")
        self._rights = cluster.chance("rights")
        self._limits = cluster.chance("limits of metadata")
        self.open = False
        """Whether the client is waiting for an answer."""
        self.next_unheard = False
        """Whether the next query for positions stays unanswered."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Report that the owner waits for an answer as long as this lasts."""
        tell = self._cluster.history.tell
        tell(OwnerWaits(self._member))
        self.open = True
        try:
            yield
        finally:
            self.open = False
            tell(OwnerResumed(self._member))

    def happens(self, share: float) -> bool:
        """Draw whether an event with this probability happens."""
        return share > 0 and self._chance.random() < share

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        """Query the coordinator; raise ``KafkaException`` if there is no answer in time."""
        faults = self._cluster.faults
        unheard = self.happens(faults.committed_unanswered) or self.next_unheard
        self.next_unheard = False
        if unheard:
            self._process.wait(timeout)
        if unheard or not self.answered(timeout, self._link.coordinated):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if self._cluster.rights.group:
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
        stored = self._cluster.commits.stored
        return {
            partition: stored.get(partition, NOTHING)
            for partition in partitions
            if not self.happens(faults.committed_partly)
        }

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        """Query all leaders at once. A silent leader costs the timeout twice."""
        found = self._bounds(partitions, timeout)
        self._cluster.history.tell(LogsAsked(self._member, tuple(partitions), tuple(found)))
        return found

    def _bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        cluster = self._cluster
        silent = dict(cluster.leaders_away)
        if partitions and self.happens(cluster.faults.bounds_unanswered):
            silent[self._chance.choice(partitions)] = None
        held_up = any(each in silent for each in partitions)
        if held_up:
            self._process.wait(timeout)
        if not self.answered(timeout, self._link.open):
            return {}
        if held_up:
            self._process.wait(timeout)
        found = {}
        for partition in partitions:
            if partition not in silent:
                log = cluster.log(partition)
                found[partition] = LogBounds(log.start, log.readable_end, log.epoch)
        return found

    def topic_ids(self, topics: Collection[str]) -> TopicIdsOnTheirWay:
        """Query any reachable broker. Without one the query is never answered."""
        cluster, timeline, link = self._cluster, self._timeline, self._link
        asked = TopicIdsOnTheirWay(self._process, self.waiting)
        names = sorted(topics)

        def tell() -> None:
            if link.dead or not link.open():
                return
            there = [each for each in names if each in cluster.topics]
            found = {each: cluster.topic_id(each) for each in there if cluster.settings.tells_ids}

            def hear() -> None:
                asked.found = found

            timeline.after(self._ids.uniform(*ON_THE_WAY), hear)

        timeline.after(self._ids.uniform(*ON_THE_WAY), tell)
        return asked

    def rights(self, topics: Collection[str]) -> RightsOnTheirWay:
        """Query any reachable broker for the topics that may be read."""
        cluster, timeline, link = self._cluster, self._timeline, self._link
        asked = RightsOnTheirWay()

        def tell() -> None:
            if link.dead or not link.open():
                return
            found = frozenset(each for each in topics if cluster.rights.may_read(each))

            def hear() -> None:
                asked.found = found

            timeline.after(self._rights.uniform(*ON_THE_WAY), hear)

        timeline.after(self._rights.uniform(*ON_THE_WAY), tell)
        return asked

    def metadata_limit(self) -> LimitOnItsWay:
        """Query the coordinator for its metadata limit. An unreachable one gives no limit."""
        cluster, timeline, link = self._cluster, self._timeline, self._link
        asked = LimitOnItsWay(
            self._process, lambda: cluster.history.tell(LimitUnheard(self._member))
        )

        def tell() -> None:
            limit = None
            if cluster.settings.tells_limit and not link.dead and link.coordinated():
                limit = cluster.metadata_max

            def hear() -> None:
                asked.limit, asked.over = limit, True
                if limit is not None and not link.dead:
                    cluster.history.tell(LimitHeard(self._member, limit))

            timeline.after(self._limits.uniform(*ON_THE_WAY), hear)

        timeline.after(self._limits.uniform(*ON_THE_WAY), tell)
        return asked

    def answered(self, timeout: float, there: Callable[[], bool]) -> bool:
        """Wait until ``there`` holds and the answer arrives; return whether it came in time."""
        deadline = self._timeline.now + timeout
        if not there():
            self._process.wait(timeout, there)
            if not there():
                return False
        took, left = self._cluster.latency(), deadline - self._timeline.now
        self._process.wait(min(took, left))
        return took <= left and there()
