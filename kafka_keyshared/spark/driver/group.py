"""The driver's membership, the only one in the group.

The driver commits the settled records of a batch as any member does. Pods resume from there. It
owns every partition, and all of them are paused, because records come through Spark's own source. A
thread polls, as a member must, and makes every other call that needs the client. When another
member joins, the coordinator revokes the partitions. The revoke callback waits for the running
batch, within the limits of the poll interval, so that its commit comes first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.port import EventKind, classify_event, unreachable, with_cure
from kafka_keyshared.client.standalone import ASK_AGAIN_AFTER, NOT_YET
from kafka_keyshared.client.topics import partitions_of
from kafka_keyshared.config import connection_conf
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult, StartPoint
from kafka_keyshared.core.offsets.metadata_sections import topic_id_in
from kafka_keyshared.errors import (
    BrokerUnavailableError,
    ConfigError,
    InvariantError,
    KeySharedError,
    TopicMissingError,
)
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition, counted, some

T = TypeVar("T")

log = log_of("kafka_keyshared.spark")

ASK_TIMEOUT = 10.0
ID_TIMEOUT = 1.0
"""Timeout in seconds for the topic ids when no committed metadata names one."""

JOIN_TIMEOUT = 90.0
COMMIT_TIMEOUT = 60.0
UNKNOWN_TOPIC = "UNKNOWN_TOPIC_OR_PART"
UNKNOWN_FOR = 5.0
"""Seconds after which a topic that a commit does not find counts as deleted.

