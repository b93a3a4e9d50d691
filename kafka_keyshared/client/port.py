"""The loop's port to the Kafka client, and a classifier of errors.

The real client is in :mod:`.kafka`; the loop's test double stands beside the loop's tests.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError

from kafka_keyshared.config.client import is_kip_848
from kafka_keyshared.config.tokens import no_token
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult, Right
from kafka_keyshared.errors import BrokerUnavailableError
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.status import ClientStatus


class CommittedOffset(NamedTuple):
    """The group's committed offset of a partition. ``position`` is None without one.

    ``leader_epoch`` was committed with it (KIP-320), -1 without one.
    """

    position: int | None
    metadata: str | None
    leader_epoch: int = -1


class LogBounds(NamedTuple):
    """The first offset of a log, its end, and its leader's current epoch (-1: unknown)."""

    start: int
    end: int
    leader_epoch: int = -1


class RightRefusal(NamedTuple):
    """A right that a broker refused in an answer: READ or DESCRIBE on a topic, READ on the group.

    ``partition`` is the requested one. It is None where the answer names only the topic or is about
    the group. ``error`` is the broker's text.
    """

    right: Right
    topic: str
    partition: TopicPartition | None
    error: str


class RightsAsked(Protocol):
    """A pending or answered query for the topics that this user may read."""

    def answer(self) -> frozenset[str] | None:
        """Return the topics with READ and DESCRIBE; None while there is no answer."""


class TopicIdsAsked(Protocol):
    """A pending or answered query for the ids of topics."""

    def answer(self, timeout: float) -> dict[str, str] | None:
        """Return the ids, waiting at most ``timeout`` seconds; None without an answer yet.

        A topic without a known id is left out. It does not exist, this user may not describe it, or
        its brokers have no ids.
        """


class MetadataLimitAsked(Protocol):
    """A pending or finished query for ``offset.metadata.max.bytes``."""

    @property
    def limit(self) -> int | None:
        """The limit in bytes. None if no broker has answered it."""

    def answered(self, timeout: float) -> bool:
        """Return whether the query is over, waiting at most ``timeout`` seconds for that."""


class Client(Protocol):
    """The port through which the loop uses Kafka. Every call comes from the owner thread.

    ``halts_out_of_range``: the user wants no record skipped in any case
    (``auto.offset.reset=error``). ``starts_at_end``: a partition without a committed position
    starts at the end of its log (``latest``).
    """

    halts_out_of_range: bool
    starts_at_end: bool

    @property
    def last_error(self) -> str:
        """The client's latest error, empty without one."""

    @property
    def away_seconds(self) -> float | None:
        """Seconds since any broker answered, as far as known. None while one does."""

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        """Join the group. The callbacks run inside poll, consume and close only."""

    def poll(self, timeout: float) -> Record | None:
        """Wait for one message or event, at most ``timeout`` seconds."""

    def consume(self, count: int) -> list[Record]:
        """Return at most ``count`` fetched messages without waiting."""

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the positions of all assigned partitions that have one, or of the given ones."""

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        """Query the broker for positions and metadata. Refused partitions are left out.

        Raises ``KafkaException`` when there is no answer in time.
        """

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        """Query the bounds of many logs at once. Those without an answer are left out."""

    def received_epoch(self, partition: TopicPartition) -> int:
        """Return the leader epoch at the last received record, or at the committed position.

        -1 when neither is known.
        """

    def ask_topic_ids(self, topics: Collection[str]) -> TopicIdsAsked:
        """Request the ids of topics (KIP-516) without waiting.

        A topic that was deleted and created again has another id. A caller that no longer needs
        the answer drops the returned query.
        """

    def refusals(self) -> list[RightRefusal]:
        """Return the refusals that brokers have answered since the last call.

        Refused fetches and joins come as events of a poll instead.
        """

    def ask_rights(self, topics: Collection[str]) -> RightsAsked:
        """Request the user's rights on the topics without waiting.

        The client also looks up its topics again: it has dropped one that it may not describe.
        """

    def ask_metadata_limit(self) -> MetadataLimitAsked:
        """Request the brokers' limit of commit metadata in bytes, without waiting."""

    def start_over(self, error: KafkaError) -> bool:
        """Return whether the next polls replace the client, which this fatal error has ended.

        Its partitions are lost, and it joins the group as a new member.
        """

    def is_new(self, partition: TopicPartition) -> bool:
        """Return whether the partition was added to its topic while this process ran."""

    def log_ends(self) -> dict[TopicPartition, int]:
        """Return the last known ends of the assigned partitions' logs, without a request."""

    def statistics(self) -> ClientStatus | None:
        """Return the client's latest statistics; None when they are off."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Start reading at the positions.

        A cooperative protocol keeps the other partitions assigned.

        A partition that was paused when it was revoked is paused when it comes back.
        """

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the partitions are no longer assigned."""

    def seek(self, partition: TopicPartition, position: int | None) -> None:
        """Continue reading at the position; None means where the reset policy says."""

    def restart(
        self, positions: Mapping[TopicPartition, int | None], moved: Collection[TopicPartition]
    ) -> None:
        """Continue reading ``moved`` after the client has stopped fetching them (out of range).

        ``positions`` has the position of each of them, and of every other partition that has
        started. The others may have to be assigned again too, and their undelivered records must
        not be lost.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from those partitions that are assigned, until they are resumed.

        Raises ``KafkaException`` when the client refuses, as :meth:`resume` does.
        """

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch again from those partitions that are assigned. Harmless if not paused."""

    def commit(self, commit: Commit) -> CommitAnswer | None:
        """Send a commit. The answer comes through the callback, or here if it failed at once."""

    def answers(self, timeout: float) -> bool:
        """Return whether any broker answers a request within ``timeout`` seconds."""

    def close(self, patience: float = 10.0) -> bool:
        """Leave the group, also as a member without partitions.

        Waits for the answer to a JoinGroup in flight, at most ``patience`` seconds. Return False
        without that answer: the coordinator may then keep the member until its session expires.
        """


