"""What was replayed, as a run notes it in Kafka: made for a cluster, and cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay_log import KafkaProgress
from kafka_keyshared.dlq.scan import connected
from kafka_keyshared.testing.clusters.cluster import Cluster

FIRST = [(LetterPlace(0, 1), 11), (LetterPlace(2, 5), 2**64 - 1)]
LONG = 300.0
"""Seconds of silence that nobody who is alive needs, on however slow a machine."""

Make: TypeAlias = Callable[..., KafkaProgress]


def making(cluster: Cluster, topic: str) -> Make:
    """Make the progresses of a dead-letter topic of the cluster."""
    conf = {"bootstrap.servers": cluster.bootstrap}

    def make(id_: str = "default", silence: float = LONG) -> KafkaProgress:
        return KafkaProgress(conf, lambda: connected(conf), topic, id_, silence=silence)

    return make


def cut_off(run: KafkaProgress) -> None:
    """End a run as SIGKILL does: it says nothing any more, and hears nothing."""
    run._done.set()
    assert run._listener is not None
    run._listener.join()
    run._writer = None
