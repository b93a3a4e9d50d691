"""The Kafka client as the loop sees it: the port, and one classifier for every error of the client.

The real client stands in :mod:`.kafka`, the loop's own double of it beside the loop's tests.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError

from kafka_keyshared.config.client import is_kip_848
from kafka_keyshared.config.tokens import no_token
from kafka_keyshared.core.commands import Commit
from kafka_keyshared.core.events import CommitAnswered, CommitResult, Right
from kafka_keyshared.errors import BrokerUnavailableError
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.status import ClientStatus


class CommittedOffset(NamedTuple):
    """What the broker has for a partition of the group; ``position`` is None for nothing.

    ``leader_epoch`` is what was committed beside it (KIP-320), -1 for nothing.
    """

    position: int | None
    metadata: str | None
    leader_epoch: int = -1


class LogBounds(NamedTuple):
    """The first offset of a log, its end, and the epoch of its leader now (-1: not told)."""

    start: int
    end: int
    leader_epoch: int = -1


class Refusal(NamedTuple):
    """A right that a broker refused in an answer: READ or DESCRIBE on a topic, READ on the group.

    ``partition`` is the one that was asked for, None where the answer names only the topic or is
    about the group. ``error`` has the broker's words.
    """

    right: Right
    topic: str
    partition: TopicPartition | None
    error: str


class RightsAsked(Protocol):
    """A pending or answered question for which topics this user may read."""

    def answer(self) -> frozenset[str] | None:
        """Return the topics with READ and DESCRIBE; None while there is no answer."""


class TopicIdsAsked(Protocol):
    """A question for the ids of topics, on its way or answered."""

    def answer(self, timeout: float) -> dict[str, str] | None:
        """Return the ids, waiting for them at most ``timeout`` seconds; None without an answer yet.

        What the brokers do not tell is left out: a topic that is not there, that this user may not
        describe, or whose brokers know no ids.
        """


class MetadataLimitAsked(Protocol):
    """A question for ``offset.metadata.max.bytes``, on its way or over."""

    @property
    def limit(self) -> int | None:
        """The limit in bytes; None where no broker has told it."""

    def answered(self, timeout: float) -> bool:
        """Say whether the question is over, waiting at most ``timeout`` seconds for that."""


class Client(Protocol):
    """The port through which the loop uses Kafka. Every call comes from the owner thread.

    ``halts_out_of_range`` says that the user wants no record skipped in any case
    (``auto.offset.reset=error``); ``starts_at_end`` that a partition without a committed position
    starts at the end of its log (``latest``).
    """

    halts_out_of_range: bool
    starts_at_end: bool

    @property
    def last_error(self) -> str:
        """What the client told last, empty for nothing."""

    @property
    def away_seconds(self) -> float | None:
        """For how long no broker has answered; None while one does, as far as that is known."""

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        """Join the group; the callbacks run inside poll, consume and close only."""

    def poll(self, timeout: float) -> Record | None:
        """Wait for one message or event, at most ``timeout`` seconds."""

    def consume(self, count: int) -> list[Record]:
        """Take what has been fetched, at most ``count``, without waiting."""

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        """Return the position of every assigned partition that has one, or of these alone."""

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        """Ask the broker for positions and metadata; what it refuses to tell is left out.

        Raises ``KafkaException`` when there is no answer in time.
        """

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        """Ask for the bounds of logs, many at once; those that nobody answered for are left out."""

    def received_epoch(self, partition: TopicPartition) -> int:
        """Return the leader's epoch at the last record received, or at the committed position.

        -1 when neither is known.
        """

    def ask_topic_ids(self, topics: Collection[str]) -> TopicIdsAsked:
        """Ask for the ids of topics (KIP-516), and wait for nothing.

        A topic that was made anew has another one. Whoever keeps no answer drops the question.
        """

    def refusals(self) -> list[Refusal]:
        """Return what brokers have refused in answers to questions since the last call.

        Refused fetches and joins come as events of a poll instead.
        """

    def ask_rights(self, topics: Collection[str]) -> RightsAsked:
        """Ask which of the topics this user may read, without waiting.

        The client also looks for its topics again: it has dropped one that it may not describe.
        """

    def ask_metadata_limit(self) -> MetadataLimitAsked:
        """Ask how many bytes of commit metadata the brokers take, and wait for nothing."""

    def start_over(self, error: KafkaError) -> bool:
        """Say whether the next polls replace the client that this fatal error has ended.

        Its partitions are lost, and it joins the group as a new member.
        """

    def is_new(self, partition: TopicPartition) -> bool:
        """Say whether the partition was added to its topic while this process ran."""

    def log_ends(self) -> dict[TopicPartition, int]:
        """Return the ends of the assigned partitions' logs as last heard, without asking."""

    def statistics(self) -> ClientStatus | None:
        """Return what the client last said of itself, None when it is not asked to."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Start reading there, beside what is assigned already when the protocol is cooperative.

        A partition that was paused when it went is paused when it comes back.
        """

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that the partitions are no longer assigned."""

    def seek(self, partition: TopicPartition, position: int | None) -> None:
        """Go on reading there (None: where the reset policy says)."""

    def restart(
        self, positions: Mapping[TopicPartition, int | None], moved: Collection[TopicPartition]
    ) -> None:
        """Go on reading ``moved`` after the client has given them up (out of range).

        ``positions`` says where to read each of them, and every other partition that has started:
        it may have to be assigned anew with them, and what it has not delivered yet must not be
        lost.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching from the partitions, as far as they are assigned, until they are resumed.

        Raises ``KafkaException`` when the client refuses, as :meth:`resume` does.
        """

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from the partitions again, as far as they are assigned; harmless if not paused."""

    def commit(self, commit: Commit) -> CommitAnswered | None:
        """Send a commit; the answer comes through the callback, or here if it failed at once."""

    def answers(self, timeout: float) -> bool:
        """Say whether a broker answers a question, any, within ``timeout`` seconds."""

    def close(self, patience: float = 10.0) -> bool:
        """Leave the group, also as a member without partitions.

        A JoinGroup on its way is waited for, at most ``patience`` seconds. Return False when it was
        not answered: then the coordinator may keep the member until its session is over.
        """