Rebalance = Callable[[list[TopicPartition]], None]
Committed = dict[TopicPartition, CommittedOffset]


# --- one classifier for every error of the client ---


class EventKind(enum.Enum):
    """The meaning of an error event among the fetched messages."""

    END_OF_PARTITION = "end_of_partition"
    MAX_POLL_EXCEEDED = "max_poll_exceeded"
    OUT_OF_RANGE = "out_of_range"
    REFUSED = "refused"
    TRANSIENT = "transient"
    FATAL = "fatal"


_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Right.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Right.GROUP,
}
"""Errors of a missing right, which may pass, so the client retries.

An access-control list takes time to reach every broker. An authorizer refuses everything while it
reloads.
"""

_FATAL_CODES = {
    # Another instance has the same group.instance.id (KIP-345). This one is fenced, and would wait.
    KafkaError._FATAL,
    KafkaError.FENCED_INSTANCE_ID,
}

_CURES = {
    KafkaError.INCONSISTENT_GROUP_PROTOCOL: (
        "it has no partitions until the members of the group agree: give this one their "
        "'partition.assignment.strategy' and 'group.protocol' (`keyshared doctor` names them), or "
        "stop them"
    ),
}

_COMMIT_RESULTS = {
    # The group has moved on without this member, which no longer owns its partitions.
    KafkaError.UNKNOWN_MEMBER_ID: CommitResult.LOST,
    KafkaError.ILLEGAL_GENERATION: CommitResult.LOST,
    KafkaError.FENCED_INSTANCE_ID: CommitResult.LOST,
    KafkaError._ASSIGNMENT_LOST: CommitResult.LOST,
    KafkaError._MAX_POLL_EXCEEDED: CommitResult.LOST,
    KafkaError.OFFSET_METADATA_TOO_LARGE: CommitResult.TOO_LARGE,
    KafkaError.GROUP_AUTHORIZATION_FAILED: CommitResult.DENIED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: CommitResult.DENIED,
}


def classify_event(error: KafkaError) -> EventKind:
    """Classify an error event. Every error not known to be final is transient."""
    code = error.code()
    if code == KafkaError._PARTITION_EOF:
        return EventKind.END_OF_PARTITION
    if code == KafkaError._MAX_POLL_EXCEEDED:
        return EventKind.MAX_POLL_EXCEEDED
    if code == KafkaError._AUTO_OFFSET_RESET:
        return EventKind.OUT_OF_RANGE
    if error.fatal() or code in _FATAL_CODES:
        return EventKind.FATAL
    if code in _RIGHTS:
        return EventKind.REFUSED
    return EventKind.TRANSIENT


def refused_right(error: KafkaError | None) -> Right | None:
    """Return the object of the missing right; None for any other error, or without one."""
    return None if error is None else _RIGHTS.get(error.code())


def refusal_of(error: KafkaError, partition: TopicPartition | None) -> RightRefusal | None:
    """Return an error as a refusal; None for any error other than a missing right."""
    right = refused_right(error)
    if right is None:
        return None
    if right is Right.GROUP or partition is None:
        return RightRefusal(right, "", None, error.str())
    return RightRefusal(right, partition.topic, partition, error.str())


def ended_by_the_group(error: KafkaError) -> bool:
    """Return whether a client has ended because the group refused its heartbeat.

    Under KIP-848 librdkafka treats that as fatal, and names the cause only in the error text.
    """
    return error.code() == KafkaError._FATAL and "Group authorization failed" in error.str()


def with_cure(error: KafkaError) -> str:
    """Return the client's error text, with a remedy where the text has none."""
    cure = _CURES.get(error.code())
    return f"{error.str()}; {cure}" if cure else str(error.str())


def classify_commit(error: KafkaError | None) -> CommitResult:
    """Classify a commit's error. Every error not known to be final leads to a retry."""
    if error is None:
        return CommitResult.ACCEPTED
    if error.fatal() or error.code() == KafkaError._FATAL:
        return CommitResult.LOST  # such a client cannot commit any more
    return _COMMIT_RESULTS.get(error.code(), CommitResult.RETRY)


def unreachable(
    bootstrap: str, why: str, conf: Mapping[str, Any] = MappingProxyType({})
) -> BrokerUnavailableError:
    """Return the error for a cluster that does not answer: address, reason and remedy.

    ``conf`` tells a missing token from a broker that does not answer.
    """
    if (missing := no_token(conf, why)) is not None:
        return BrokerUnavailableError(
            f"no token for the brokers at {bootstrap}: {missing}; a connection opens only with a "
            "token: see that its source answers from here and lets this client in"
        )
    return BrokerUnavailableError(
        f"no broker answered at {bootstrap}: {why}; see that the address and port are right, that "
        "the broker runs, that it advertises an address that can be reached from here, and that "
        "'security.protocol' matches its listener"
    )


def is_cooperative(conf: Mapping[str, Any]) -> bool:
    """Return whether partitions move one by one (cooperative-sticky, KIP-429, or KIP-848)."""
    if is_kip_848(conf):
        return True
    return "cooperative-sticky" in str(conf.get("partition.assignment.strategy", ""))
