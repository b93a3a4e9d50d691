"""The real Kafka client: :class:`.port.Client` over ``confluent_kafka.Consumer``.

What the client is known to do, and what follows for the loop, stands in ``docs/architecture.md``.
Two rules shape this module: no callback ever raises (an exception out of one loses records that
were already taken off the client's queue), and nothing here commits synchronously.
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

from kafka_keyshared.client.answered import CommitsInFlight
from kafka_keyshared.client.asking import ask_bounds, ask_committed, epoch_of
from kafka_keyshared.client.callback_calls import CallbackCalls
from kafka_keyshared.client.guarded import hook, in_turn, shielded
from kafka_keyshared.client.kept_admin import KeptAdmin
from kafka_keyshared.client.leaving import JOIN_TIMEOUT, Left, leave
from kafka_keyshared.client.metadata_limit import KafkaMetadataLimit
from kafka_keyshared.client.outage import Outages
from kafka_keyshared.client.patterns import is_pattern, matching
from kafka_keyshared.client.port import (
    Committed,
    LogBounds,
    Rebalance,
    Refusal,
    ended_by_the_group,
    is_cooperative,
    unreachable,
)
from kafka_keyshared.client.rights import KafkaRights
from kafka_keyshared.client.start_topics import find
from kafka_keyshared.client.statistics import read_statistics
from kafka_keyshared.client.topic_ids import KafkaTopicIds
from kafka_keyshared.config.client import is_kip_848
from kafka_keyshared.config.properties import FOR_LETTERS
from kafka_keyshared.config.tokens import no_token, with_guarded_tokens
from kafka_keyshared.core.commands import Commit
from kafka_keyshared.core.events import CommitAnswered
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.logs import Seldom, log_of, quietly
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.program import forks
from kafka_keyshared.status import ClientStatus

log = log_of("kafka_keyshared.kafka")

NUDGE_WAIT = 0.01
"""Seconds for which the owner waits for a list of topics that is asked for its side effect."""

REPLACE_EVERY = 2.0
"""Seconds between two times that a consumer is replaced which a refused heartbeat has ended."""

MOVE_TIMEOUT = 1.0
"""Seconds in which the client is to carry out an assignment; it takes some milliseconds."""


def _nothing(partitions: list[TopicPartition]) -> None:
    del partitions


class KafkaClient:
    """:class:`Client` over ``confluent_kafka.Consumer``.

    ``answer`` is told of every commit's answer, from inside poll, consume or close. The user's own
    ``on_commit``, ``error_cb``, ``stats_cb`` and ``throttle_cb`` are called through a shield, and
    so are ``users``: what is called after our own ``on_assign``, ``on_revoke`` and ``on_lost``.
    ``renewed`` is called when ``consumer`` is another one.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        answer: Callable[[CommitAnswered], None],
    ) -> None:
        self._conf = conf = with_guarded_tokens(conf)
        self._topics = list(topics)
        self._answer = answer
        self._commits = CommitsInFlight()
        self._assigned: dict[TopicPartition, ClientPartition] = {}
        # How far each was received when that was asked for last.
        self._ends: dict[TopicPartition, ClientPartition] = {}
        # Leader epochs that came with committed positions, for partitions that deliver nothing.
        self._epochs: dict[TopicPartition, int] = {}
        self._subscribed = False
        self._seldom = Seldom(log)
        self._refusals: list[Refusal] = []
        # How many partitions each topic had at the start.
        self._counts: dict[str, int] | None = None
        # The numbers of the brokers that were there then.
        self._brokers: frozenset[int] = frozenset()
        self._outages = Outages(self.answers, no_token=lambda why: no_token(conf, why))
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
        # Where a partition starts is assigned; after that the client must not choose a position.
        own["auto.offset.reset"] = "error"
        self._statistics: ClientStatus | None = None
        ours: dict[str, Callable[..., None]] = {
            "on_commit": self._on_commit,
            "error_cb": self._outages.heard,
            "stats_cb": self._on_statistics,
        }
        # What a callback of the user's wanted to end the program with.
        self.ending: BaseException | None = None
        hook(own, ours, self._ended)
        self._own = own
        try:
            self.consumer = Consumer(quietly(own))
        except KafkaException as error:
            # It is made with a token, or not at all.
            if error.args[0].code() == KafkaError.SASL_AUTHENTICATION_FAILED:
                raise unreachable(self._bootstrap, error.args[0].str(), conf) from error
            raise
        self._callbacks: tuple[Rebalance, Rebalance, Rebalance] | None = None
        # When to replace the consumer that has ended; None while it lives.
        self._replace_at: float | None = None
        self._replaced = False
        self._replaced_at = float("-inf")
        self.renewed: Callable[[], None] = lambda: None
        if int(own.get("statistics.interval.ms", 0)) > 0:
            self._statistics = ClientStatus()  # before its first word it has counted nothing
        forks.watch(self)
        self.users: Mapping[str, Callable[[list[ClientPartition]], None]] = {}
        # What callbacks of the user ask for, and who carries it out: the rebalancer.
        self.calls = CallbackCalls(lambda: self._commits.positions)
        self.start_at: Callable[[Mapping[TopicPartition, int]], None] = lambda _: None
        self.withhold: Callable[[Sequence[TopicPartition]], None] = lambda _: None

    def forked(self) -> None:
        """Let a child of a callback or a key function go no further: it is not the owner."""
        # Kept, or its destructor would wait for threads that the child does not have.
        self._parents = self.consumer
        self.consumer = cast("Consumer", forks.StaysWithParent(forks.IN_OWNER, lambda: self.ending))

    @property
    def last_error(self) -> str:
        """What the client told last."""
        return self._outages.last_error

    @property
    def away_seconds(self) -> float | None:
        """For how long no broker has answered; None while one does."""
        return self._outages.seconds

    # --- before the start ---

    def check_topics(self, timeout: float) -> list[str]:
        """Raise when no broker answers or a topic is missing: see :func:`.start_topics.find`.

        Returns the names of all topics that are there.
        """
        try:
            metadata = self.consumer.list_topics(timeout=timeout)
        except KafkaException as error:
            self.consumer.poll(0)  # the client tells its reason in a callback, and that in a poll
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
                    return  # it has ended, and what it had is lost
                rebalance([TopicPartition(each.topic, each.partition) for each in partitions])

            ours, users = shielded(callback, name, self._ended), self.users.get(name)
            if users is None:
                return ours
            return in_turn(ours, self._with_calls(name, shielded(users, name, self._ended)))

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
        """Return the user's callback so that what it asks its consumer for is done after it."""

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
        """Take what has been fetched, without waiting."""
        self._outages.look()  # an owner that has work may not poll for minutes
        self._replace_if_due()
        return self.consumer.consume(count, 0)  # type: ignore[return-value]

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the position of every assigned partition that has one, or of these alone."""
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
        """Ask for the bounds of logs, many at once."""
        lists = self.admin.list_topics
        return ask_bounds(self.consumer, partitions, timeout, self._seldom, lists)

    def received_epoch(self, partition: TopicPartition) -> int:
        """Return the leader's epoch at the last record received, or at the committed position."""
        end = self._ends.get(partition)
        if end is not None and end.offset >= 0:
            return epoch_of(end)
        return self._epochs.get(partition, -1)

    def ask_topic_ids(self, topics: Collection[str]) -> KafkaTopicIds:
        """Ask for the ids of topics, and wait for nothing."""
        return KafkaTopicIds(self.admin, topics)

    def refusals(self) -> list[Refusal]:
        """Return what brokers have refused in answers to questions since the last call."""
        found, self._refusals = self._refusals, []
        return found

    def ask_rights(self, topics: Collection[str]) -> KafkaRights:
        """Ask which of the topics this user may read, and have the client look for its topics."""
        try:
            # The request is sent, and the answer updates the subscription in the client's thread.
            self.consumer.list_topics(timeout=NUDGE_WAIT)
        except KafkaException as error:
            log.debug("the list of topics has not come within %g s: %s", NUDGE_WAIT, error)
        return KafkaRights(self.admin, topics)

    def ask_metadata_limit(self) -> KafkaMetadataLimit:
        """Ask how many bytes of commit metadata the brokers take, and wait for nothing."""
        return KafkaMetadataLimit(self.admin, self._brokers)

    def start_over(self, error: KafkaError) -> bool:
        """Say whether the consumer is replaced, which the group has ended (KIP-848)."""
        if not ended_by_the_group(error) or self._callbacks is None:
            return False
        if self._replace_at is None:
            self._replace_at = max(time.monotonic(), self._replaced_at + REPLACE_EVERY)
        return True

    def _replace_if_due(self) -> None:
        if self._replace_at is not None and time.monotonic() >= self._replace_at:
            self._replace()

    def _replace(self) -> None:
        """Lose all partitions, end the consumer and let another one join; inside a poll."""
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
        """Say whether the partition was not there yet when the topics were checked."""
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
        """Return what the client said of itself last; None without ``statistics.interval.ms``."""
        return self._statistics

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Start reading there."""
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
        """Start reading ``moved`` at their positions although the client has given them up.

        A seek is refused then, and an eager group's assignment can only be given as a whole. The
        client itself cannot tell where the others are: of a partition that has delivered nothing
        since it was assigned, it shows no position.

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

        A thread of the client's carries an assignment out. Until it has, the positions are those of
        before, and what they say would count as received.
        """
        deadline = time.monotonic() + MOVE_TIMEOUT
        while not before.items().isdisjoint(self.positions().items()):
            if time.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            time.sleep(0.001)

    def _first(self) -> int:
        """Return where a partition without a position starts: with ``error`` nowhere."""
        return OFFSET_INVALID if self.halts_out_of_range else self._reset_to

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that the partitions are no longer assigned (the client unassigns by itself)."""
        for partition in partitions:
            self._assigned.pop(partition, None)

    def seek(self, partition: TopicPartition, position: int | None) -> None:
        """Go on reading there; without a position, where a start without one would."""
        if position is None:
            position = self._first()
        self.consumer.seek(ClientPartition(partition.topic, partition.partition, position))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from the partitions that are assigned."""
        self._switch(self.consumer.pause, partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from the partitions again."""
        self._switch(self.consumer.resume, partitions)

    def _switch(self, act: Callable[..., None], partitions: Iterable[TopicPartition]) -> None:
        known = [self._assigned[each] for each in partitions if each in self._assigned]
        if known:
            act(known)

    def commit(self, commit: Commit) -> CommitAnswered | None:
        """Send a commit, asynchronously."""
        return self._commits.send(self.consumer, commit, self._ends)

    def answers(self, timeout: float) -> bool:
        """Say whether a broker answers a question, any, within ``timeout`` seconds.

        It goes by another connection than commits, which may wait behind a JoinGroup on theirs.
        """
        try:
            self.consumer.list_topics(self._topics[0], timeout=timeout)
        except KafkaException as error:
            log.debug("no broker answers: %s", error)
            return False
        return True

    def close(self, patience: float = JOIN_TIMEOUT) -> bool:
        """Leave the group, in an order that lets the client be closed (:mod:`.leaving`).

        Return False when the coordinator may keep the member until its session is over, because a
        JoinGroup on its way was not answered within ``patience`` seconds.

        A cooperative member without partitions would be closed without a LeaveGroup: the next
        rebalance would wait for it until its session is over. A static member with partitions
        does not leave when it closes, so that it finds them again (KIP-345); one without has its
        place whether it knows its id or not.
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
        """Say whether the client has topics to join the group for: a pattern may match none."""
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
