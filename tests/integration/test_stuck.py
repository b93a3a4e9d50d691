"""A handler that hangs on a real client: its key waits, and only its key."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_keyshared.observability.audit.ledger import MemoryLedger, Started
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
OTHERS = 400
SLOW = b"slow"


class Hanging:
    """Hangs in the first record of one key until it is let go."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.hangs = threading.Event()
        self.done: list[tuple[bytes, bytes]] = []

    def __call__(self, record: Any) -> None:
        if record.key() == SLOW and not self.hangs.is_set():
            self.hangs.set()
            assert self.gate.wait(WAIT)
        self.done.append((record.key(), record.value()))

    def count(self, *, slow: bool) -> int:
        return sum((key == SLOW) is slow for key, _ in self.done)


def how_stuck(member: Member) -> tuple[int, int, int]:
    """How often a record was stuck, and how many lanes and workers have one."""
    status = member.app.status()
    assert status is not None
    (sub,) = status.subscriptions
    return sub.stuck, sub.lanes["stuck"], sum(each.stuck for each in sub.workers)


@pytest.mark.parametrize("one_in_flight_per_key", [False, True])
def test_while_one_record_hangs_everything_else_goes_on_and_its_late_end_settles(
    real_cluster: Cluster, topic: str, eventually: Eventually, one_in_flight_per_key: bool
) -> None:
    real_cluster.create_topic(topic, 3)
    written = MemoryLedger("producer")
    records = numbered(OTHERS, keys=25)
    for at in (0, 10, 200, 399):
        records.insert(at, (SLOW, b"slow-%d" % at))
    write(real_cluster, topic, records, written)
    handler = Hanging()
    before = threading.active_count()
    group = group_name()
    member = Member(
        client_conf(real_cluster, group),
        [topic],
        handler,
        workers=2,
        ack_timeout=2.0,
        one_in_flight_per_key=one_in_flight_per_key,
        check_invariants=True,
    ).start()
    assert handler.hangs.wait(WAIT)
    eventually(lambda: handler.count(slow=False) == OTHERS, WAIT)
    assert handler.count(slow=True) == 0
    # The others may be done sooner: they had gone to the other worker before the time-out.
    eventually(lambda: how_stuck(member) == (1, 1, 1), WAIT)
    with pytest.raises(TimeoutError, match=r"waits for 1 running record \(.*key b'slow'"):
        member.app.flush(0.2)
    handler.gate.set()
    eventually(lambda: handler.count(slow=True) == 4, WAIT)
    positions = member.app.flush(WAIT)
    assert sum(positions.values()) == OTHERS + 4
    for (_, number), position in positions.items():
        assert committed(real_cluster, group, topic, number)[0] == position
    assert member.stop() == 0
    eventually(lambda: threading.active_count() <= before, WAIT)
    assert_clean(written, member.ledger)
    started = [each for each in member.ledger.events if isinstance(each, Started)]
    assert len(started) == OTHERS + 4, "nothing ran twice"


def test_a_stop_gives_up_on_what_hangs_as_before_and_it_runs_at_the_next_start(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(SLOW, b"1"), *numbered(20)], MemoryLedger("producer"))
    handler = Hanging()
    group = group_name()
    member = Member(
        client_conf(embedded_cluster, group),
        [topic],
        handler,
        workers=1,
        ack_timeout=1.0,
        stop_timeout=1.0,
    ).start()
    eventually(lambda: handler.count(slow=False) == 20, WAIT)
    assert member.stop() == 1
    assert member.app.report is not None
    assert member.app.report.running == (f"{topic}-0@0",)
    handler.gate.set()
    again = Hanging()
    again.hangs.set()
    second = Member(client_conf(embedded_cluster, group), [topic], again, name="second").start()
    eventually(lambda: again.count(slow=True) == 1, WAIT)
    assert second.stop() == 0
    assert again.done == [(SLOW, b"1")], "what was done behind it is not done again"
