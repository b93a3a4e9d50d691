"""The embedded cluster: the library it is made of, its borders, and its end."""

from __future__ import annotations

import _ctypes
import ctypes
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.local.cluster import Cluster, await_metadata
from kafka_keyshared.local.embedded import SIGNATURES, EmbeddedCluster, bind, native


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
from kafka_keyshared.local.embedded import EmbeddedCluster
cluster = EmbeddedCluster()
cluster.create_topic("t", 1)
"""
CLUSTER_FIRST = """
import sys
from kafka_keyshared.local.embedded import EmbeddedCluster
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
from kafka_keyshared.local.embedded import EmbeddedCluster
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
from kafka_keyshared.local.embedded import EmbeddedCluster
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
