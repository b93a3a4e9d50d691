"""The embedded cluster: the library it is made of, its borders, and its end."""

from __future__ import annotations

import _ctypes
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafka_keyshared.errors import (
    BrokerUnavailableError,
    ConfigError,
    KeySharedError,
    MissingPartError,
)
from kafka_keyshared.testing.clusters.cluster import Cluster, await_metadata
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.native import SIGNATURES, bind, native
from tests.support.kafka_requests import coordinator


def run_script(script: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_the_installed_wheel_exports_every_function_that_is_used() -> None:
    found = native()
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(found, name.removeprefix("rd_kafka_"))
        assert (function.restype, tuple(function.argtypes)) == (result, arguments)


def test_a_library_without_the_functions_is_named_with_the_first_that_is_missing() -> None:
    with pytest.raises(MissingPartError, match="needs rd_kafka_conf_new") as caught:
        bind(ctypes.CDLL(_ctypes.__file__))
    assert _ctypes.__file__ in str(caught.value)
    assert "pip install" in str(caught.value)


ROUND_TRIP = """
producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
delivered = []
producer.produce("t", b"v", on_delivery=lambda error, message: delivered.append(error))
assert producer.flush(30) == 0 and delivered == [None]
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
files = {line.split()[-1] for line in maps.splitlines() if "librdkafka" in line}
print(len(files))
"""
CLIENT_FIRST = """
import sys, confluent_kafka
confluent_kafka.Producer({}, log_level=2).poll(0)
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
cluster = EmbeddedCluster()
cluster.create_topic("t", 1)
"""
CLUSTER_FIRST = """
import sys
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
cluster = EmbeddedCluster()
cluster.create_topic("t", 1)
import confluent_kafka
"""


@pytest.mark.parametrize("start", [CLIENT_FIRST, CLUSTER_FIRST], ids=["client", "cluster"])
def test_the_library_is_loaded_once_whoever_comes_first(start: str) -> None:
    files = run_script(start + ROUND_TRIP)
    # A client built from source may have the library linked in, which shows no file at all.
    assert files in (("0", "1") if sys.platform == "linux" else ("0",))


def test_brokers_are_counted_and_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        EmbeddedCluster(brokers=0)
    with EmbeddedCluster(brokers=3) as cluster:
        assert len(cluster.bootstrap.split(",")) == 3
        cluster.create_topic("replicated", 2)
        shown = await_metadata(cluster.bootstrap, lambda _: True, timeout=30, what="it")
        copies = [len(part.replicas) for part in shown.topics["replicated"].partitions.values()]
        assert copies == [3, 3]


def test_two_clusters_do_not_know_each_other() -> None:
    with EmbeddedCluster() as one, EmbeddedCluster() as two:
        assert one.bootstrap != two.bootstrap
        one.create_topic("only-here", 1)
        shown = await_metadata(two.bootstrap, lambda _: True, timeout=30, what="it")
        assert "only-here" not in shown.topics


def test_a_closed_cluster_says_so_and_may_be_closed_again() -> None:
    cluster = EmbeddedCluster()
    cluster.close()
    cluster.close()
    with pytest.raises(KeySharedError, match="embedded cluster is closed"):
        cluster.create_topic("late", 1)


def test_a_forked_child_leaves_the_cluster_to_its_owner() -> None:
    script = """
import os, warnings
warnings.simplefilter("ignore")
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
cluster = EmbeddedCluster()
child = os.fork()
if child == 0:
    cluster.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
cluster.create_topic("still-there", 3)
cluster.close()
print("done")
"""
    assert run_script(script) == "done"


def test_the_cluster_ends_with_an_interpreter_that_never_closed_it() -> None:
    script = """
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
cluster = EmbeddedCluster()
print(cluster.bootstrap)
"""
    assert run_script(script).startswith("127.0.0.1:")


def test_it_deletes_what_a_partition_holds_beyond_five_megabytes(
    embedded_cluster: Cluster, topic: str
) -> None:
    """The reason for the metered producer: when this fails, that one is no longer needed."""
    embedded_cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for _ in range(80):
        producer.produce(topic, b"x" * 100_000, partition=0)
    assert producer.flush(60) == 0
    reader = Consumer({"bootstrap.servers": embedded_cluster.bootstrap, "group.id": topic})
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        reader.close()
    assert high == 80
    assert low > 0


# --- faults ---


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Two brokers to be broken."""
    with EmbeddedCluster(brokers=2) as cluster:
        yield cluster


@contextmanager
def committing(cluster: EmbeddedCluster, group: str) -> Iterator[Callable[[int], str]]:
    """A function that commits a position of topic ``t`` and returns how the broker took it."""
    conf = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 2}
    conf |= {"reconnect.backoff.max.ms": 200, "enable.auto.commit": False}
    consumer = Consumer(conf)

    def commit(position: int) -> str:
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, position)], asynchronous=False)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            return error.name()
        return "accepted"

    try:
        yield commit
    finally:
        consumer.close()


def leader_of(cluster: EmbeddedCluster, topic: str) -> int:
    shown = await_metadata(cluster.bootstrap, lambda _: True, timeout=30, what="it")
    return shown.topics[topic].partitions[0].leader


def test_the_next_requests_fail_as_often_as_told(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.fail_next("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", times=2)
    cluster.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    with committing(cluster, "g") as commit:
        assert [commit(position) for position in range(4)] == [
            "OFFSET_METADATA_TOO_LARGE",
            "OFFSET_METADATA_TOO_LARGE",
            "GROUP_AUTHORIZATION_FAILED",
            "accepted",
        ]


def test_a_fault_of_one_broker_leaves_the_other_alone(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.move_coordinator("g", 2)
    cluster.fail_next("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", broker=1)
    cluster.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", broker=2, times=2)
    with committing(cluster, "g") as commit:
        assert commit(1) == "GROUP_AUTHORIZATION_FAILED"
        assert [cluster.planned("OffsetCommit", broker=number) for number in (1, 2)] == [1, 1]
        assert commit(2) == "GROUP_AUTHORIZATION_FAILED"
        assert commit(3) == "accepted"


def test_what_is_healed_fails_no_more(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.fail_next("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", times=100)
    with committing(cluster, "g") as commit:
        assert commit(1) == "OFFSET_METADATA_TOO_LARGE"
        cluster.heal("OffsetCommit")
        assert commit(2) == "accepted"


def test_an_answer_can_be_late(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.move_coordinator("g", 1)
    cluster.delay_next("OffsetCommit", 0.6, broker=1)
    with committing(cluster, "g") as commit:
        began = time.monotonic()
        assert commit(1) == "accepted"
        assert time.monotonic() - began >= 0.55
        assert cluster.planned("OffsetCommit", broker=1) == 0


def test_brokers_go_down_and_come_up(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.broker_down()
    with pytest.raises(BrokerUnavailableError):
        await_metadata(cluster.bootstrap, lambda _: True, timeout=0.5, what="it")
    cluster.broker_up(2)
    up = cluster.bootstrap.split(",")[1]
    assert await_metadata(up, lambda _: True, timeout=30, what="it").topics["t"]
    cluster.broker_up()
    for address in cluster.bootstrap.split(","):
        assert await_metadata(address, lambda _: True, timeout=30, what="it").topics["t"]


def test_leaders_and_coordinators_move(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    for number in (1, 2, 1):
        cluster.move_leader("t", 0, number)
        assert leader_of(cluster, "t") == number
        cluster.move_coordinator("g", number)
        assert coordinator(cluster.bootstrap, "g")[0] == number


def test_a_topic_is_shown_with_an_error_until_told_otherwise(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    cluster.fail_topic("t", "TOPIC_AUTHORIZATION_FAILED")
    shown = await_metadata(cluster.bootstrap, lambda _: True, timeout=30, what="it").topics["t"]
    assert shown.error is not None
    assert shown.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.fail_topic("t", None)
    assert leader_of(cluster, "t") in (1, 2)


def test_requests_are_counted_from_when_they_are_watched(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    with committing(cluster, "g") as commit:
        commit(1)
        assert cluster.requests()["OffsetCommit"] == 0
        cluster.watch_requests()
        commit(2)
        commit(3)
        assert cluster.requests()["OffsetCommit"] == 2


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (lambda c: c.fail_next("offsetcommit", "NOT_COORDINATOR"), "'offsetcommit' is not known"),
        (lambda c: c.fail_next("Fetch", "no_such_error"), "'no_such_error' is not one of Kafka's"),
        (lambda c: c.fail_next("Fetch", "NO_SUCH_ERROR"), "give a name of confluent_kafka"),
        (lambda c: c.fail_next("Fetch", "_TRANSPORT", times=0), "at least 1"),
        (lambda c: c.fail_next("Fetch", "_TRANSPORT", broker=3), "no broker 3.*1 to 2"),
        (lambda c: c.delay_next("Fetch", -1.0), "not negative"),
        (lambda c: c.delay_next("Fetch", 1.0, broker=0), "no broker 0"),
        (lambda c: c.planned("Fetch", broker=3), "no broker 3"),
        (lambda c: c.heal("fetch"), "'fetch' is not known"),
        (lambda c: c.broker_down(3), "no broker 3"),
        (lambda c: c.broker_up(-1), "no broker -1"),
        (lambda c: c.move_coordinator("g", 3), "no broker 3"),
        (lambda c: c.move_leader("t", 0, 3), "no broker 3"),
        (lambda c: c.fail_topic("t", "NO_SUCH_ERROR"), "not one of Kafka's"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_by_name(
    cluster: EmbeddedCluster, wrong: Callable[[EmbeddedCluster], None], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        wrong(cluster)


def test_a_partition_that_is_not_there_has_no_leader_to_move(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 1)
    with pytest.raises(KeySharedError, match=r"partition 7 of topic 't'.*see that it exists"):
        cluster.move_leader("t", 7, 1)


def test_a_closed_cluster_has_no_faults() -> None:
    cluster = EmbeddedCluster()
    cluster.close()
    with pytest.raises(KeySharedError, match="embedded cluster is closed"):
        cluster.broker_down()
    with pytest.raises(KeySharedError, match="embedded cluster is closed"):
        cluster.fail_next("Fetch", "_TRANSPORT")


@pytest.mark.parametrize("name", [*SIGNATURES])
def test_every_missing_function_is_named(name: str) -> None:
    class Without:
        _name = "some library"

        def __getattr__(self, asked: str) -> Callable[[], None]:
            if asked == name:
                raise AttributeError(asked)
            return lambda: None

    with pytest.raises(MissingPartError, match=f"needs {name},"):
        bind(Without())  # type: ignore[arg-type]
