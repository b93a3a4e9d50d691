"""Brokers that answer nothing: what the client makes of that, and verbs that end by themselves."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.cli import Running
from tests.support.live_cluster import group_name, write

VERBS = {
    ("doctor", "-t", "orders", "-g", "billing"): (3, "doctor"),
    ("dlq", "ls", "-t", "orders"): (1, "no broker answered at"),
    ("dlq", "replay", "-t", "orders"): (1, "no broker answered at"),
    ("advise", "-t", "orders"): (1, "no broker answered at"),
}


def test_verbs_that_only_look_end_by_themselves_and_say_why(broker_of_my_own: RealCluster) -> None:
    for name in ("orders", "orders.dlq"):
        broker_of_my_own.create_topic(name, 4)
    for pid in broker_of_my_own.pids:
        os.kill(pid, signal.SIGSTOP)
    with ExitStack() as stack:
        running = {
            verb: stack.enter_context(Running(*verb, "-b", broker_of_my_own.bootstrap))
            for verb in VERBS
        }
        for verb, (status, words) in VERBS.items():
            each = running[verb]
            assert each.process.wait(60) == status, each.err
            assert each.process.stdout is not None
            assert words in each.err + each.process.stdout.read(), verb


def test_a_close_waits_for_a_commit_that_nobody_answers(topic: str) -> None:
    """Only until the broker is back, here; else until the session timeout."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        write(cluster, topic, [(b"k", b"v")] * 3)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group_name(),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 300_000,
                "max.poll.interval.ms": 300_000,
                "log_level": 0,
            }
        )
        consumer.subscribe([topic])
        assert consumer.poll(60.0) is not None
        cluster.broker_down()
        consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=True)
        closing = Aside(consumer.close, name="closing")
        assert not closing.wait(3.0)
        assert closing.where().startswith("_run (detached_call.py:"), (
            "inside the client there is no frame"
        )
        cluster.broker_up()
        assert closing.wait(60.0)
