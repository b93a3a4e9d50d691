"""Rights that come and go at a real broker: what waits, what goes on, and what a person sees."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    ResourceType,
)

from kafka_keyshared import Reader
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    group_name,
    numbered,
    write,
)
from tests.support.secured_broker import Secured

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
WAIT = 60.0


def handle(_record: object) -> None:
    """Take a record."""


def made(secured: Secured, name: str, *operations: AclOperation) -> str:
    """Make a topic on which alice has these rights."""
    secured.cluster.create_topic(name, 2)
    for operation in operations:
        secured.allow(TOPIC, name, operation)
    return name


def conf_of(secured: Secured, group: str, **more: Any) -> dict[str, Any]:
    """Return alice's settings, by which new topics are found soon."""
    conf = client_conf(secured.cluster, group, topic_metadata_refresh_interval_ms=1_000, **more)
    return conf | secured.alice(group) | {"log_level": 2}


Run = Callable[..., Member]


@pytest.fixture
def run() -> Iterator[Run]:
    """Run a member, which is stopped after the test if it has not been."""
    members: list[Member] = []

    def started(conf: dict[str, Any], topics: list[str], **options: Any) -> Member:
        member = Member(conf, topics, handle, **options).start()
        members.append(member)
        return member

    yield started
    for each in members:
        each.app.stop()
        each.join()


def refused(member: Member) -> list[str]:
    """What the status says to be refused, by topic; '' for the group."""
    status = member.app.status()
    return [] if status is None else [each.topic for each in status.refused]


@contextmanager
def written(secured: Secured, ledger: MemoryLedger, *topics: str) -> Iterator[Callable[[], int]]:
    """Write to the topics all the while; yield how many records that were so far."""
    over, count = threading.Event(), [0]

    def feed() -> None:
        while not over.wait(0.1):
            for topic in topics:
                write(secured.cluster, topic, numbered(5), ledger)
                count[0] += 5

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield lambda: count[0]
    finally:
        over.set()
        thread.join()


