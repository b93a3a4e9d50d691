"""Kafka client of one simulated process: :class:`~kafka_keyshared.client.port.Client`.

It obeys the table of client facts in ``docs/internals/client-behavior.md``.
``tests/conformance/test_client.py`` tests it like the real client. A caller that waits in it lets
the timeline run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.leave_group import JOIN_TIMEOUT, Left
from kafka_keyshared.client.port import (
    Committed,
    LogBounds,
    Rebalance,
    RightRefusal,
    ended_by_the_group,
)
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer
from kafka_keyshared.lab.simulator.broker_queries import (
    NOTHING,
    ClientQueries,
    LimitOnItsWay,
    RightsOnTheirWay,
    TopicIdsOnTheirWay,
)
from kafka_keyshared.lab.simulator.brokers import Brokers, StoredCommits
from kafka_keyshared.lab.simulator.connection import Link
from kafka_keyshared.lab.simulator.fetching import Fetcher
from kafka_keyshared.lab.simulator.group import Group
from kafka_keyshared.lab.simulator.history import Delivered, Joined
from kafka_keyshared.lab.simulator.leaving import leave_group
from kafka_keyshared.lab.simulator.member_events import LeftGroup, StoppedJoining
from kafka_keyshared.lab.simulator.membership import Callbacks, Membership
from kafka_keyshared.lab.simulator.pause_history import Refusals
from kafka_keyshared.lab.simulator.records import SimRecord, client_event
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.status import ClientStatus

NO_PARTITION = TopicPartition("", -1)
MOVE_TIMEOUT = 1.0
"""Seconds within which the client is to carry out an assignment, as with the real one."""


class CommitsPort(StoredCommits, Protocol):
    """The destination of the clients' commits."""

    def send(self, client: SimClient, commit: Commit) -> None:
        """Take a commit. The answer comes to a later poll of the client."""


class ClusterPort(Brokers, Protocol):
    """The cluster as its clients, commits and rights use it."""

    clients: list[SimClient]

    @property
    def group(self) -> Group:
        """The group of the clients."""

    @property
    def commits(self) -> CommitsPort:
        """The commits stored for the group, and the destination of new ones."""

    def throw_out(self, client: SimClient) -> None:
        """Expel a member without asking it."""


