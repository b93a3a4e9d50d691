"""Cluster queries for the checks of ``keyshared doctor``, without joining or writing.

A query without an answer returns the client's ``KafkaError``. The checks decide whether that is a
failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafka_keyshared.client.probe import ANSWER_TIMEOUT, is_mute, speaks_tls
from kafka_keyshared.client.standalone import (
    ASK_AGAIN_AFTER,
    NOT_YET,
    QUIET,
    address_of,
    outsider,
    telling,
    text_of,
)
from kafka_keyshared.client.topic_ids import id_in
from kafka_keyshared.config import connection_conf
from kafka_keyshared.model import Coordinates, TopicPartition
from kafka_keyshared.observability.doctor.checks import PartitionFacts, Stamp, TopicFacts
from kafka_keyshared.observability.doctor.group_checks import GroupFacts
from kafka_keyshared.observability.doctor.progress import (
    ONE_RECORD,
    READ_SECONDS,
    Committed,
    metadata_of,
    read_records,
    watch,
)
from kafka_keyshared.observability.doctor.progress_checks import Records, Standing

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

K = TypeVar("K")

SECONDS = 9.0
"""Time limit in seconds for all queries; a dead cluster takes ``ANSWER_TIMEOUT`` of it."""

_ONE_ANSWER = 2.5
_LAST_CHANCE = 0.3

COMMITS = "__consumer_offsets"
"""The coordinators' log."""

_NO_CONNECTION = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._SSL,
    KafkaError._AUTHENTICATION,
)


class BrokerFacts(NamedTuple):
    """Why each broker does not answer (None: it does), and its limit of commit metadata."""

    silent: dict[str, str | None]
    metadata_limits: dict[str, int]


class Look(NamedTuple):
    """The ends of some logs at a time of this machine's clock, in milliseconds since 1970."""

    at: int
    ends: dict[tuple[str, int], int]