def test_rights_that_come_and_go_cost_their_topic_a_wait_and_no_record(
    secured: Secured,
    topic: str,
    run: Run,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pattern, in which one topic may not be read at all, and another not for a while."""
    first, second = (made(secured, f"{topic}-{name}", READ, DESCRIBE) for name in ("a", "b"))
    group = group_name()
    secured.allow(GROUP, group, READ)
    ledger = MemoryLedger("producer")
    member = run(conf_of(secured, group), [f"^{topic}-.*"])
    with written(secured, ledger, first, second) as count:
        eventually(lambda: member.done() > 20, WAIT)
        private = made(secured, f"{topic}-private", DESCRIBE)
        write(secured.cluster, private, [(b"key", b"not for alice")])
        eventually(lambda: refused(member) == [private], WAIT)
        secured.refuse(TOPIC, first, READ)
        eventually(lambda: refused(member) == [first, private], WAIT)
        others = member.app.status()
        assert others is not None
        before = others.subscriptions[0].processed[second]["ok"]

        def second_goes_on() -> bool:
            status = member.app.status()
            return status is not None and (
                status.subscriptions[0].processed[second]["ok"] > before + 20
            )

        eventually(second_goes_on, WAIT)
        finding = member.app.diagnosis()
        assert finding is not None
        assert {each.topic for each in finding.findings if each.code == "right-refused"} == {
            first,
            private,
        }
        secured.allow(TOPIC, first, READ)
        eventually(lambda: refused(member) == [private], WAIT)
        secured.refuse(GROUP, group, READ)
        eventually(lambda: "" in refused(member), WAIT)
        handled = member.done()
        eventually(lambda: member.done() > handled + 20, WAIT)
        secured.allow(GROUP, group, READ)
        eventually(lambda: refused(member) == [private], WAIT)
    eventually(lambda: member.done() == count(), WAIT)
    assert member.stop() == 0
    assert_clean(ledger, member.ledger)
    for line in (
        f"topic {private}: READ refused",
        f"Grant READ on topic {first} to user alice",
        f"Grant READ on group {group} to user alice",
        f"group {group}: no longer refused",
    ):
        assert line in caplog.text


def test_a_group_that_refuses_a_heartbeat_costs_the_client_and_no_record(
    secured: Secured, topic: str, run: Run, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Under KIP-848 the client calls that fatal. Another one joins, as soon as it may."""
    name, group = made(secured, topic, READ, DESCRIBE), group_name()
    secured.allow(GROUP, group, READ)
    ledger = MemoryLedger("producer")
    conf = conf_of(secured, group)
    del conf["session.timeout.ms"], conf["heartbeat.interval.ms"]
    write(secured.cluster, name, numbered(40), ledger)
    called: list[str] = []
    lost = {"on_lost": lambda _consumer, _partitions: called.append("lost")}
    member = run(conf | {"group.protocol": "consumer"}, [name], **lost)
    eventually(lambda: member.position() == 40, WAIT)
    secured.refuse(GROUP, group, READ)
    eventually(lambda: "the client is replaced and joins again" in caplog.text, WAIT)
    eventually(lambda: called == ["lost"], WAIT)
    write(secured.cluster, name, numbered(40), ledger)
    secured.allow(GROUP, group, READ)
    eventually(lambda: member.position() == 80, 2 * WAIT)  # the session of the old member is 45 s
    assert member.stop() == 0
    assert_clean(ledger, member.ledger)
    assert member.done() == 80, "nothing ran twice"


def test_a_start_without_rights_waits_for_them(
    secured: Secured, topic: str, run: Run, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even the topic may be described, nor the group be joined."""
    hidden, group = made(secured, topic), group_name()
    secured.allow(GROUP, group, DESCRIBE)
    ledger = MemoryLedger("producer")
    write(secured.cluster, hidden, numbered(30), ledger)
    member = run(conf_of(secured, group), [hidden])
    eventually(
        lambda: f"Grant DESCRIBE and READ on topic {hidden} to user alice" in caplog.text, WAIT
    )
    for operation in (DESCRIBE, READ):
        secured.allow(TOPIC, hidden, operation)
    eventually(lambda: f"Grant READ on group {group} to user alice" in caplog.text, WAIT)
    secured.allow(GROUP, group, READ)
    eventually(lambda: member.position() == 30, WAIT)
    assert refused(member) == []
    assert member.stop() == 0
    assert_clean(ledger, member.ledger)


def test_an_instance_without_any_right_ends_after_its_time_with_what_to_grant(
    secured: Secured, topic: str, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    name, group = made(secured, topic, DESCRIBE), group_name()
    secured.allow(GROUP, group, READ)
    write(secured.cluster, name, numbered(10))
    member = run(conf_of(secured, group), [name], authorization_timeout=2.0)
    member.join()
    assert member.status == 1
    assert "stopping: the brokers have refused all work of this instance for 2 s" in caplog.text
    assert f"Grant READ on topic {name} to user alice" in caplog.text


def test_a_reader_waits_for_a_topic_that_it_has_read_and_may_not_for_a_while(
    secured: Secured, topic: str
) -> None:
    """Without a group. A topic that it may not read from the first is an error at once."""
    name = made(secured, topic, READ, DESCRIBE)
    write(secured.cluster, name, numbered(10), partition=0)
    conf = {each: value for each, value in secured.alice("").items() if each != "group.id"}
    told: list[str] = []
    found: list[int] = []
    with Reader(conf, [name], [(0, 65_535)], tell=told.append) as reader:

        def read_until(over: Callable[[], bool]) -> None:
            until = time.monotonic() + WAIT
            while not over():
                assert time.monotonic() < until, (len(found), told)
                found.extend(each.offset() for each in reader.read(0.2))

        read_until(lambda: len(found) == 10)
        secured.refuse(TOPIC, name, READ)
        read_until(lambda: bool(told))
        write(secured.cluster, name, numbered(10), partition=0)
        secured.allow(TOPIC, name, READ)
        read_until(lambda: len(found) == 20)
    assert found == list(range(20))
    assert told[0].startswith(f"topic {name}: READ refused; the client asks again for up to 15 min")
    assert told[1:] == [f"topic {name}: no longer refused"]