class SimClient:
    """Client of a member. ``member`` is a number that no other client of the run has.

    ``answer`` is called with the answer to every commit, inside poll, consume or close. ``reset``
    is ``auto.offset.reset``. With ``eof`` the client reports ends of partitions
    (``enable.partition.eof``).
    """

    def __init__(
        self,
        cluster: ClusterPort,
        process: SimulatedProcess,
        topics: Sequence[str],
        answer: Callable[[CommitAnswer], None],
        member: int,
        *,
        reset: str = "earliest",
        eof: bool = False,
    ) -> None:
        self.halts_out_of_range = reset == "error"
        self.starts_at_end = reset == "latest"
        self.last_error = ""
        self.away_seconds: float | None = None
        self.member = member
        self.answer = answer
        self.link = Link(cluster)
        # The commits in flight, by number.
        self.in_flight: dict[int, object] = {}
        self.closed = False
        self._cluster = cluster
        self._process = process
        self._timeline = cluster.timeline
        self._tell = cluster.history.tell
        self._refusals = Refusals(member, self._tell)
        self._chance = cluster.chance("client")
        self.asking = ClientQueries(cluster, process, self.link, member)
        self._cooperative = cluster.settings.protocol != "eager"
        self.fetcher = Fetcher(member, cluster, self.link, self._first, eof=eof)
        self.membership = Membership(
            member, topics, cluster, self.link, self.fetcher, group=cluster.group
        )
        self._counts = {topic: len(logs) for topic, logs in cluster.topics.items()}
        self._epochs: dict[TopicPartition, int] = {}
        self._raises: list[Exception] = []
        self._polled = float("inf")
        self._away_since: float | None = None
        cluster.clients.append(self)
        self._tell(Joined(member))

    # --- the group ---

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        """Join the group. The callbacks run only inside poll, consume and close."""
        self._polled = self._timeline.now
        told = map(self._process.callback, (on_assign, on_revoke, on_lost))
        self.membership.subscribe(Callbacks(*told))
        self._watch_polls(self._timeline.now + self._cluster.settings.max_poll_interval)

    def _watch_polls(self, at: float) -> None:
        interval = self._cluster.settings.max_poll_interval

        def look() -> None:
            if self.closed or self.link.dead:
                return
            now = self._timeline.now
            # A time, not the rest of the interval: the rest may be too small to add to a time.
            due = min(self._polled, now) + interval
            if now < due:
                self._watch_polls(due)
                return
            why = f"Application maximum poll interval ({interval * 1000:.0f}ms) exceeded"
            self._polled = float("inf")  # watched again from its next poll on
            self.membership.exceeded(client_event(KafkaError._MAX_POLL_EXCEEDED, why, NO_PARTITION))
            self._watch_polls(now + interval)

        self._timeline.at(at, look)

    # --- fetching ---

    def poll(self, timeout: float) -> Record | None:
        """Wait for one message or event, at most ``timeout`` seconds."""
        self._check_open()
        timeline, fetcher = self._timeline, self.fetcher
        deadline = timeline.now + timeout
        if timeout > 0:
            self._polled = float("inf")  # time in this call does not count
        try:
            while True:
                told = self.membership.serve()
                if told is not None:
                    return told
                found: list[SimRecord] = []
                delivered = fetcher.take(1, found)
                if found:
                    return self._returned(found, delivered)[0]
                left = deadline - timeline.now
                if left <= 0:
                    return None
                self._process.wait(left, self._due)
        finally:
            self._polled = timeline.now
            fetcher.used()

    def consume(self, count: int) -> list[Record]:
        """Take at most ``count`` fetched messages, without waiting."""
        self._check_open()
        found: list[SimRecord] = []
        delivered: list[Delivered] = []
        membership = self.membership
        try:
            if membership.ops:
                if self.fetcher.queue and count > 1 and self._chance.random() < 0.5:
                    # The call was running when this arrived. Records taken before stay taken.
                    delivered += self.fetcher.take(self._chance.randrange(1, count), found)
                while len(found) < count and (told := membership.serve()) is not None:
                    found.append(told)
            delivered += self.fetcher.take(count - len(found), found)
            return self._returned(found, delivered)
        finally:
            self._polled = self._timeline.now
            self.fetcher.used()

    def _returned(self, found: list[SimRecord], delivered: list[Delivered]) -> list[Record]:
        """Return the records that a call has taken, or raise and lose them."""
        if delivered:
            rate = self._cluster.faults.fetch_raises
            if rate and self._chance.random() < rate:
                self.raise_next()
            if self._raises:
                self.fetcher.loosen(self.fetcher.parts)
                raise self._raises.pop(0)
            for each in delivered:
                self._tell(each)
        return found  # type: ignore[return-value]

    def _due(self) -> bool:
        return bool(self.membership.ops) or bool(self.fetcher.queue)

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("Consumer closed")

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the positions of the assigned partitions that have one, or of these alone."""
        return {
            partition: part.position
            for partition, part in self.fetcher.parts.items()
            if part.position is not None and (partitions is None or partition in partitions)
        }

    def log_ends(self) -> dict[TopicPartition, int]:
        """Return the log ends of the assigned partitions, as of the last fetches."""
        ends = self.fetcher.ends
        return {each: ends[each] for each in self.fetcher.parts if each in ends}

    def statistics(self) -> ClientStatus | None:
        """Return None: the client is not asked for statistics."""
        return None

    # --- queries ---

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        """Query the coordinator for positions and metadata."""
        with self.asking.waiting():
            found = self.asking.committed(partitions, timeout)
        self._epochs.update((each, answer.leader_epoch) for each, answer in found.items())
        return found

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        """Query the bounds of many logs at once."""
        with self.asking.waiting():
            return self.asking.log_bounds(partitions, timeout)

    def answers(self, timeout: float) -> bool:
        """Return whether a broker answers any query within ``timeout`` seconds."""
        with self.asking.waiting():
            return self.asking.answered(timeout, self.link.open)

    def received_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch at the last taken record, or at the committed position."""
        part = self.fetcher.parts.get(partition)
        if part is not None and part.position is not None:
            return part.epoch
        return self._epochs.get(partition, -1)

    def ask_topic_ids(self, topics: Collection[str]) -> TopicIdsOnTheirWay:
        """Query the ids of topics, without waiting."""
        return self.asking.topic_ids(topics)

    def refusals(self) -> list[RightRefusal]:
        """Return nothing: the simulation has no refused topic queries."""
        return []

    def ask_rights(self, topics: Collection[str]) -> RightsOnTheirWay:
        """Query which of the topics this user may read, without waiting."""
        return self.asking.rights(topics)

    def ask_metadata_limit(self) -> LimitOnItsWay:
        """Query the brokers' limit of commit metadata, without waiting."""
        return self.asking.metadata_limit()

    def is_new(self, partition: TopicPartition) -> bool:
        """Return whether the partition did not exist yet when this client was made."""
        return partition.partition >= self._counts.get(partition.topic, 0)

    # --- positions ---

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Start reading at these positions; in an eager group, only there."""
        if not self._cooperative:
            self.fetcher.unassign(list(self.fetcher.parts))
        elif any(each in self.fetcher.parts for each in positions):
            raise KafkaException(KafkaError(KafkaError._CONFLICT))
        for part in self.fetcher.assign(positions.items()):
            self.fetcher.told(part)

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Handle partitions that are no longer assigned."""
        self.fetcher.unassign(partitions, lost=self.membership.lost)

    def seek(self, partition: TopicPartition, position: int | None) -> None:
        """Continue reading at that position; refused while the partition is not being fetched."""
        part = self.fetcher.parts.get(partition)
        refused = self.asking.happens(self._cluster.faults.seek_refused)
        if part is None or part.misplaced or not part.active or refused:
            if part is not None:
                self.fetcher.loosen([partition])
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.fetcher.seek(part, position)
        self.fetcher.told(part)

    def restart(
        self, places: Mapping[TopicPartition, int | None], moved: Collection[TopicPartition]
    ) -> None:
        """Assign the moved partitions again, in an eager group all, each at its position."""
        again = [
            part
            for partition, part in self.fetcher.parts.items()
            if not self._cooperative or partition in moved
        ]
        for part in again:
            self.fetcher.restart(part, places.get(part.partition))
            self.fetcher.told(part)
        with self.asking.waiting():
            if self.asking.happens(self._cluster.faults.restart_late):
                # It is unknown whether this is done. Records that arrive until then are not used.
                self.fetcher.loosen([part.partition for part in again])
                self._process.wait(MOVE_TIMEOUT)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            self._process.wait(self._cluster.latency())

    def _first(self, partition: TopicPartition) -> int | None:
        """Return the start of a partition without a position; None if none may be chosen."""
        log = self._cluster.log(partition)
        if self.halts_out_of_range:
            return self._cluster.commits.stored.get(partition, NOTHING).position
        return log.readable_end if self.starts_at_end else log.start

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from the assigned ones of these partitions."""
        self.fetcher.pause(self._refusals.heard(self._assigned(partitions)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume fetching from these partitions."""
        self.fetcher.resume(self._assigned(partitions))

    def _assigned(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        known = [each for each in sorted(partitions) if each in self.fetcher.parts]
        if known and self.asking.happens(self._cluster.faults.pause_refused):
            self._refusals.refused(known)
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return known

    # --- commits ---

    def commit(self, commit: Commit) -> CommitAnswer | None:
        """Send a commit. The answer comes through the callback."""
        self._cluster.commits.send(self, commit)
        return None

    def epoch_at(self, partition: TopicPartition, entry: CommitEntry) -> int:
        """Return the leader epoch to commit: the held record's, or that of the received end."""
        part = self.fetcher.parts.get(partition)
        if entry.leader_epoch < 0 and part is not None and part.position == entry.position:
            return part.epoch
        return entry.leader_epoch

    # --- the end, and faults ---

    def close(self, patience: float = JOIN_TIMEOUT) -> bool:
        """Wait for the commits in flight, give everything back and leave the group."""
        if self.closed:
            return True
        membership = self.membership
        joining = membership.joining
        if joining:
            self._tell(StoppedJoining(self.member))
        else:
            membership.closing = True
        deadline = self._timeline.now + self._cluster.settings.session_timeout
        while self.in_flight and self._timeline.now < deadline:
            self._process.wait(deadline - self._timeline.now, lambda: bool(membership.ops))
            membership.serve()
        left = leave_group(self._process, membership, patience, lambda: self._timeline.now)
        # A group that refuses every request refuses the LeaveGroup, and the client hides that.
        heard = self.link.coordinated() and not self._cluster.rights.group
        if left is Left.YES and heard:
            self._tell(LeftGroup(self.member))
        # A JoinGroup that was sent arrives even if its sender ends.
        self._end(lands=joining)
        return left is not Left.JOINING

    def die(self) -> None:
        """End with its process, without notice. The group notices when its session is over."""
        if self.closed:
            return
        seat = self.membership.seat
        self._end(lands=self._chance.random() < 0.5)
        if seat is not None and not seat.gone:
            self._cluster.group.abandon(seat)

    def _end(self, *, lands: bool) -> None:
        self.closed = True
        self.fetcher.unassign(list(self.fetcher.parts))
        self.link.end(lands=lands)
        self._cluster.clients.remove(self)

    def cut_off(self, seconds: float) -> None:
        """Block all traffic between this client and its brokers for ``seconds``."""
        cut = self.link.cut()
        group, seat = self._cluster.group, self.membership.seat
        self.cut_off_from_now()

        def silent() -> None:
            if seat is not None and self.link.cuts == cut and not self.link.connected:
                group.expel(seat)

        def over() -> None:
            if self.link.cuts == cut and not self.link.dead:
                self.reconnect()
                self.healed()

        heartbeat = self._chance.random() * self._cluster.settings.heartbeat
        self._timeline.after(self._cluster.settings.session_timeout - heartbeat, silent)
        self._timeline.after(seconds, over)

    def cut_off_from_now(self) -> None:
        """Note that no coordinator is reachable from now on. If that lasts, the session is over."""
        self.last_error = "no broker answers"
        if self._away_since is None:
            self._away_since = self._timeline.now
        since = self._away_since

        def over() -> None:
            if self._away_since == since and self.membership.seat is not None and not self.closed:
                self.membership.lose()

        timeout = self._cluster.settings.session_timeout
        self._timeline.at(since + timeout, over)

    def reconnect(self) -> None:
        """Let traffic through again, as far as the brokers are up."""
        self.link.connected = not self.link.dead

    def healed(self) -> None:
        """Continue with the work that waited for a broker."""
        if self.link.coordinated():
            self._away_since = None
        self.link.healed()
        self.fetcher.wake()

    def raise_next(self, error: Exception | None = None) -> None:
        """Make the next call that takes records raise, which loses them."""
        self._raises.append(error or KafkaException(KafkaError(KafkaError._FAIL)))

    def tell_error(self, code: int, reason: str, *, fatal: bool = False) -> None:
        """Make a poll return an error that concerns no partition."""
        told = client_event(code, reason, NO_PARTITION, fatal=fatal)
        self.membership.ops.append(lambda: told)

    def refuse_for_good(self) -> None:
        """Refuse a heartbeat under KIP-848. The client gives up, and its session runs out."""
        seat = self.membership.seat
        if seat is not None and not seat.gone:
            self._cluster.group.abandon(seat)
        self.membership.closing = True
        why = "Fatal error: Broker: Group authorization failed"
        self.tell_error(KafkaError._FATAL, why, fatal=True)

    def start_over(self, error: KafkaError) -> bool:
        """Return whether the client is replaced. Then all is lost, and a new member joins."""
        if not ended_by_the_group(error):
            return False
        self.membership.closing = False
        self.membership.lose()
        return True

    def fence(self) -> None:
        """Let another instance replace this one (KIP-345). The client gets the error and is out."""
        self._cluster.throw_out(self)
        self.membership.closing = True
        why = "another instance has the same group.instance.id"
        self.tell_error(KafkaError.FENCED_INSTANCE_ID, why, fatal=True)