Rebalance = Callable[[list[TopicPartition]], None]
Committed = dict[TopicPartition, CommittedOffset]


# --- one classifier for every error of the client ---


class EventKind(enum.Enum):
    """What an error event among the fetched messages means for the loop."""

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
"""Errors of a missing right. They may pass: an access-control list takes time to reach every
broker, and an authorizer that reloads refuses everything meanwhile. The client asks again."""

_FATAL_CODES = {
    # Another instance has the same group.instance.id (KIP-345): this one is out, and would wait.
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
    # The group has moved on without this member: what it holds is no longer its own.
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
    """Say what an error event means. Whatever is not known to be final is transient."""
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
    """Return what the missing right is about; None for any other error, or for none."""
    return None if error is None else _RIGHTS.get(error.code())


def refusal_of(error: KafkaError, partition: TopicPartition | None) -> Refusal | None:
    """Return the refusal that an error is; None for any error but a missing right."""
    right = refused_right(error)
    if right is None:
        return None
    if right is Right.GROUP or partition is None:
        return Refusal(right, "", None, error.str())
    return Refusal(right, partition.topic, partition, error.str())


def ended_by_the_group(error: KafkaError) -> bool:
    """Say whether a client has ended because the group refused its heartbeat.

    Under KIP-848 librdkafka takes that for fatal, and tells the cause only in words.
    """
    return error.code() == KafkaError._FATAL and "Group authorization failed" in error.str()


def with_cure(error: KafkaError) -> str:
    """Return the client's words, and what to do where they do not say it."""
    cure = _CURES.get(error.code())
    return f"{error.str()}; {cure}" if cure else str(error.str())


def classify_commit(error: KafkaError | None) -> CommitResult:
    """Say what a commit's error means. Whatever is not known to be final is sent again."""
    if error is None:
        return CommitResult.ACCEPTED
    if error.fatal() or error.code() == KafkaError._FATAL:
        return CommitResult.LOST  # such a client commits nothing any more
    return _COMMIT_RESULTS.get(error.code(), CommitResult.RETRY)


def unreachable(
    bootstrap: str, why: str, conf: Mapping[str, Any] = MappingProxyType({})
) -> BrokerUnavailableError:
    """Return the error for a cluster that does not answer: where, why, and what to try.

    With ``conf`` a token that is missing is told apart from a broker that does not answer.
    """
    if (missing := no_token(conf, why)) is not None:
        return BrokerUnavailableError(
            f"no token for the brokers at {bootstrap}: {missing}; a connection opens only with a "
            "token: see that its source answers from here and lets this client in"
        )
    return BrokerUnavailableError(
        f"no broker answered at {bootstrap}: {why}; see that the address and port are right, that "
        "the broker runs, that it advertises an address that can be reached from here, and that "
        "'security.protocol' is what it expects"
    )


def is_cooperative(conf: Mapping[str, Any]) -> bool:
    """Say whether partitions come and go one by one (cooperative-sticky, KIP-429, or KIP-848)."""
    if is_kip_848(conf):
        return True
    return "cooperative-sticky" in str(conf.get("partition.assignment.strategy", ""))
