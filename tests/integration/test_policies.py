"""Poison policies over a real client: what is dead-lettered, and what a restart knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_keyshared.dlq.letter import read_letter
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import Member, client_conf, group_name, read_all, write

WAIT = 60.0
RETRY = {"attempts": 3, "backoff": 0.05}


def keyed(*keys: str) -> list[tuple[bytes, bytes]]:
    return [(key.encode(), b"%d" % at) for at, key in enumerate(keys)]


def bad(key: bytes, ran: list[bytes]) -> Callable[[Any], None]:
    """A handler that fails for one key, and notes all that it gets."""

    def handle(record: Any) -> None:
        ran.append(record.value())
        if record.key() == key:
            raise RuntimeError("as the test has it")

    return handle


def states(member: Member) -> list[str]:
    """What the closed lanes of a member wait for; none before it runs."""
    return [] if member.app.instance is None else [lane.state for lane in member.app.closed_keys()]


def letters(cluster: Cluster, topic: str, count: int) -> list[tuple[int, int | None, str]]:
    """The letters of a topic in their order: offset of the source, attempts, error."""
    found = [read_letter(each).told for each in read_all(cluster, f"{topic}.dlq", count)]
    return [(t.source.offset, t.attempts, t.error_type) for t in found if t is not None]


def test_a_key_that_is_diverted_stays_so_behind_a_restart_and_runs_when_it_is_released(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    cluster = embedded_cluster
    cluster.create_topic(topic, 1)
    cluster.create_topic(f"{topic}.dlq", 1)
    conf, ran = client_conf(cluster, group_name()), list[bytes]()
    options: dict[str, Any] = {"dlq": True, "on_exhausted": "divert", "retry": RETRY}
    write(cluster, topic, keyed("a", "b", "a", "b"), partition=0)
    first = Member(conf, [topic], bad(b"a", ran), **options).start()
    eventually(lambda: first.done() == 4, WAIT)
    assert [lane.state for lane in first.app.closed_keys()] == ["diverted"]
    assert first.stop() == 0
    assert sorted(ran) == [b"0", b"0", b"0", b"1", b"3"]

    again = Member(conf, [topic], bad(b"none", ran), name="again", **options).start()
    write(cluster, topic, [(b"a", b"4"), (b"b", b"5")], partition=0)
    eventually(lambda: again.done() == 2, WAIT)
    assert b"4" not in ran
    assert "is unblocked" in again.app.unblock("a")
    write(cluster, topic, [(b"a", b"6")], partition=0)
    eventually(lambda: again.done() == 3, WAIT)
    assert ran[-1] == b"6"
    with pytest.raises(KeySharedError, match="unblock: no lane of key b'a' is closed"):
        again.app.unblock("a")
    assert again.stop() == 0
    assert letters(cluster, topic, 3) == [
        (0, 3, "RuntimeError"),
        (2, 0, "Diverted"),
        (4, 0, "Diverted"),
    ]


def test_a_restart_goes_on_counting_attempts_and_archives_no_record_twice(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    cluster = embedded_cluster
    cluster.create_topic(topic, 1)
    cluster.create_topic(f"{topic}.dlq", 1)
    conf, ran = client_conf(cluster, group_name()), list[bytes]()
    options: dict[str, Any] = {"dlq": True, "on_exhausted": "block_and_dlq"}
    write(cluster, topic, keyed("a", "b", "a"), partition=0)
    slow = {"attempts": 3, "backoff": 600.0}
    first = Member(conf, [topic], bad(b"a", ran), **options, retry=slow).start()
    eventually(lambda: first.done() == 1 and ran.count(b"0") == 1, WAIT)
    (lane,) = first.app.closed_keys()
    assert (lane.state, lane.attempts, lane.waiting) == ("waiting", 1, 1)
    assert first.stop() == 0

    second = Member(conf, [topic], bad(b"a", ran), name="second", **options, retry=RETRY).start()
    eventually(lambda: states(second) == ["blocked"], WAIT)
    assert ran.count(b"0") == 3, "one attempt in the first process, two in the second"
    assert second.stop() == 0

    third = Member(conf, [topic], bad(b"a", ran), name="third", **options, retry=RETRY).start()
    eventually(lambda: states(third) == ["blocked"], WAIT)
    assert ran.count(b"0") == 4, "one more, because the handler may be mended"
    assert "is dropped; 1 record behind it" in third.app.drop(at=f"{topic}-0@0")
    eventually(
        lambda: [(each.offset, each.state) for each in third.app.closed_keys()] == [(2, "blocked")],
        WAIT,
    )
    assert third.stop() == 0
    assert letters(cluster, topic, 2)[0] == (0, 3, "RuntimeError")
    assert [offset for offset, _, _ in letters(cluster, topic, 2)] == [0, 2]
