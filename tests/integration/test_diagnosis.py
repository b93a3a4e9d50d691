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
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster of the test's own: answers that are planned and not used up would be another's."""
    with EmbeddedCluster() as own:
        yield own


@pytest.fixture
def started(cluster: EmbeddedCluster, topic: str) -> Iterator[Started]:
    """What starts an instance over 100 records of 13 keys and one of the key ``odd``."""
    cluster.create_topic(topic, 2)
    write(cluster, topic, [*numbered(100), (ODD, b"it")])
    members: list[Member] = []

    def start(handler: Any, **options: Any) -> Member:
        conf = client_conf(cluster, group_name())
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


IN_TIME = 2.0
"""Seconds within which a cause is named, once it has been one for as long as its rule says."""


def named(member: Member, code: str, eventually: Eventually, after: float | None = None) -> Finding:
    """Wait until the diagnosis has the cause, and return it.

    With ``after``, the time of its rule, it has to be there no later than 2 s behind that, by the
    clock of the instance.
    """
    seen: list[Finding] = []

    def look() -> bool:
        finding = found(member.app, code)
        if finding is not None:
            seen.append(finding)
        return bool(seen)

    eventually(look, WAIT)
    if after is not None:
        assert seen[0].seconds is not None
        assert after <= seen[0].seconds <= after + IN_TIME
    return seen[0]


def fails(record: Any) -> None:
    if record.key() == ODD:
        raise ValueError("this one always fails")


class Hangs:
    """Hangs in the record of one key until the end of the test."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()

    def __call__(self, record: Any) -> None:
        if record.key() == ODD:
            self.entered.set()
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
    started: Started, cluster: EmbeddedCluster, eventually: Eventually
) -> None:
    cluster.fail_next("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", times=500)
    try:
        member = started(lambda record: None)
        failing = named(member, "commit-failing", eventually)
        assert failing.count >= 2
        assert "commits in a row failed" in failing.sentence
    finally:
        cluster.heal("OffsetCommit")
    eventually(lambda: found(member.app, "commit-failing") is None, WAIT)


def test_brokers_that_are_away_are_named_and_so_is_nothing_that_follows(
    started: Started, cluster: EmbeddedCluster, eventually: Eventually
) -> None:
    member = started(lambda record: None)
    eventually(lambda: member.done() == 101, WAIT)
    cluster.broker_down()
    try:
        away = named(member, "brokers-away", eventually)
        assert "no broker has answered for" in away.sentence
    finally:
        cluster.broker_up()
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
    cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    cluster.create_topic(topic, 4)
    write(cluster, topic, numbered(20_000, keys=500))
    said: list[str] = []
    conf = client_conf(cluster, group_name())
    member = Member(conf, [topic], lambda record: None, workers=4, window_records=2_000).start()

    def done() -> bool:
        diagnosis = member.app.diagnosis()
        if diagnosis is not None:
            said.append(diagnosis.text)
        return member.done() == 20_000

    eventually(done, WAIT)
    assert member.stop() == 0
    assert set(said) == {"healthy"}


# --- causes that pass by themselves, or need another member ---

SOON = 0.5
"""The time of a rule in a test, in seconds."""


