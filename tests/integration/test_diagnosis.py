"""Causes made on a running instance: its diagnosis names each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.diagnosis.findings import Finding
from kafka_keyshared.local.embedded import EmbeddedCluster
from kafka_keyshared.model import Retry
from tests.conftest import Eventually
from tests.support.live import Member, client_conf, group_name, numbered, write

WAIT = 60.0
ODD = b"odd"

Started = Callable[..., Member]


@pytest.fixture
def started(embedded_cluster: EmbeddedCluster, topic: str) -> Iterator[Started]:
    """What starts an instance over 100 records of 13 keys and one of the key ``odd``."""
    embedded_cluster.create_topic(topic, 2)
    write(embedded_cluster, topic, [*numbered(100), (ODD, b"it")])
    members: list[Member] = []

    def start(handler: Any, **options: Any) -> Member:
        conf = client_conf(embedded_cluster, group_name())
        given = {"workers": 2, "show_keys": True, "commit_interval": 0.1} | options
        members.append(Member(conf, [topic], handler, name=f"m{len(members)}", **given).start())
        return members[-1]

    yield start
    for member in members:
        member.stop()


def found(app: KeyShared, code: str) -> Finding | None:
    diagnosis = app.diagnosis()
    every = () if diagnosis is None else diagnosis.findings
    return next((each for each in every if each.code == code), None)


def named(member: Member, code: str, eventually: Eventually) -> Finding:
    """Wait until the diagnosis has the cause, and return it."""
    eventually(lambda: found(member.app, code) is not None, WAIT)
    finding = found(member.app, code)
    assert finding is not None
    return finding


def fails(record: Any) -> None:
    if record.key() == ODD:
        raise ValueError("this one always fails")


class Hangs:
    """Hangs in the record of one key until the end of the test."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def __call__(self, record: Any) -> None:
        if record.key() == ODD:
            self.gate.wait(WAIT)


def test_a_blocked_key_is_named_with_its_record_and_its_error(
    started: Started, topic: str, eventually: Eventually
) -> None:
    member = started(fails, retry={"attempts": 1}, poison="block")
    blocked = named(member, "key-blocked", eventually)
    assert blocked.sentence.startswith(f"key 'odd' is blocked by {topic}-{blocked.partition}@")
    assert "this one always fails" in blocked.sentence
    assert "in fails" in blocked.stack
    diagnosis = member.app.diagnosis()
    assert diagnosis is not None
    assert diagnosis.number == blocked.number


def test_a_stuck_handler_is_named_with_where_it_stands(
    started: Started, eventually: Eventually
) -> None:
    handler = Hangs()
    try:
        member = started(handler, ack_timeout=0.2)
        eventually(
            lambda: "wait(" in getattr(found(member.app, "handler-stuck"), "stack", ""), WAIT
        )
        stuck = named(member, "handler-stuck", eventually)
        assert stuck.key == "odd"
        assert "test_diagnosis.py" in stuck.sentence, "where it stands"
        assert stuck.worker.startswith("worker-")
    finally:
        handler.gate.set()


def test_a_key_that_fails_again_and_again_is_named_with_its_next_try(
    started: Started, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_keyshared.diagnosis.judge.RETRYING", 0.5)
    member = started(fails, retry={"attempts": 1_000, "backoff": 2.0, "backoff_max": 2.0})
    waits = named(member, "retry-waiting", eventually)
    assert waits.sentence.startswith("key 'odd' waits for another attempt of ")
    assert "ValueError" in waits.sentence


def test_a_key_that_cannot_be_read_is_named_with_why(
    started: Started, topic: str, eventually: Eventually
) -> None:
    def key(record: Any) -> bytes | None:
        if record.key() == ODD:
            raise Retry(0.2) from OSError("the registry is away")
        found: bytes | None = record.key()
        return found

    member = started(lambda record: None, key=key)
    unread = named(member, "key-unreadable", eventually)
    assert "OSError: the registry is away" in unread.sentence
    assert (unread.topic, unread.subscription) == (topic, "default")


def test_records_for_a_worker_that_is_not_there_are_named_with_the_worker(
    started: Started, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_keyshared.diagnosis.judge.ABSENT", 0.5)
    ranges = {"worker-0": "0-29999", "worker-1": "30000-39999", "worker-9": "40000-65535"}
    member = started(lambda record: None, routing="sticky", ranges=ranges, on_unmatched="hold")
    absent = named(member, "worker-absent", eventually)
    assert absent.worker == "worker-9"
    assert "wait for worker-9" in absent.sentence


def test_commits_that_are_refused_are_named_with_the_error(
    started: Started, embedded_cluster: EmbeddedCluster, eventually: Eventually
) -> None:
    embedded_cluster.fail_next("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", times=500)
    try:
        member = started(lambda record: None)
        failing = named(member, "commit-failing", eventually)
        assert failing.count >= 2
        assert "commits in a row failed" in failing.sentence
    finally:
        embedded_cluster.heal("OffsetCommit")
    eventually(lambda: found(member.app, "commit-failing") is None, WAIT)


def test_brokers_that_are_away_are_named_and_so_is_nothing_that_follows(
    started: Started, embedded_cluster: EmbeddedCluster, eventually: Eventually
) -> None:
    member = started(lambda record: None)
    eventually(lambda: member.done() == 101, WAIT)
    embedded_cluster.broker_down()
    try:
        away = named(member, "brokers-away", eventually)
        assert "no broker has answered for" in away.sentence
    finally:
        embedded_cluster.broker_up()
    eventually(lambda: found(member.app, "brokers-away") is None, WAIT)


def test_partitions_that_are_paused_by_hand_are_named(
    started: Started, topic: str, eventually: Eventually
) -> None:
    member = started(lambda record: None)
    eventually(lambda: member.done() == 101, WAIT)
    member.app.pause()
    paused = named(member, "paused-by-hand", eventually)
    assert f"{topic}-0, {topic}-1" in paused.sentence
    member.app.resume()
    eventually(lambda: found(member.app, "paused-by-hand") is None, WAIT)


def test_a_healthy_run_under_load_raises_nothing(
    embedded_cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 4)
    write(embedded_cluster, topic, numbered(20_000, keys=500))
    said: list[str] = []
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], lambda record: None, workers=4, window_records=2_000).start()

    def done() -> bool:
        diagnosis = member.app.diagnosis()
        if diagnosis is not None:
            said.append(diagnosis.text)
        return member.done() == 20_000

    eventually(done, WAIT)
    assert member.stop() == 0
    assert set(said) == {"healthy"}