class Survey:
    """Queries to one cluster, all of them within ``seconds``.

    Raises :class:`~kafka_keyshared.errors.ConfigError` when the client refuses a setting.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address_of(conf)
        self._clock = clock
        self._deadline = clock() + seconds
        self._reasons: list[str] = []
        reading = {**conf, **ONE_RECORD}
        reading.pop("group.instance.id", None)
        self._consumer = outsider(reading, self._reasons)
        own = {**connection_conf(conf), **QUIET, "error_cb": self._heard}
        self._admin = AdminClient(own)
        # The embedded cluster does not answer some queries. One of them is refused at once, and
        # decides whether the others are sent.
        self._describes = True
        # By name, the ids of the topics that were examined.
        self._topic_ids: dict[str, str | None] = {}
        self._unheard = False

    def _heard(self, error: KafkaError) -> None:
        self._reasons.append(error.str())

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def metadata(self) -> ClusterMetadata | str:
        """Return the brokers and topics, or why no broker answers."""
        found: ClusterMetadata | str
        try:
            found = self._consumer.list_topics(timeout=self._left(ANSWER_TIMEOUT))
        except KafkaException as error:
            self._consumer.poll(0)
            found = telling(self._reasons) or text_of(error)
        return found

    def lost(self) -> str | None:
        """Return why no broker answers any more, if a query has failed since the last call.

        Return None if any broker answers.
        """
        if not self._unheard:
            return None
        self._unheard = False
        self._deadline = max(self._deadline, self._clock() + _ONE_ANSWER)
        answer = self.metadata()
        return answer if isinstance(answer, str) else None

    def speaks_tls(self) -> bool:
        """Return whether the first configured listener accepts a TLS handshake."""
        return speaks_tls(self.address, self._left(_ONE_ANSWER))

    def is_mute(self) -> bool:
        """Return whether the first configured listener neither answers nor closes a connection."""
        return is_mute(self.address, self._left(_ONE_ANSWER))

    def brokers(self, metadata: ClusterMetadata) -> BrokerFacts:
        """Query every broker itself, at the address that it advertises."""
        found = BrokerFacts({}, {})
        asked = {
            f"{broker.host}:{broker.port}": ConfigResource(ResourceType.BROKER, str(number))
            for number, broker in metadata.brokers.items()
        }
        # One call each: a call queries one broker.
        futures: dict[str, Future[Any]] = {
            address: self._admin.describe_configs([what], request_timeout=self._left())[what]
            for address, what in asked.items()
        }
        for address, answer in self._gather(futures).items():
            found.silent[address] = None
            if not isinstance(answer, KafkaError):
                if (limit := answer.get("offset.metadata.max.bytes")) is not None:
                    found.metadata_limits[address] = int(limit.value)
            elif answer.code() in _NO_CONNECTION:
                found.silent[address] = self._why_silent(address, answer)
            elif answer.code() == KafkaError._UNSUPPORTED_FEATURE:
                self._describes = False
        return found

    def _why_silent(self, address: str, error: KafkaError) -> str:
        self._admin.poll(0)
        own = [reason for reason in self._reasons if address in reason]
        return telling(own) or error.str()

    def topics(self, metadata: ClusterMetadata, closer: Iterable[str]) -> dict[str, TopicFacts]:
        """Return all topics, those in ``closer`` also with settings and allowed operations."""
        found = {
            name: TopicFacts(name, len(topic.partitions))
            for name, topic in metadata.topics.items()
            if topic.error is None
        }
        names = sorted(found.keys() & set(closer))
        if not names or not self._describes:
            return found
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
        configs = self._admin.describe_configs(
            list(resources.values()), request_timeout=self._left()
        )
        described = self._admin.describe_topics(
            TopicCollection(names),
            include_authorized_operations=True,
            request_timeout=self._left(),
        )
        settings = self._gather({name: configs[what] for name, what in resources.items()})
        operations = self._gather(described)
        for name in names:
            conf, about = settings[name], operations[name]
            self._topic_ids[name] = None if isinstance(about, KafkaError) else id_in(about)
            known = not isinstance(conf, KafkaError)
            found[name] = TopicFacts(
                name,
                found[name].partitions,
                max_message_bytes=int(conf["max.message.bytes"].value) if known else None,
                compression=conf["compression.type"].value if known else None,
                cleanup=conf["cleanup.policy"].value if known else None,
                may=None if isinstance(about, KafkaError) else _operations(about),
                broker_time=known and conf["message.timestamp.type"].value == "LogAppendTime",
            )
        return found

    def may_not_make(self, topic: str) -> str | None:
        """Return why this user could not create a topic, None if no reason is known."""
        if not self._describes:
            return None
        wanted, left = NewTopic(topic, 1, -1), self._left()
        asked = self._admin.create_topics([wanted], validate_only=True, request_timeout=left)
        answer = self._gather(asked)[topic]
        return answer.str() if isinstance(answer, KafkaError) else None

    def group(self, name: str) -> GroupFacts | KafkaError:
        """Return the state of a consumer group."""
        while True:
            asked = self._admin.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=self._left()
            )
            answer = self._gather(asked)[name]
            if not isinstance(answer, KafkaError):
                return _described(answer)
            if answer.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return GroupFacts("DEAD", "", "", ())
            if answer.code() not in NOT_YET or self._clock() >= self._deadline:
                return answer
            time.sleep(ASK_AGAIN_AFTER)

    def partitions(self, counts: Mapping[str, int]) -> list[PartitionFacts] | KafkaError:
        """Return the bounds of each partition's log and the group's committed position.

        A missing answer for one partition does not hide the others. The error is returned only if
        there is no answer for any partition.
        """
        asked = _partitions_of(counts)
        first = self._offsets(asked, "earliest")
        end = self._offsets(asked, "latest")
        committed = self._committed(asked)
        if isinstance(committed, KafkaError):
            return committed
        found, errors = [], []
        for each in asked:
            begins, ends, answer = first[each], end[each], committed[_pair(each)]
            untold = [got for got in (begins, ends, answer.error) if isinstance(got, KafkaError)]
            if untold:
                errors.append(untold[0])
                facts = PartitionFacts(*_pair(each), 0, 0, None, untold[0].str())
            else:
                position = answer.offset if answer.offset >= 0 else None
                bounds = (begins.offset, ends.offset)
                beside = metadata_of(answer)
                facts = PartitionFacts(
                    *_pair(each),
                    *bounds,
                    position,
                    metadata=beside,
                    topic_id=self._topic_ids.get(each.topic),
                )
            found.append(facts)
        return errors[0] if errors and len(errors) == len(found) else found

    def bounds(self, counts: Mapping[str, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the bounds of each log, if the cluster returns them."""
        asked = _partitions_of(counts)
        first, end = self._offsets(asked, "earliest"), self._offsets(asked, "latest")
        return {
            TopicPartition(*_pair(each)): (first[each].offset, end[each].offset)
            for each in asked
            if not isinstance(first[each], KafkaError) and not isinstance(end[each], KafkaError)
        }

    def _committed(
        self, asked: list[ClientPartition]
    ) -> dict[tuple[str, int], ClientPartition] | KafkaError:
        try:
            answers = self._consumer.committed(asked, timeout=self._left())
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            self._unheard |= reason.code() in _NO_CONNECTION
            return reason
        return {_pair(each): each for each in answers}

    def watch(self, behind: Sequence[PartitionFacts], seconds: float) -> list[Standing]:
        """Query positions repeatedly for ``seconds``, or until all have moved."""
        self._deadline += seconds

        def ask(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
            answers = self._committed([ClientPartition(*partition) for partition in partitions])
            if isinstance(answers, KafkaError):
                return {}
            return {
                TopicPartition(*partition): Committed(each.offset, metadata_of(each))
                for partition, each in answers.items()
                if each.error is None and each.offset >= 0
            }

        return watch(behind, ask, seconds, clock=self._clock)

    def read(self, records: Sequence[Coordinates]) -> Records:
        """Return the records at these offsets, or why they are unknown."""
        self._deadline += READ_SECONDS
        return read_records(self._consumer, records)

    def newest(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the latest timestamp in each topic (KIP-734), if the cluster returns one."""
        found: dict[str, int] = {}
        for each, answer in self._offsets(_partitions_of(counts), "max_timestamp").items():
            if not isinstance(answer, KafkaError) and answer.timestamp >= 0:
                found[each.topic] = max(answer.timestamp, found.get(each.topic, 0))
        return found

    # --- timestamps that brokers write during the survey, from their own clocks ---

    def look(self, metadata: ClusterMetadata, stamped: Iterable[str]) -> Look:
        """Return the current ends of the logs with broker timestamps.

        These are the topics ``stamped`` (``LogAppendTime``) and the group coordinators' log, whose
        records have the coordinator's time.
        """
        logs = {*stamped, COMMITS} & metadata.topics.keys() if self._describes else set()
        counts = {name: len(metadata.topics[name].partitions) for name in logs}
        at = self.now_ms()
        ends = self._offsets(_partitions_of(counts), "latest") if counts else {}
        known = {
            _pair(each): answer.offset
            for each, answer in ends.items()
            if not isinstance(answer, KafkaError)
        }
        return Look(at, known)

    def stamps(self, since: Look, patience: float) -> list[Stamp]:
        """Return the broker timestamps written since, waiting ``patience`` seconds for one."""
        until = self._clock() + patience
        while since.ends:
            found = self._stamps(since)
            if found or self._clock() >= until:
                return found
            time.sleep(ASK_AGAIN_AFTER)
        return []

    def _stamps(self, since: Look) -> list[Stamp]:
        asked = [ClientPartition(*partition) for partition in since.ends]
        answers = self._offsets(asked, "max_timestamp")
        now = self.now_ms()
        return [
            Stamp(since.at, answer.timestamp, now)
            for each, answer in answers.items()
            if not isinstance(answer, KafkaError)
            and answer.timestamp >= 0
            and answer.offset >= since.ends[_pair(each)]
        ]

    @staticmethod
    def now_ms() -> int:
        """Return this machine's time, in milliseconds since 1970."""
        return int(time.time() * 1000)

    def _offsets(self, asked: Sequence[ClientPartition], which: str) -> dict[ClientPartition, Any]:
        return self._gather(
            self._admin.list_offsets(
                dict.fromkeys(asked, getattr(OffsetSpec, which)()), request_timeout=self._left()
            )
        )

    def _gather(self, futures: Mapping[K, Future[Any]]) -> dict[K, Any]:
        """Wait for the answers. Each is the result or the client's error."""
        answers: dict[K, Any] = {}
        for key, future in futures.items():
            try:
                answers[key] = future.result(self._left() + _LAST_CHANCE)
            except KafkaException as error:
                answers[key] = error.args[0]
            except TimeoutError:
                answers[key] = KafkaError(KafkaError._TIMED_OUT)
            if isinstance(answers[key], KafkaError):
                self._unheard |= answers[key].code() in _NO_CONNECTION
        return answers

    def _left(self, most: float = _ONE_ANSWER) -> float:
        return max(_LAST_CHANCE, min(most, self._deadline - self._clock()))


def _partitions_of(counts: Mapping[str, int]) -> list[ClientPartition]:
    return [
        ClientPartition(topic, number) for topic, count in counts.items() for number in range(count)
    ]


def _pair(partition: ClientPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _described(answer: Any) -> GroupFacts:
    """Return the facts in a broker's description of a group."""
    has = [
        (f"{each.client_id} at {each.host}", each.assignment.topic_partitions)
        for each in answer.members
    ]
    return GroupFacts(
        state=answer.state.name,
        kind=answer.type.name,
        assignor=answer.partition_assignor,
        members=tuple(name for name, _ in has),
        may=_operations(answer),
        idle=tuple(name for name, own in has if not own),
        owners={TopicPartition(*_pair(each)): name for name, own in has for each in own},
    )


def _operations(described: Any) -> frozenset[str] | None:
    """Return the names of the allowed operations; None without them in the answer."""
    allowed = described.authorized_operations
    return None if allowed is None else frozenset(each.name for each in allowed)
