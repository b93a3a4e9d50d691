"""Shared parts of every bench: a cluster, a topic, records, the sides.

The sides themselves run in fresh processes (see :mod:`.child`), one after the other.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Generic, Protocol, Self, TypeVar

import msgspec
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.lab.bench.child import READY, Side
from kafka_keyshared.lab.bench.paced import Pace, Paced
from kafka_keyshared.testing.clusters.cluster import Cluster

RECORD_OVERHEAD = 32
"""Bytes that a broker keeps per record beside key and value, at most."""

END_TIMEOUT = 30.0

Headers = list[tuple[str, str | bytes | None]]
Row = tuple[bytes, bytes | None, int, Headers | None]
"""A record to be produced: value, key, partition, headers."""

Progress = Callable[[str], None]


class BenchPlan(Protocol):
    """Parameters of a measurement. They can be checked before anything starts."""

    def check(self) -> None:
        """Raise :class:`ConfigError` for numbers that make no sense."""
        ...


P = TypeVar("P", bound=BenchPlan)
R = TypeVar("R")


def open_cluster(bootstrap: str | None) -> Cluster:
    """Return the cluster at this address; without one, a real Kafka, or else an embedded one."""
    if bootstrap is not None:
        from kafka_keyshared.testing.clusters.external import external_cluster

        return external_cluster(bootstrap)
    from kafka_keyshared.testing.clusters.jars import find_jars, java

    try:
        java()
        real = find_jars() is not None
    except MissingPartError:
        real = False
    if real:
        from kafka_keyshared.testing.clusters.broker import RealCluster

        return RealCluster(measured=True)
    from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster

    return EmbeddedCluster()


def measure_on(
    bootstrap: str | None,
    measure: Callable[[P, Cluster, Progress], dict[str, Any]],
    plan: P,
    progress: Progress,
) -> dict[str, Any]:
    """Measure on the cluster at this address, or on the best that can be started here.

    Raises :class:`ConfigError` for a plan that makes no sense, before a cluster is started.
    """
    plan.check()
    with closing(open_cluster(bootstrap)) as cluster:
        return measure(plan, cluster, progress)


@contextmanager
def topic_of_our_own(cluster: Cluster, partitions: int, progress: Progress) -> Iterator[str]:
    """Create a topic, and delete it at the end from a cluster that may outlive the measurement."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, partitions)
    try:
        yield topic
    finally:
        if cluster.kind == "real":
            _delete(cluster.bootstrap, topic, progress)


def _delete(bootstrap: str, topic: str, progress: Callable[[str], None]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    try:
        admin.delete_topics([topic])[topic].result(10)
    except (KafkaException, TimeoutError) as error:
        progress(f"topic {topic} could not be deleted, please delete it yourself: {error}")


def require_positive(plan: msgspec.Struct, *names: str) -> None:
    """Raise :class:`ConfigError` for the first of these numbers of a plan that is below 1."""
    for name in names:
        if getattr(plan, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} {getattr(plan, name)}: give at least 1")


def group_of(side: str) -> str:
    """Return a consumer group that was never used."""
    return f"bench-{side}-{uuid.uuid4().hex[:8]}"


def sides_of(pair: int) -> tuple[Side, Side]:
    """Return the order in which the sides of this pair run: they alternate."""
    return ("bare", "keyshared") if pair % 2 == 0 else ("keyshared", "bare")


# --- records ---


def key_of(number: int) -> bytes:
    """Return the key with this number."""
    return b"key-%d" % number


def produce_all(
    bootstrap: str,
    topic: str,
    keys: Iterable[bytes | None],
    partitions: int,
    value_bytes: int,
    *,
    header: str | None = None,
) -> None:
    """Produce one record per key given, over all partitions in turn.

    With ``header`` the keys go there, and the records have none of their own.

    Raises :class:`KeySharedError` when the broker did not acknowledge every one.
    """
    value = b"x" * value_bytes

    def row(number: int, key: bytes | None) -> Row:
        # Spread by number, not by key: a bench with few keys must fill all partitions alike.
        if header is None:
            return value, key, number % partitions, None
        return value, None, number % partitions, [] if key is None else [(header, key)]

    produce_rows(bootstrap, topic, (row(number, key) for number, key in enumerate(keys)))


def produce_rows(bootstrap: str, topic: str, rows: Iterable[Row]) -> None:
    """Produce these records. Raises :class:`KeySharedError` when one was not acknowledged."""
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": "none",
            "on_delivery": delivered,
            "delivery.report.only.error": True,
        }
    )
    number = -1
    for number, (value, key, partition, headers) in enumerate(rows):
        while True:
            try:
                if headers is None:
                    producer.produce(topic, value, key, partition)
                else:
                    producer.produce(topic, value, key, partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(120)
    if failures or left:
        raise KeySharedError(
            f"{len(failures) + left} of {number + 1} records could not be produced to {topic} at "
            f"{bootstrap}: {failures[0] if failures else 'no answer within 120 s'}"
        )


# --- sides ---


class MeasuredProcess(Generic[R]):
    """A measured process while it runs. It is killed at the latest when the block ends."""

    def __init__(self, module: str, task: Any, result: type[R], what: str) -> None:
        self._result = result
        self._what = what
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"kafka_keyshared.lab.bench.{module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self._process.stdin is not None:
            # The task is smaller than a pipe's buffer, so this never waits. A child that died
            # reports that itself.
            with suppress(BrokenPipeError):
                self._process.stdin.write(msgspec.json.encode(task))
                self._process.stdin.close()

    def await_ready(self) -> None:
        """Return once the child has reported that it is ready."""
        if self._line(str) != READY:
            raise self._died()

    def result(self) -> R:
        """Return the child's result. Raises :class:`KeySharedError` when it failed."""
        found: R = self._line(self._result)
        if self._process.wait(END_TIMEOUT) != 0:
            raise self._died()
        return found

    def _line(self, kind: type[Any]) -> Any:
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            raise self._died()
        return msgspec.json.decode(line, type=kind)

    def _died(self) -> KeySharedError:
        status = self._process.wait(END_TIMEOUT)
        return KeySharedError(
            f"the {self._what} ended with status {status}; what went wrong stands above this line"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def run_child(module: str, task: Any, result: type[R], what: str) -> R:
    """Run a child to its end. Raises :class:`KeySharedError` when it failed."""
    with MeasuredProcess(module, task, result, what) as child:
        return child.result()


def run_paced(module: str, task: Any, result: type[R], pace: Pace, what: str) -> tuple[R, Paced]:
    """Run a measured child and, once it is ready, the producer that feeds it by the clock.

    Returns what both report. Raises :class:`KeySharedError` when one of them failed.
    """
    with MeasuredProcess(module, task, result, what) as consumer:
        consumer.await_ready()
        paced = run_child("paced", pace, Paced, "producer")
        return consumer.result(), paced
