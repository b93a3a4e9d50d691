"""A member that stops while its group rebalances: the process must not stand still with it.

What freezes holds the interpreter lock, so it is tried in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.local.embedded import EmbeddedCluster
from kafka_keyshared.model import TopicPartition
from tests.support.live import client_conf, group_name
from tests.tidy.sources import ROOT

TRIES = 60
"""With ``unsubscribe`` and then ``close`` one of the first twenty stood, mostly the first."""

PAUSE = threading.Event()


def slow(_partitions: list[TopicPartition]) -> None:
    """Take so long that the answer to the group's leave comes in meanwhile."""
    PAUSE.wait(0.03)


def members_that_stop(protocol: str) -> None:
    """Join and stop, again and again, before the first assignment has been called back."""
    with EmbeddedCluster() as cluster:
        for number in range(TRIES):
            cluster.create_topic(f"topic-{number}", 2)
            conf = client_conf(cluster, group_name())
            conf["partition.assignment.strategy"] = protocol
            client = KafkaClient(conf, [f"topic-{number}"], lambda _answer: None)
            client.subscribe(slow, client.released, client.released)
            while not client.consumer.memberid():
                """It joins; nothing is polled, so nothing is called back."""
            PAUSE.wait(0.005)  # it is given partitions meanwhile, or just now
            client.close()
            sys.stdout.write("stopped\n")
            sys.stdout.flush()


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_members_that_stop_while_they_are_given_partitions_come_to_their_end(protocol: str) -> None:
    command = [sys.executable, "-m", "tests.integration.test_leaving", protocol]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=50, check=True).stdout
    except subprocess.TimeoutExpired as late:
        done = late.stdout or b""
    assert len(done.split()) == TRIES


if __name__ == "__main__":
    members_that_stop(sys.argv[1])
