"""The options of draining, each in an app that is brought to other workers while it runs."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import Member, client_conf, group_name, write

WAIT = 60.0


def key_of(worker: int, among: int, then: tuple[int, int]) -> bytes:
    """A key of that worker among so many, which then is another one's among another number."""
    before, after = (VnodeRing(worker_names(each), ROUTING_VNODES) for each in (among, then[1]))
    for number in range(10_000):
        slot = slot_of(key := b"key-%d" % number)
        if (before.owner(slot), after.owner(slot)) == (f"worker-{worker}", f"worker-{then[0]}"):
            return key
    raise AssertionError("no such key")


class Gates:
    """A handler whose first record of each key ends when it is told to."""

    def __init__(self, *keys: bytes) -> None:
        self.open = {key: threading.Event() for key in keys}
        self.began = {key: threading.Event() for key in keys}
        self.ran: list[tuple[str, bytes, bytes]] = []
        self.times: dict[bytes, list[tuple[float, float]]] = defaultdict(list)

    def __call__(self, record: Any) -> None:
        began, key = time.monotonic(), record.key()
        if record.value() == b"slow":
            self.began[key].set()
            self.open[key].wait(WAIT)
        worker = threading.current_thread().name
        self.ran.append((worker, key, record.value()))
        self.times[key].append((began, time.monotonic()))


def test_slots_that_have_drained_open_together_when_the_interval_is_over(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Two workers leave, each in a record; what waits for the first goes on with the second's."""
    embedded_cluster.create_topic(topic, 1)
    one, two = key_of(1, 3, (0, 1)), key_of(2, 3, (0, 1))
    gates, interval = Gates(one, two), 1.0
    conf = client_conf(embedded_cluster, group_name())
    member = Member(
        conf, [topic], gates, workers=3, unblocking_interval=interval, new_workers_wait=True
    ).start()
    write(embedded_cluster, topic, [(one, b"slow"), (two, b"slow")])
    eventually(lambda: all(each.is_set() for each in gates.began.values()), WAIT)
    with ThreadPoolExecutor(1) as other:
        scaled = other.submit(member.app.scale, 1, WAIT)
        eventually(lambda: member.sub.draining.count == 2, WAIT)
        write(embedded_cluster, topic, [(one, b"next"), (two, b"next")])
        eventually(lambda: sum(1 for _ in member.sub.draining.waiting()) == 2, WAIT)
        gates.open[one].set()
        eventually(lambda: member.sub.draining.count == 1, WAIT)
        gates.open[two].set()
        assert scaled.result(WAIT) == ("worker-0",)
    eventually(lambda: len(gates.ran) == 4, WAIT)
    assert member.stop() == 0
    (_, ended), (began, _) = gates.times[one]
    assert began - ended >= interval
    assert all("worker-0" in name for name, _, value in gates.ran if value == b"next")


@pytest.mark.parametrize("waits", [True, False])
def test_a_worker_that_joins_waits_for_all_that_came_before_it_only_where_that_is_asked_for(
    embedded_cluster: Cluster, topic: str, eventually: Eventually, waits: bool
) -> None:
    embedded_cluster.create_topic(topic, 1)
    stays, moves = key_of(0, 1, (0, 2)), key_of(0, 1, (1, 2))
    gates = Gates(stays)
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], gates, workers=1, new_workers_wait=waits).start()
    write(embedded_cluster, topic, [(stays, b"slow")])
    eventually(gates.began[stays].is_set, WAIT)
    with ThreadPoolExecutor(1) as other:
        scaled = other.submit(member.app.scale, 2, WAIT)
        eventually(lambda: len(member.sub.workers) == 2, WAIT)
        write(embedded_cluster, topic, [(moves, b"new")])
        if waits:
            joined = max(member.sub.workers)
            eventually(lambda: len(member.sub.workers[joined].later) == 1, WAIT)
            assert not gates.ran
        else:
            eventually(lambda: len(gates.ran) == 1, WAIT)
        gates.open[stays].set()
        assert scaled.result(WAIT) == ("worker-0", "worker-1")
    eventually(lambda: len(gates.ran) == 2, WAIT)
    assert member.stop() == 0
    assert [value for _, _, value in gates.ran] == (
        [b"slow", b"new"] if waits else [b"new", b"slow"]
    )
    assert any("worker-1" in name for name, _, value in gates.ran if value == b"new")
