"""Orders to a running instance over a real client."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.runtime.flush import FlushOrder, flush
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    committed,
    group_name,
    numbered,
    write,
)

WAIT = 60.0


def test_a_flush_commits_what_runs_once_it_has_ended_and_says_what_the_broker_has(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 2)
    written = MemoryLedger("producer")
    write(embedded_cluster, topic, numbered(4), written)
    goes_on = threading.Event()
    began = threading.Semaphore(0)

    def handler(_record: Any) -> None:
        began.release()
        assert goes_on.wait(WAIT)

    group = group_name()
    member = Member(
        client_conf(embedded_cluster, group), [topic], handler, commit_interval=3_600.0
    ).start()
    for _ in range(4):  # each with a worker of its own
        assert began.acquire(timeout=WAIT)
    eventually(lambda: len(member.assigned) == 2, WAIT)
    instance = member.app.instance
    assert instance is not None
    reply = instance.loop.orders.post("flush", lambda: FlushOrder()(instance.loop))
    with pytest.raises(TimeoutError):
        reply.result(0.3)
    goes_on.set()
    positions = reply.result(WAIT)
    assert sum(positions.values()) == 4
    for (_, number), position in positions.items():
        assert committed(embedded_cluster, group, topic, number)[0] == position
    assert member.stop() == 0
    with pytest.raises(OrderRefusedError, match="flush: the instance is stopping"):
        flush(instance, WAIT)
    assert_clean(written, member.ledger)