Until then the broker's metadata may be late.
"""
MAX_POLL_INTERVAL_MS = 300_000
REVOKE_SHARE = 0.8
"""Share of the poll interval that a batch may use once another member joins."""

_POLL = 0.1

SENT_AGAIN = (CommitResult.RETRY, CommitResult.DENIED)
"""Answers after which a commit is retried for a while: a missing ACL may be granted soon."""


class GroupActiveError(KeySharedError):
    """The group has other members: two readers of a partition would break the order of its keys."""


class GroupLostError(KeySharedError):
    """The group has moved on without the driver, so the batch is not committed."""


def refuse_active(conf: Mapping[str, Any], timeout: float = ASK_TIMEOUT) -> None:
    """Raise :class:`GroupActiveError` naming the members of the group, if there are any."""
    group = str(conf["group.id"])
    admin = AdminClient({**connection_conf(conf), "log_level": 2})
    deadline = time.monotonic() + timeout
    while True:
        try:
            asked = admin.describe_consumer_groups([group], request_timeout=timeout)
            members = asked[group].result().members
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return
            if reason.code() in NOT_YET and time.monotonic() < deadline:
                threading.Event().wait(ASK_AGAIN_AFTER)
                continue
            raise BrokerUnavailableError(
                f"the cluster does not tell who is in group {group!r}: {reason.str()}"
            ) from error
        if members:
            raise GroupActiveError(
                f"group {group!r} has {counted(len(members), 'member')} "
                f"({some(f'{each.client_id} on {each.host}' for each in members)}): stop them "
                "first, or wait until the session of one that died is over; Spark goes on where "
                "they have committed"
            )
        return


class SoleMember:
    """The group's only member; a context manager that leaves the group on exit.

    ``conf`` is the consumer's configuration. Its methods may be called from any one thread. The
    polling thread calls ``lost`` from the moment the membership fails until this is closed. From
    then on no batch is committed, running or future, because other members may be running its
    records.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topics: Sequence[str],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._conf = dict(conf)
        self._lost = lost
        self._topics = list(topics)
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._answers: dict[Commit, Future[CommitAnswer]] = {}
        self._assigned: set[TopicPartition] = set()
        self._changed = threading.Event()
        self._contested = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._over = threading.Event()
        self._failure: KeySharedError | None = None
        # The broker's message when it last refused a request. An assignment clears it.
        self._refused = ""
        self._client: KafkaClient | None = None
        self._thread = threading.Thread(target=self._live, name="keyshared-spark-member")

    # --- called by the driver ---

    def __enter__(self) -> Self:
        """Join the group, and return once this member owns every partition.

        Raises :class:`GroupActiveError` when the group has other members.
        """
        refuse_active(self._conf)
        try:
            client = KafkaClient(self._conf, self._topics, self._answered)
        except (KafkaException, TypeError, ValueError) as error:
            raise ConfigError(f"the client refuses its settings: {error}") from error
        try:
            client.check_topics(ASK_TIMEOUT)
            wanted = set(partitions_of(client.consumer, self._topics))
        except BaseException:
            client.close()
            raise
        self._client = client
        self._thread.start()
        try:
            self._wait_for(wanted)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def contested(self) -> bool:
        """Whether another member has joined, so that this run ends after its batch."""
        return self._contested.is_set()

    def starts(self) -> tuple[dict[TopicPartition, StartPoint], set[TopicPartition]]:
        """Return the start point of each partition, and the partitions without a committed offset.

        Those start where the reset policy says, as in pods. Raises :class:`BrokerUnavailableError`
        when the cluster does not answer. Raises :class:`ConfigError` when there is no position and
        the policy is ``error``.
        """
        return self._do(self._starts)

    def commit(self, entries: Mapping[TopicPartition, CommitEntry]) -> None:
        """Commit as this member, and return once the broker has accepted the commit.

        Raises :class:`GroupLostError` when the group has moved on without this member, and
        :class:`TopicMissingError` when a topic was deleted.
        """
        deadline = time.monotonic() + COMMIT_TIMEOUT
        unknown_since: float | None = None
        while True:
            commit = Commit(dict(entries))
            answer = self._commit(commit)
            if answer.result is CommitResult.ACCEPTED:
                return
            if UNKNOWN_TOPIC not in answer.error:
                unknown_since = None
            elif unknown_since is None:
                unknown_since = time.monotonic()
            elif time.monotonic() - unknown_since >= UNKNOWN_FOR:
                topics = sorted({each.topic for each in entries})
                raise TopicMissingError(
                    f"the positions of the batch were not all committed: one of its topics "
                    f"({some(topics)}) was deleted while the batch ran ({answer.error}); leave it "
                    "out, or create it again, and start once more"
                )
            over = self.contested or time.monotonic() >= deadline
            if answer.result not in SENT_AGAIN or over:
                denied = answer.result is CommitResult.DENIED
                cure = f"; {self._what_to_grant()}" if denied else ""
                raise GroupLostError(
                    f"the positions of the batch were not committed: {answer.error}; the next "
                    f"owner runs its records again{cure}"
                )
            self._over.wait(0.5)

    def begin(self) -> bool:
        """Begin a batch unless another member has joined; a revoke waits until :meth:`end`."""
        self._idle.clear()
        if self.contested:
            self._idle.set()
            return False
        self.refuse_failed()
        return True

    def end(self) -> None:
        """End the batch, whether it was committed or not."""
        self._idle.set()

    def refuse_failed(self) -> None:
        """Raise the failure of the membership, if there is one."""
        if self._failure is not None:
            raise self._failure

    def post(self, act: Callable[[], None]) -> None:
        """Run a function in the polling thread; a signal handler may call this."""
        self._orders.put(act)

    def fail(self, error: KeySharedError) -> None:
        """End the membership with this error, in the polling thread; the first error counts."""
        self._failure = self._failure or error
        self._changed.set()
        self._lost()

    def close(self) -> None:
        """Leave the group."""
        self._idle.set()
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    # --- in the polling thread ---

    def _joined(self) -> KafkaClient:
        if self._client is None:
            raise InvariantError("the driver uses its membership before it has joined")
        return self._client

    def _live(self) -> None:
        client = self._joined()
        try:
            client.subscribe(self._on_assign, self._on_revoke, self._on_lost)
            while not self._over.is_set():
                self._serve()
                if self._failure is not None:
                    self._lost()
                message = client.poll(_POLL)
                error = None if message is None else message.error()
                if error is not None:
                    self._heard(error)
        except Exception as error:  # noqa: BLE001 - the driver gets every error
            self.fail(KeySharedError(f"the driver's member has ended: {error}"))
        finally:
            client.close()
            self._over.set()
            self._serve()

    def _heard(self, error: KafkaError) -> None:
        """Handle a client error; a missing ACL is waited for as long as a join."""
        kind = classify_event(error)
        if kind is EventKind.FATAL:
            self.fail(KeySharedError(f"the driver cannot be in the group: {with_cure(error)}"))
        elif kind is EventKind.REFUSED:
            if not self._refused:
                log.warning("%s; it is tried again; %s", error.str(), self._what_to_grant())
            self._refused = error.str()

    def _what_to_grant(self) -> str:
        topics = ", ".join(self._topics)
        return f"grant READ on group {self._conf['group.id']}, and READ and DESCRIBE on {topics}"

    def _serve(self) -> None:
        while True:
            try:
                order = self._orders.get_nowait()
            except Empty:
                return
            order()

    def _on_assign(self, partitions: list[TopicPartition]) -> None:
        client = self._joined()
        client.assign(dict.fromkeys(partitions))
        client.pause(partitions)
        self._refused = ""
        self._assigned.update(partitions)
        self._changed.set()

    def _on_revoke(self, partitions: list[TopicPartition]) -> None:
        if not self._over.is_set():
            self._contested.set()
            self._changed.set()
            interval = float(self._conf.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)) / 1_000
            deadline = time.monotonic() + REVOKE_SHARE * interval
            while not self._idle.wait(_POLL) and time.monotonic() < deadline:
                self._serve()
            self._serve()
            if not self._idle.is_set():
                self.fail(
                    GroupLostError(
                        f"a member has joined the group, and the batch has not ended within "
                        f"{REVOKE_SHARE * interval:.0f} s: the next owner runs its records again; "
                        "take smaller batches (--batch-offsets), or raise max.poll.interval.ms"
                    )
                )
        self._gone(partitions)

    def _on_lost(self, partitions: list[TopicPartition]) -> None:
        self._contested.set()
        self.fail(GroupLostError("the group has given the driver's partitions to others"))
        self._gone(partitions)

    def _gone(self, partitions: list[TopicPartition]) -> None:
        self._joined().released(partitions)
        self._assigned.difference_update(partitions)

    def _answered(self, answered: CommitAnswer) -> None:
        waiting = self._answers.pop(answered.commit, None)
        if waiting is not None:
            waiting.set_result(answered)

    def _starts(self) -> tuple[dict[TopicPartition, StartPoint], set[TopicPartition]]:
        client = self._joined()
        wanted = sorted(self._assigned)
        try:
            committed = client.committed(wanted, ASK_TIMEOUT)
        except KafkaException as error:
            raise unreachable(str(self._conf.get("bootstrap.servers")), str(error)) from error
        asked = client.ask_topic_ids({each.topic for each in wanted})
        bounds = client.log_bounds(wanted, ASK_TIMEOUT)
        by_id = any(topic_id_in(text) is not None for _, text, _ in committed.values())
        ids = asked.answer(ASK_TIMEOUT if by_id else ID_TIMEOUT) or {}
        missing = [each for each in wanted if each not in committed or each not in bounds]
        if missing:
            raise BrokerUnavailableError(
                f"no answer in time where the group stands in {some(missing)}, or where their logs "
                "begin and end; see whether their leaders are up"
            )
        starts, untold = {}, set()
        for each in wanted:
            position, metadata, _ = committed[each]
            start, end, _ = bounds[each]
            if position is None:
                if client.halts_out_of_range:
                    raise ConfigError(
                        f"{each}: the group has no position, and auto.offset.reset is 'error': "
                        "give earliest or latest"
                    )
                untold.add(each)
                position = end if client.starts_at_end and not client.is_new(each) else start
            elif position > end:
                raise KeySharedError(
                    f"{each}: the group stands at {position}, and the log ends at {end}: it was "
                    "cut off, or its topic was made anew; start a pod (`keyshared run`), which "
                    "reads on where that says, or set the group's position (kafka-consumer-groups "
                    "--reset-offsets)"
                )
            id_ = ids.get(each.topic)
            if id_ is None and topic_id_in(metadata) is not None:
                log.warning(
                    "%s: no broker returned the topic id in time; records that were settled beyond "
                    "the committed position run again",
                    each,
                )
            starts[each] = StartPoint(position, metadata, start, end, each not in untold, id_)
        return starts, untold

    # --- between the two threads ---

    def _do(self, act: Callable[[], T]) -> T:
        done: Future[T] = Future()

        def order() -> None:
            try:
                done.set_result(act())
            except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
                done.set_exception(error)

        self._orders.put(order)
        return self._result(done)

    def _result(self, done: Future[T], sent: threading.Event | None = None) -> T:
        while True:
            try:
                return done.result(_POLL)
            except TimeoutError:
                if done.done():
                    raise
                if self.contested and sent is not None and sent.is_set():
                    # The answer comes with a poll, and so only after the revoke callback returns,
                    # which waits for this batch.
                    self._idle.set()
                self.refuse_failed()
                if not self._thread.is_alive():
                    raise GroupLostError("the driver has left its group") from None

    def _commit(self, commit: Commit) -> CommitAnswer:
        answered: Future[CommitAnswer] = Future()
        sent = threading.Event()

        def send() -> None:
            client = self._joined()
            # The broker checks who commits, and not who owns the partitions. This commit would
            # reset the position of a member that has owned them since.
            if self._failure is not None or not self._assigned.issuperset(commit.entries):
                gone = GroupLostError(
                    "the positions of the batch were not committed: other members own its "
                    "partitions now; the next owner runs its records again"
                )
                answered.set_exception(self._failure or gone)
                return
            self._answers[commit] = answered
            failed = client.commit(commit)
            if failed is not None:
                self._answered(failed)
            sent.set()

        self._orders.put(send)
        return self._result(answered, sent)

    def _wait_for(self, wanted: set[TopicPartition]) -> None:
        deadline = time.monotonic() + JOIN_TIMEOUT
        while self._assigned != wanted:
            self.refuse_failed()
            if self.contested or time.monotonic() >= deadline:
                missing = sorted(wanted - self._assigned)
                if self._refused:
                    raise KeySharedError(
                        f"the driver cannot be in the group: {self._refused}; "
                        f"{self._what_to_grant()}"
                    )
                raise GroupActiveError(
                    f"group {self._conf['group.id']!r} did not give the driver {some(missing)}: "
                    "the group has another member; stop it first"
                )
            self._changed.wait(_POLL)
            self._changed.clear()
