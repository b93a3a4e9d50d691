"""Simulated cluster: topics with logs, a group with commits, and faults.

Every change here happens at the brokers at once. Clients learn of it later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from kafka_keyshared.lab.simulator.classic import Classic
from kafka_keyshared.lab.simulator.client import SimClient
from kafka_keyshared.lab.simulator.commits import ClientCommits
from kafka_keyshared.lab.simulator.fault_rates import FaultRates, GroupSettings
from kafka_keyshared.lab.simulator.group import Group
from kafka_keyshared.lab.simulator.history import Appended, CutOff, History, Remade, Removed
from kafka_keyshared.lab.simulator.kip848 import Reconciling
from kafka_keyshared.lab.simulator.logs import New, SimulatedLog
from kafka_keyshared.lab.simulator.member_events import MetadataTaken
from kafka_keyshared.lab.simulator.rights import RefusedRights
from kafka_keyshared.lab.simulator.rng import Chance
from kafka_keyshared.lab.simulator.timeline import Timeline
from kafka_keyshared.lab.simulator.topic_names import topic_id
from kafka_keyshared.model import TopicPartition

QUICKEST = 0.0005
USUAL = 0.02
"""Seconds from a client to a broker or back: mostly near the first, rarely near the second."""


class SimulatedCluster:
    """Brokers with one group.

    ``topics`` has the number of partitions of each topic. ``faults`` may be changed at any time.
    ``leaders_away`` are partitions whose leader does not answer.
    """

    def __init__(
        self,
        timeline: Timeline,
        chance: Chance,
        history: History,
        topics: dict[str, int],
        settings: GroupSettings = GroupSettings(),  # noqa: B008 - immutable
    ) -> None:
        self.timeline = timeline
        self.chance = chance
        self.history = history
        self.settings = settings
        # The metadata limit of the brokers now. It starts as the settings have it.
        self.metadata_max = settings.metadata_max
        self.faults = FaultRates()
        self.value = b"value"
        """The value of records that are written without one."""
        self.topics = {
            name: [SimulatedLog() for _ in range(count)] for name, count in topics.items()
        }
        self._times_made = Counter(dict.fromkeys(topics, 1))
        self.clients: list[SimClient] = []
        self.leaders_away: dict[TopicPartition, None] = {}
        self.rights = RefusedRights(self)
        # Partitions with a replaced log that some member may not know.
        self._other_logs: dict[TopicPartition, None] = {}
        self._down_until = self._coordinator_until = 0.0
        self._delays = chance("delays")
        self._logs = chance("logs")
        self._assignments = 0
        self.commits = ClientCommits(self)
        self.group: Group = (Reconciling if settings.protocol == "kip-848" else Classic)(self)

    # --- queries of clients and coordinators ---

    def log(self, partition: TopicPartition) -> SimulatedLog:
        """Return the log of a partition."""
        return self.topics[partition.topic][partition.partition]

    def topic_id(self, topic: str) -> str:
        """Return the id of the current topic of that name."""
        return topic_id(topic, self._times_made[topic])

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return the partitions of these topics."""
        return [
            TopicPartition(topic, number)
            for topic in topics
            for number in range(len(self.topics.get(topic, ())))
        ]

    def lag(self) -> int:
        """Return the total lag of the group's stored positions behind the ends of the logs."""
        # This runs before each written record, so it sums over the logs first and creates nothing
        # for each.
        lag = sum([log.end - log.start for logs in self.topics.values() for log in logs])
        for partition, stored in self.commits.stored.items():
            log = self.log(partition)
            lag -= max(0, (stored.position or 0) - log.start)
        return lag

    def unread(self) -> int:
        """Return the total distance of the furthest readers from the ends of the logs."""
        read: dict[TopicPartition, int] = {}
        for client in self.clients:
            for partition, position in client.positions().items():
                read[partition] = max(position, read.get(partition, 0))
        return sum(
            self.log(each).end - max(self.log(each).start, read.get(each, 0))
            for each in self.partitions(self.topics)
        )

    def there(self) -> bool:
        """Return whether brokers accept connections."""
        return self.timeline.now >= self._down_until

    def coordinator_there(self) -> bool:
        """Return whether the group's coordinator answers."""
        return self.timeline.now >= max(self._down_until, self._coordinator_until)

    def latency(self) -> float:
        """Return how many seconds a message takes."""
        roll = self._delays.random()
        slow = self.faults.slow
        if slow and self._delays.random() < slow:
            return roll * self.faults.slowest
        return QUICKEST + USUAL * roll**4

    def next_assignment(self) -> int:
        """Return a number that no assignment of any member has had."""
        self._assignments += 1
        return self._assignments

    # --- writes and removals ---

    def append(
        self,
        partition: TopicPartition,
        keys: Sequence[bytes | None],
        value: bytes | None = None,
        *,
        in_transaction: bool = False,
    ) -> None:
        """Write a record for each key. Those in a transaction can be read once it has ended."""
        log, value = self.log(partition), self.value if value is None else value
        new = log.append([(key, value) for key in keys], in_transaction=in_transaction)
        self._written(partition, new)

    def end_transaction(self, partition: TopicPartition, *, commit: bool) -> None:
        """Commit or abort the open transaction of the partition."""
        self._written(partition, self.log(partition).end_transaction(commit=commit))

    def skip(self, partition: TopicPartition, count: int) -> None:
        """Use up offsets that are never delivered: markers, aborted records."""
        self.log(partition).skip(count)
        self._written(partition, ())

    def _written(self, partition: TopicPartition, new: Iterable[New]) -> None:
        for offset, key, size in new:
            self.history.tell(Appended(partition, offset, key, size))
        for reader in self.log(partition).readers.values():
            reader.wake()

    def compact(self, partition: TopicPartition, share: float = 1.0) -> None:
        """Remove that share of the records that a later one with the same key follows."""
        log = self.log(partition)
        gone = [each for each in log.outdated() if self._logs.random() < share]
        self._remove(partition, gone)

    def remove(self, partition: TopicPartition, offsets: Collection[int]) -> None:
        """Remove these records."""
        self._remove(partition, [each for each in self.log(partition).offsets() if each in offsets])

    def _remove(self, partition: TopicPartition, gone: Sequence[int]) -> None:
        if gone:
            self.log(partition).remove(dict.fromkeys(gone))
            self.history.tell(Removed(partition, tuple(gone)))

    def retain_from(self, partition: TopicPartition, start: int) -> None:
        """Remove all records before that offset, as retention does."""
        gone = self.log(partition).move_start(start)
        if gone:
            self.history.tell(Removed(partition, tuple(gone)))

    def new_leader(self, partition: TopicPartition) -> None:
        """Elect another replica as leader, one that has everything."""
        self.log(partition).epoch += 1

    def cut_off(self, partition: TopicPartition, end: int) -> None:
        """Elect a leader that lagged behind (an unclean election): the log ends there."""
        log = self.log(partition)
        gone = log.cut_off(end)
        if gone:
            self.history.tell(Removed(partition, tuple(gone)))
        self.history.tell(CutOff(partition, log.end))
        self._other_logs[partition] = None
        self._written(partition, ())

    def remake(self, topic: str) -> None:
        """Delete a topic and create it again. The group's commits for it go, too."""
        self.commits.forget(topic)
        self._times_made[topic] += 1
        for number, log in enumerate(self.topics[topic]):
            log.clear()
            self.history.tell(Remade(TopicPartition(topic, number)))
            self._other_logs[TopicPartition(topic, number)] = None
        for log in self.topics[topic]:
            for reader in log.readers.values():
                reader.wake()

    def known(self, partition: TopicPartition) -> bool:
        """Return whether all members know that the log was replaced, if it was.

        This includes the readers, the stored commits and the commits in flight. Until then, a
        writer that may lose nothing must not write there. Once the new log has grown past a
        position of the old one, no client and no member can tell them apart.
        """
        if partition not in self._other_logs:
            return True
        if not all(client.fetcher.knows(partition) for client in self.clients):
            return False
        if self.commits.of_another_log(partition):
            return False
        del self._other_logs[partition]
        return True

    def take_metadata(self, most: int) -> None:
        """Accept this much metadata beside a position from now on."""
        self.metadata_max = most
        self.history.tell(MetadataTaken(most))

    def add_partition(self, topic: str) -> TopicPartition:
        """Add a partition. The members notice when they next refresh the topics."""
        self.topics[topic].append(SimulatedLog())
        after = self._delays.random() * self.settings.refresh
        self.timeline.after(after, self.group.changed)
        return TopicPartition(topic, len(self.topics[topic]) - 1)

    # --- faults of brokers and members ---

    def outage(self, seconds: float) -> None:
        """Take all brokers down. Sessions that would end in that time end at the members only."""
        self._down_until = max(self._down_until, self.timeline.now + seconds)
        self.timeline.at(self._down_until, self.healed)
        for client in self.clients:
            client.cut_off_from_now()

    def coordinator_away(self, seconds: float) -> None:
        """Take the coordinator down. Logs can still be read."""
        self._coordinator_until = max(self._coordinator_until, self.timeline.now + seconds)
        self.timeline.at(self._coordinator_until, self.healed)
        for client in self.clients:
            client.cut_off_from_now()

    def leader_away(self, partition: TopicPartition, seconds: float) -> None:
        """Take the leader of one partition down."""
        self.leaders_away[partition] = None

        def back() -> None:
            self.leaders_away.pop(partition, None)
            self.healed()

        self.timeline.after(seconds, back)

    def healed(self) -> None:
        """Continue with the work that waited, wherever a broker answers again."""
        for client in self.clients:
            client.healed()

    def heal(self) -> None:
        """End all faults now. From here on every request is answered."""
        self.faults.heal()
        self._down_until = self._coordinator_until = 0.0
        self.leaders_away.clear()
        self.rights.grant_all()
        self.commits.next_fates.clear()
        for client in self.clients:
            client.reconnect()
        self.healed()

    def throw_out(self, client: SimClient) -> None:
        """Expel a member without asking it. It learns of that later."""
        seat = client.membership.seat
        if seat is not None:
            self.group.expel(seat)