def sooner(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.setattr(f"kafka_keyshared.diagnosis.judge.{name}", SOON)


def test_a_slot_that_drains_for_long_is_named_with_who_holds_it(
    started: Started,
    cluster: EmbeddedCluster,
    topic: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sooner(monkeypatch, "DRAINING")
    handler = Hangs()
    try:
        member = started(handler, routing="sticky", ranges={"worker-0": "0-65535"})
        assert handler.entered.wait(WAIT)
        with pytest.raises(TimeoutError):
            member.app.assign_range(0, 65_535, "worker-1", take_over=True, timeout=0.1)
        write(cluster, topic, [(ODD, b"more")])
        drains = named(member, "slot-draining", eventually, SOON)
        assert "has been draining at worker-0, which runs" in drains.sentence
        assert "1 record wait for it at worker-1" in drains.sentence
    finally:
        handler.gate.set()
    eventually(lambda: found(member.app, "slot-draining") is None, WAIT)


def test_a_dead_letter_that_is_refused_is_named(
    started: Started, cluster: EmbeddedCluster, topic: str, eventually: Eventually
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1_000)
    try:
        member = started(fails, retry={"attempts": 1}, poison="dead_letter", dlq=True)
        refused = named(member, "dlq-refusing", eventually)
        assert "(key 'odd') was refused" in refused.sentence
    finally:
        cluster.heal("Produce")
    eventually(lambda: found(member.app, "dlq-refusing") is None, WAIT)


def test_a_commit_that_is_not_answered_is_named(
    started: Started,
    cluster: EmbeddedCluster,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sooner(monkeypatch, "UNANSWERED")
    cluster.delay_next("OffsetCommit", 4.0, times=2)
    member = started(lambda record: None)
    waits = named(member, "commit-unanswered", eventually, SOON)
    assert waits.sentence.startswith("a commit has waited for its answer for ")
    eventually(lambda: found(member.app, "commit-unanswered") is None, WAIT)


def test_a_member_without_partitions_is_named(
    cluster: EmbeddedCluster,
    topic: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sooner(monkeypatch, "RESERVE")
    cluster.create_topic(topic, 1)
    conf = client_conf(cluster, group_name())
    members = [Member(conf, [topic], lambda record: None, name=f"m{n}") for n in range(2)]
    for member in members:
        member.start()

    def idle() -> bool:
        return any(found(each.app, "no-partitions") is not None for each in members)

    try:
        eventually(idle, WAIT)
        assert sum(bool(each.assigned) for each in members) == 1
        (spare,) = [each for each in members if not each.assigned]
        reserve = named(spare, "no-partitions", eventually)
        assert "this member has had no partition for" in reserve.sentence
    finally:
        for member in members:
            member.stop()


def test_a_rebalance_that_waits_for_a_handler_is_named(
    cluster: EmbeddedCluster,
    topic: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sooner(monkeypatch, "REBALANCING")
    cluster.create_topic(topic, 2)
    write(cluster, topic, numbered(100))
    gate, entered = threading.Event(), threading.Event()

    def hangs(record: Any) -> None:
        entered.set()
        gate.wait(WAIT)

    # The group has to wait for a member that hands over slowly, and not give it up.
    conf = client_conf(cluster, group_name(), session_timeout_ms=10_000)
    first = Member(conf, [topic], hangs, name="first", revoke_deadline=20.0).start()
    other = Member(conf, [topic], lambda record: None, name="other")
    try:
        assert entered.wait(WAIT)
        other.start()
        turns = named(first, "rebalance-in-progress", eventually, SOON)
        assert "the group has been giving out its partitions for" in turns.sentence
        gate.set()
        eventually(lambda: found(first.app, "rebalance-in-progress") is None, WAIT)
    finally:
        gate.set()
        first.stop()
        other.stop()


@pytest.fixture
def short_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of a minute is said of a second, and a backlog of a few records is one."""
    monkeypatch.setattr("kafka_keyshared.owner.lately.MINUTE", 1.0)
    monkeypatch.setattr("kafka_keyshared.diagnosis.limits.RECORDS_LEAST", 10)


@pytest.mark.usefixtures("short_minute")
@pytest.mark.parametrize(
    ("code", "options", "said"),
    [
        ("workers-limit", {"workers": 2}, "100% of the workers were busy"),
        (
            "window-full",
            {
                "workers": 4,
                "routing": "sticky",
                "ranges": {"worker-0": "0-65535"},
                "window_records": 20,
            },
            "the window is full, and 25% of the workers were busy",
        ),
    ],
)
def test_what_limits_a_member_is_named(
    started: Started, eventually: Eventually, code: str, options: dict[str, Any], said: str
) -> None:
    gate = threading.Event()
    try:
        member = started(lambda record: gate.wait(WAIT), **options)
        limit = named(member, code, eventually)
        assert said in limit.sentence
        assert "has not fallen" in limit.sentence
    finally:
        gate.set()
    eventually(lambda: found(member.app, code) is None, WAIT)


def test_a_coordinator_that_is_lost_is_named(
    started: Started, cluster: EmbeddedCluster, eventually: Eventually
) -> None:
    member = started(lambda record: None)
    eventually(lambda: member.done() == 101, WAIT)
    cluster.fail_next("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", times=500)
    try:
        write(cluster, member.app.topics[0], numbered(10))
        lost = named(member, "coordinator-lost", eventually)
        assert "coordinator" in lost.sentence.lower()
    finally:
        cluster.heal("OffsetCommit")
    eventually(lambda: found(member.app, "coordinator-lost") is None, WAIT)
