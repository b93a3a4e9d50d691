"""Faults of an embedded cluster, under the names of Kafka's protocol.

Requests have the names of Kafka's protocol guide (``OffsetCommit``, ``Fetch``). Errors have their
names there and in ``confluent_kafka.KafkaError`` (``NOT_COORDINATOR``). ``_TRANSPORT`` is the one
error that no broker sends; the connection breaks without an answer.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from confluent_kafka import KafkaError

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.testing.clusters.native import Native

API_KEYS = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "ApiVersions": 18,
    "InitProducerId": 22,
    "OffsetForLeaderEpoch": 23,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "ConsumerGroupHeartbeat": 68,
}
"""The requests that a mock broker answers, with their numbers in the protocol."""

_API_NAMES = {number: name for name, number in API_KEYS.items()}
_ALL = -1


def api_key(request: str) -> int:
    """Return the number of a request; raise :class:`ConfigError` for an unknown name."""
    if request not in API_KEYS:
        raise ConfigError(
            f"request {request!r} is not known to the embedded cluster; it answers "
            f"{', '.join(API_KEYS)}"
        )
    return API_KEYS[request]


def error_code(error: str) -> int:
    """Return the number of an error; raise :class:`ConfigError` for an unknown name."""
    code = getattr(KafkaError, error, None) if error.isupper() else None
    if not isinstance(code, int):
        raise ConfigError(
            f"error {error!r} is not one of Kafka's; give a name of confluent_kafka.KafkaError "
            "such as NOT_COORDINATOR or _TRANSPORT"
        )
    return code


class ClusterFaults(ABC):
    """The faults of one mock cluster; :class:`.embedded.EmbeddedCluster` inherits them.

    Brokers are numbered from 1. Every method raises :class:`KeySharedError` on a closed cluster,
    and :class:`ConfigError` for an unknown request, error or broker.
    """

    _native: Native
    _brokers: int

    @abstractmethod
    def _handle(self) -> int:
        """Return the open cluster; raise when it is closed."""

    def fail_next(
        self, request: str, error: str, *, times: int = 1, broker: int | None = None
    ) -> None:
        """Answer the next ``times`` requests of a kind with an error.

        Errors queue up behind earlier ones. With a ``broker`` only requests to it count, else those
        to any.
        """
        if times < 1:
            raise ConfigError(f"fail_next({request!r}, times={times}): at least 1 is needed")
        code = error_code(error)
        if broker is not None:
            self._push(request, broker, [(code, 0)] * times)
            return
        errors = (ctypes.c_int * times)(*[code] * times)
        self._native.mock_push_request_errors_array(self._handle(), api_key(request), times, errors)

    def delay_next(self, request: str, seconds: float, *, times: int = 1, broker: int = 1) -> None:
        """Delay a broker's answers to its next ``times`` requests of a kind by ``seconds``."""
        if times < 1 or seconds < 0:
            raise ConfigError(
                f"delay_next({request!r}, {seconds}, times={times}): give seconds that are not "
                "negative, and at least 1 request"
            )
        self._push(request, broker, [(0, round(seconds * 1_000))] * times)

    def _push(self, request: str, broker: int, answers: list[tuple[int, int]]) -> None:
        self._check_broker(broker)
        self._check(
            self._native.mock_broker_push_request_error_rtts(
                self._handle(),
                broker,
                api_key(request),
                len(answers),
                *(ctypes.c_int(number) for answer in answers for number in answer),
            ),
            f"broker {broker}",
        )

    def planned(self, request: str, *, broker: int) -> int:
        """Return how many answers planned for this broker alone are still pending."""
        count = ctypes.c_size_t()
        self._check_broker(broker)
        self._check(
            self._native.mock_broker_error_stack_cnt(
                self._handle(), broker, api_key(request), ctypes.byref(count)
            ),
            f"broker {broker}",
        )
        return count.value

    def heal(self, request: str) -> None:
        """Clear the pending errors of :meth:`fail_next` without a broker."""
        self._native.mock_clear_request_errors(self._handle(), api_key(request))

    def broker_down(self, broker: int | None = None) -> None:
        """Break all connections of a broker, or of all, and refuse new ones; its data stays.

        Leaders and coordinators do not move. Move them with :meth:`move_leader` and
        :meth:`move_coordinator`.
        """
        self._switch(self._native.mock_broker_set_down, broker)

    def broker_up(self, broker: int | None = None) -> None:
        """Accept connections again at a broker, or at all."""
        self._switch(self._native.mock_broker_set_up, broker)

    def _switch(self, act: Callable[..., int], broker: int | None) -> None:
        if broker is not None:
            self._check_broker(broker)
        number = _ALL if broker is None else broker
        self._check(act(self._handle(), number), f"broker {broker}")

    def move_coordinator(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a consumer group; the members must find it again."""
        self._check_broker(broker)
        self._check(
            self._native.mock_coordinator_set(self._handle(), b"group", group.encode(), broker),
            f"group {group!r} on broker {broker}",
        )

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition.

        A partition cannot be left without a leader: librdkafka 2.16 dereferences the missing one at
        a fetch, and crashes the process. Let ``Fetch`` fail with ``LEADER_NOT_AVAILABLE`` instead.
        """
        self._check_broker(broker)
        self._check(
            self._native.mock_partition_set_leader(
                self._handle(), topic.encode(), partition, broker
            ),
            f"partition {partition} of topic {topic!r}",
        )

    def fail_topic(self, topic: str, error: str | None) -> None:
        """Return an error for a topic in all metadata, until called with None."""
        code = 0 if error is None else error_code(error)
        self._native.mock_topic_set_error(self._handle(), topic.encode(), code)

    def watch_requests(self) -> None:
        """Record every request from now on, for :meth:`requests`."""
        self._native.mock_start_request_tracking(self._handle())

    def requests(self) -> Counter[str]:
        """Return how many requests of each kind came since :meth:`watch_requests`, by their names.

        A kind without a name in :data:`API_KEYS` has its number as name.
        """
        count = ctypes.c_size_t()
        seen = self._native.mock_get_requests(self._handle(), ctypes.byref(count))
        try:
            keys = [self._native.mock_request_api_key(seen[at]) for at in range(count.value)]
        finally:
            self._native.mock_request_destroy_array(seen, count)
        return Counter(_API_NAMES.get(key, str(key)) for key in keys)

    def _check_broker(self, broker: int) -> None:
        # The library does not check this everywhere, and a group would never find its coordinator
        # again.
        if not 1 <= broker <= self._brokers:
            raise ConfigError(
                f"the embedded cluster has no broker {broker}; they are numbered 1 to "
                f"{self._brokers}"
            )

    def _check(self, code: int, what: str) -> None:
        if code:
            raise KeySharedError(
                f"the embedded cluster refuses {what}: {KafkaError(code).str()}; see that it exists"
            )
