"""The real Kafka client: :class:`.port.Client` over ``confluent_kafka.Consumer``.

``docs/internals/client-behavior.md`` lists the client's known behavior and the consequences for the
loop. Two rules shape this module. No callback ever raises: an exception out of one loses records
that were already taken off the client's queue. And nothing here commits synchronously.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.client.callback_calls import CallbackCalls
from kafka_keyshared.client.commit_match import CommitsInFlight
from kafka_keyshared.client.connection_log import OutageLog
from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.client.leave_group import JOIN_TIMEOUT, Left, leave
from kafka_keyshared.client.metadata_limit import KafkaMetadataLimit
from kafka_keyshared.client.offset_queries import ask_bounds, ask_committed, epoch_of
from kafka_keyshared.client.patterns import is_pattern, matching
from kafka_keyshared.client.port import (
    Committed,
    LogBounds,
    Rebalance,
    RightRefusal,
    ended_by_the_group,
    is_cooperative,
    unreachable,
)
from kafka_keyshared.client.rights import KafkaRights
from kafka_keyshared.client.safe_callbacks import Running, hook, in_turn, shielded
from kafka_keyshared.client.start_topics import find
from kafka_keyshared.client.statistics import read_statistics
from kafka_keyshared.client.topic_ids import KafkaTopicIds
from kafka_keyshared.config.client import is_kip_848
from kafka_keyshared.config.properties import FOR_LETTERS
from kafka_keyshared.config.tokens import no_token, with_guarded_tokens
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.logs import Seldom, log_of, quietly
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.platform import forks
from kafka_keyshared.status import ClientStatus

log = log_of("kafka_keyshared.kafka")

NUDGE_WAIT = 0.01
"""Seconds for which the owner waits for a topic list that it requests for its side effect."""

REPLACE_EVERY = 2.0
"""Minimum seconds between two replacements of a consumer after a refused heartbeat ended it."""

MOVE_TIMEOUT = 1.0
"""Time limit in seconds for the client to carry out an assignment; it takes milliseconds."""


def _nothing(partitions: list[TopicPartition]) -> None:
    del partitions


class KafkaClient:
    """:class:`Client` over ``confluent_kafka.Consumer``.

    ``answer`` receives every commit's answer, from inside poll, consume or close. The user's own
    ``on_commit``, ``error_cb``, ``stats_cb`` and ``throttle_cb`` are called through a shield. So
    are ``users``, the callbacks that run after our own ``on_assign``, ``on_revoke`` and
    ``on_lost``. ``renewed`` is called when a new ``consumer`` has replaced the old one.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        answer: Callable[[CommitAnswer], None],
    ) -> None:
        self._conf = conf = with_guarded_tokens(conf)
        self._topics = list(topics)
        self._answer = answer
        self._commits = CommitsInFlight()
        self._assigned: dict[TopicPartition, ClientPartition] = {}
        # The received end of each partition, as last queried.
        self._ends: dict[TopicPartition, ClientPartition] = {}
        # Leader epochs of committed positions, for partitions that deliver nothing.
        self._epochs: dict[TopicPartition, int] = {}
        self._subscribed = False
        self._callback = Running()
        self._seldom = Seldom(log)
        self._refusals: list[RightRefusal] = []
        self._counts: dict[str, int] | None = None  # partitions of each topic at the start
        # Ids of the brokers at the start.
        self._brokers: frozenset[int] = frozenset()
        self._outages = OutageLog(self.answers, no_token=lambda why: no_token(conf, why))
        own = dict(conf)
        self.admin = KeptAdmin(own)
        for name in FOR_LETTERS:
            own.pop(name, None)  # the client would log that a consumer ignores it
        self._bootstrap = str(own.get("bootstrap.servers") or own.get("metadata.broker.list"))
        self._cooperative = is_cooperative(own)
        self._refresh_seconds = float(own.get("topic.metadata.refresh.interval.ms", 300_000)) / 1000
        reset = str(own.get("auto.offset.reset", "latest")).lower()
        self._reset_to = OFFSET_END if reset in ("latest", "largest", "end") else OFFSET_BEGINNING
        self.starts_at_end = self._reset_to == OFFSET_END and reset != "error"
        self.halts_out_of_range = reset == "error"
        own["auto.offset.reset"] = "error"  # start positions are assigned, never chosen later
        self._statistics: ClientStatus | None = None
        ours: dict[str, Callable[..., None]] = {
            "on_commit": self._on_commit,
            "error_cb": self._outages.heard,
            "stats_cb": self._on_statistics,
        }
        # The exception with which a user's callback asked to end the program.
        self.ending: BaseException | None = None
        hook(own, ours, self._ended)
        self._own = own
        try:
            self.consumer = Consumer(quietly(own))
        except KafkaException as error:
            # The client is made with a token, or not at all.
            if error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED:
                raise unreachable(self._bootstrap, error.args[0].str(), conf) from error
            raise
        self._callbacks: tuple[Rebalance, Rebalance, Rebalance] | None = None
        self._replace_at: float | None = None  # time to replace a consumer that has ended
        self._replaced = False
        self._replaced_at = float("-inf")
        self.renewed: Callable[[], None] = lambda: None
        if int(own.get("statistics.interval.ms", 0)) > 0:
            self._statistics = ClientStatus()  # zero counts until the first statistics arrive
        forks.watch(self)
        self.users: Mapping[str, Callable[[list[ClientPartition]], None]] = {}
        # Requests from the user's callbacks, and the functions with which the rebalancer runs them.
        self.calls = CallbackCalls(lambda: self._commits.positions)
        self.start_at: Callable[[Mapping[TopicPartition, int]], None] = lambda _: None
        self.withhold: Callable[[Sequence[TopicPartition]], None] = lambda _: None

    def forked(self) -> None:
        """Disable the client in a child that a callback or a key function forked."""
        # Kept alive: its destructor would wait for threads that the child does not have.
        self._parents = self.consumer
        self.consumer = cast("Consumer", forks.StaysWithParent(forks.IN_OWNER, lambda: self.ending))

    @property
    def last_error(self) -> str:
        """The client's latest error."""
        return self._outages.last_error

    @property
    def away_seconds(self) -> float | None:
        """Seconds since any broker answered. None while one does."""
        return self._outages.seconds

    # --- before the start ---

    def check_topics(self, timeout: float) -> list[str]:
        """Return all topics; raise without a broker or a topic: :func:`.start_topics.find`."""
        try:
            metadata = self.consumer.list_topics(timeout=timeout)
        except KafkaException as error:
            self.consumer.poll(0)  # the client reports its reason in a callback, inside a poll
            why = self.last_error or error.args[0].str()
            raise unreachable(self._bootstrap, why, self._conf) from error
        self._brokers = frozenset(metadata.brokers)
        self._counts = {name: len(each.partitions) for name, each in metadata.topics.items()}
        refused = find(
            self.consumer, metadata, self._topics, timeout, refresh_seconds=self._refresh_seconds
        )
        self._refusals += refused
        return sorted(metadata.topics)

    # --- the port ---

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        """Join the group."""
        self._subscribed = True
        self._callbacks = (on_assign, on_revoke, on_lost)
        consumer = self.consumer

        def adapt(rebalance: Rebalance, name: str) -> Callable[..., None]:
            def callback(_consumer: Consumer, partitions: list[ClientPartition]) -> None:
                if self.consumer is not consumer or self._replaced:
                    return  # this consumer has ended, and its partitions are lost
                rebalance([TopicPartition(each.topic, each.partition) for each in partitions])

            ours, users = shielded(callback, name, self._ended), self.users.get(name)
            if users is not None:
                users = self._with_calls(name, shielded(users, name, self._ended))
                ours = in_turn(ours, users)
            return self._callback.mark(ours)

        try:
            self.consumer.subscribe(
                self._topics,
                on_assign=adapt(on_assign, "on_assign"),
                on_revoke=adapt(on_revoke, "on_revoke"),
                on_lost=adapt(on_lost, "on_lost"),
            )
        except KafkaException as error:
            raise ConfigError(
                f"the client refuses to subscribe to {', '.join(map(repr, self._topics))}: "
                f"{error.args[0]}; see the names, and that each one with ^ at its beginning is a "
                "regular expression"
            ) from error

    def _with_calls(self, name: str, users: Callable[..., None]) -> Callable[..., None]:
        """Return the user's callback; the consumer calls that it makes are carried out after it."""

        def callback(_consumer: Consumer, partitions: list[ClientPartition]) -> None:
            calls = self.calls
            with calls.during(name, partitions):
                users(partitions)
            if calls.refused is not None:
                self.withhold([TopicPartition(each.topic, each.partition) for each in partitions])
                self._ended(calls.refused)
            elif calls.chosen:
                self.start_at(calls.chosen)

        return callback

    def poll(self, timeout: float) -> Record | None:
        """Wait for one message or event."""
        self._outages.look()
        self._replace_if_due()
        return self.consumer.poll(timeout)  # type: ignore[return-value]

    def consume(self, count: int) -> list[Record]:
        """Return the fetched records without waiting."""
        self._outages.look()  # a busy owner may not poll for minutes
        self._replace_if_due()
        return self.consumer.consume(count, 0)  # type: ignore[return-value]

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions that have one, or of the given ones."""
        asked = self._assigned
        if partitions is not None:
            asked = {each: asked[each] for each in partitions if each in asked}
        if not asked:
            return {}
        found = dict(zip(asked, self.consumer.position(list(asked.values())), strict=True))
        self._ends = found if partitions is None else {**self._ends, **found}
        return {each: end.offset for each, end in found.items() if end.offset >= 0}

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        """Ask the broker for positions and metadata."""
        found = ask_committed(self.consumer, partitions, timeout, self._refusals.append)
        self._epochs.update((each, answer.leader_epoch) for each, answer in found.items())
        return found

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        """Query the bounds of many logs at once."""
        lists = self.admin.list_topics if self._callback.now else self.consumer.list_topics
        return ask_bounds(self.consumer, partitions, timeout, self._seldom, lists)

    def received_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch at the last received record, or at the committed position."""
        end = self._ends.get(partition)
        if end is not None and end.offset >= 0:
            return epoch_of(end)
        return self._epochs.get(partition, -1)

    def ask_topic_ids(self, topics: Collection[str]) -> KafkaTopicIds:
        """Request the ids of topics without waiting."""
        return KafkaTopicIds(self.admin, topics)

    def refusals(self) -> list[RightRefusal]:
        """Return the refusals that brokers have answered since the last call."""
        found, self._refusals = self._refusals, []
        return found

    def ask_rights(self, topics: Collection[str]) -> KafkaRights:
        """Request the user's rights on the topics, and let the client refresh its subscription."""
        try:
            # The request is sent. The client's thread updates the subscription from the answer.
            self.consumer.list_topics(timeout=NUDGE_WAIT)
        except KafkaException as error:
            log.debug("the list of topics has not come within %g s: %s", NUDGE_WAIT, error)
        return KafkaRights(self.admin, topics)

    def ask_metadata_limit(self) -> KafkaMetadataLimit:
        """Request the brokers' limit of commit metadata in bytes, without waiting."""
        return KafkaMetadataLimit(self.admin, self._brokers)

    def start_over(self, error: KafkaError) -> bool:
        """Return whether the consumer, which the group has ended, will be replaced (KIP-848)."""
        if not ended_by_the_group(error) or self._callbacks is None:
            return False
        if self._replace_at is None:
            self._replace_at = max(time.monotonic(), self._replaced_at + REPLACE_EVERY)
        return True

    def _replace_if_due(self) -> None:
        if self._replace_at is not None and time.monotonic() >= self._replace_at:
            self._replace()

    def _replace(self) -> None:
        """Lose all partitions, close the consumer and join with a new one. Runs inside a poll."""
        on_assign, on_revoke, on_lost = self._callbacks or (_nothing,) * 3
        self._replace_at, self._replaced_at = None, time.monotonic()
        if self._assigned:
            lost = list(self._assigned)
            on_lost(lost)
            if (users := self.users.get("on_lost")) is not None:
                gone = [ClientPartition(*each) for each in lost]
                shielded(users, "on_lost", self._ended)(gone)
        self._replaced = True
        self.consumer.close()
        self._replaced = False
        for answer in self._commits.give_up("the client has ended"):
            self._answer(answer)
        self._assigned.clear()
        self.consumer = Consumer(quietly(self._own))
        self.renewed()
        self.subscribe(on_assign, on_revoke, on_lost)

    def is_new(self, partition: TopicPartition) -> bool:
        """Return whether the partition did not exist yet when the topics were checked."""
        known = self._counts
        return known is not None and partition.partition >= known.get(partition.topic, 0)

    def log_ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the assigned partitions' logs, as the last fetches showed them."""
        ends: dict[TopicPartition, int] = {}
        for partition, asked in self._assigned.items():
            try:
                bounds = self.consumer.get_watermark_offsets(asked, cached=True)
            except KafkaException as error:
                log.debug("%s: no end of the log in the cache: %s", partition, error)
                continue
            if bounds is not None and bounds[1] >= 0:
                ends[partition] = bounds[1]
        return ends

    def statistics(self) -> ClientStatus | None:
        """Return the client's latest statistics; None without ``statistics.interval.ms``."""
        return self._statistics

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Start reading at the positions."""
        new = [
            ClientPartition(topic, number, self._first() if position is None else position)
            for (topic, number), position in positions.items()
        ]
        if self._cooperative:
            self.consumer.incremental_assign(new)
        else:
            self.consumer.assign(new)
            self._assigned.clear()
        for partition in positions:
            self._assigned[partition] = ClientPartition(*partition)

    def restart(
        self, positions: Mapping[TopicPartition, int | None], moved: Collection[TopicPartition]
    ) -> None:
        """Start reading ``moved`` at their positions although the client has stopped fetching them.

        The client refuses a seek in that state, and an eager group's assignment can only be given
        as a whole. The client shows no position of a partition that has delivered nothing since it
        was assigned. So the caller gives the positions of the others too.

        Raises ``KafkaException`` when the client has not done it in a second.
        """

        def at(partition: TopicPartition) -> ClientPartition:
            position = positions.get(partition)
            return ClientPartition(*partition, self._first() if position is None else position)

        before = self.positions()
        if self._cooperative:
            again = [partition for partition in moved if partition in self._assigned]
            self.consumer.incremental_unassign([ClientPartition(*each) for each in again])
            self.consumer.incremental_assign([at(each) for each in again])
        else:
            again = list(self._assigned)
            self.consumer.assign([at(each) for each in again])
        self._wait_until_moved({each: before[each] for each in again if each in before})

    def _wait_until_moved(self, before: Mapping[TopicPartition, int]) -> None:
        """Wait until none of the old positions is shown any more.

        A thread of the client carries the assignment out. Until then the client shows the old
        positions, which would count as received.
        """
        deadline = time.monotonic() + MOVE_TIMEOUT
        while not before.items().isdisjoint(self.positions().items()):
            if time.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            time.sleep(0.001)

    def _first(self) -> int:
        """Return the start offset without a position. With ``error`` there is none."""
        return OFFSET_INVALID if self.halts_out_of_range else self._reset_to

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are no longer assigned (the client unassigns by itself)."""
        for partition in partitions:
            self._assigned.pop(partition, None)

    def seek(self, partition: TopicPartition, position: int | None) -> None:
        """Continue reading at the position, or where a start without one would begin."""
        if position is None:
            position = self._first()
        self.consumer.seek(ClientPartition(partition.topic, partition.partition, position))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from those of the partitions that are assigned."""
        self._switch(self.consumer.pause, partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from the partitions again."""
        self._switch(self.consumer.resume, partitions)

    def _switch(self, act: Callable[..., None], partitions: Iterable[TopicPartition]) -> None:
        known = [self._assigned[each] for each in partitions if each in self._assigned]
        if known:
            act(known)

    def commit(self, commit: Commit) -> CommitAnswer | None:
        """Send a commit asynchronously."""
        return self._commits.send(self.consumer, commit, self._ends)

    def answers(self, timeout: float) -> bool:
        """Return whether any broker answers a request within ``timeout`` seconds.

        The request uses another connection than commits, which may wait behind a JoinGroup on
        theirs.
        """
        try:
            self.consumer.list_topics(self._topics[0], timeout=timeout)
        except KafkaException as error:
            log.debug("no broker answers: %s", error)
            return False
        return True

    def close(self, patience: float = JOIN_TIMEOUT) -> bool:
        """Leave the group, in an order that lets the client be closed (:mod:`.leave_group`).

        Return False when a JoinGroup in flight was not answered within ``patience`` seconds. The
        coordinator may then keep the member until its session expires.

        A cooperative member without partitions would be closed without a LeaveGroup. The next
        rebalance would then wait for it until its session expires. A static member with partitions
        does not leave when it closes, so that it gets them again (KIP-345). A static member without
        partitions keeps its place whether it knows its id or not.
        """
        static = bool(self._conf.get("group.instance.id"))
        left = Left.YES
        if self._assigned and static:
            self.consumer.poll(0)
        else:
            left = leave(
                self.consumer,
                keeps_id=is_kip_848(self._conf),
                joining=self._subscribed and not static and self._joins(),
                patience=lambda: self._outages.patience(patience),
            )
        self.consumer.close()
        self.admin.close()
        return left is not Left.JOINING

    def _joins(self) -> bool:
        """Return whether the client has topics to join the group for; a pattern may match none."""
        if self.consumer.memberid() or not all(map(is_pattern, self._topics)):
            return True
        try:
            there = sorted(self.consumer.list_topics(timeout=MOVE_TIMEOUT).topics)
        except KafkaException as error:
            log.debug("the topics of a pattern are not told: %s", error)
            return False
        return any(matching(pattern, there) for pattern in self._topics)

    # --- callbacks; they run inside poll, consume and close, on the owner thread ---

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        answer = self._commits.answered(error, partitions)
        if answer is not None:
            self._answer(answer)

    def _ended(self, error: BaseException) -> None:
        self.ending = self.ending or error

    def _on_statistics(self, text: str) -> None:
        self._statistics = read_statistics(text)
