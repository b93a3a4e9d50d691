"""What a user gets wrong on a real cluster: held and named, never lost, never a spin."""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.model import DeadLetter
from kafka_keyshared.observability.audit.ledger import MemoryLedger
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import Running
from tests.support.live_cluster import (
    Member,
    assert_clean,
    client_conf,
    committed,
    group_name,
    letters,
    read_all,
    write,
)
from tests.support.secured_broker import Secured


class Answers:
    """When each dead letter was answered, and how."""

    def __init__(self, member: Member) -> None:
        self.told: list[tuple[float, str | None]] = []
        hooks = member.app.hooks
        heard = hooks.dead_lettered

        def dead_lettered(answered: DeadLetterAnswer) -> None:
            self.told.append((time.monotonic(), answered.error))
            if heard is not None:
                heard(answered)

        member.app.hooks = replace(hooks, dead_lettered=dead_lettered)

    @property
    def refusals(self) -> list[str]:
        return [error for _, error in self.told if error is not None]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def refuse_bad(record: Any) -> None:
    if record.key().startswith(b"bad"):
        raise DeadLetter("bad")


def make_dlq(cluster: Cluster, name: str, most: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(name, 1, 1, config={"max.message.bytes": str(most)})
    admin.create_topics([wanted])[name].result(30)
    cluster.create_topic(name, 1)


# --- a pattern that matches nothing ---


def test_a_pattern_that_matches_nothing_is_named_and_waited_for(
    real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    arguments = ("run", "app:handle", "--app-dir", tmp_path, "-b", real_cluster.bootstrap)
    settings = ("-X", "auto.offset.reset=earliest", "-X", "topic.metadata.refresh.interval.ms=500")
    with Running(*arguments, *settings, "-t", f"^{topic}-[0-9]+", "-g", topic) as run:
        line = run.wait_for("matches none of the")
        assert "WARNING" in line
        assert f"pattern ^{topic}-[0-9]+ " in line
        assert "waiting for one" in line
        assert "every 0.5 s" in line
        run.wait_for("started")
        assert run.process.poll() is None
        real_cluster.create_topic(f"{topic}-1", 1)
        write(real_cluster, f"{topic}-1", [(b"k", b"v")] * 3)
        run.wait_for("settled 3 ")
        assert run.end(signal.SIGTERM) == 0, run.err
        # It was said, and not said again with every look at the cluster.
        assert len([each for each in run.err.splitlines() if "WARNING" in each]) < 10


def test_waiting_for_a_pattern_costs_no_spin(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [f"^{topic}.*"], refuse_bad)
    waits: list[float] = []
    client: Any = member.app.hooks.client

    class Counting(client):  # type: ignore[misc]
        def poll(self, timeout: float) -> Any:
            waits.append(timeout)
            return super().poll(timeout)

        def consume(self, count: int) -> Any:
            waits.append(0.0)
            return super().consume(count)

    member.app.hooks = replace(member.app.hooks, client=Counting)
    member.start()
    eventually(lambda: len(waits) >= 20, 60.0)
    assert sum(wait >= 0.1 for wait in waits) >= len(waits) * 0.9, "it asks without waiting"
    assert member.stop() == 0


# --- dead letters that are refused ---


def test_letters_that_fit_alone_do_not_refuse_each_other(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """A broker measures max.message.bytes on the batch: 40 letters of 5 kB are one above 20 kB."""
    real_cluster.create_topic(topic, 1)
    make_dlq(real_cluster, f"{topic}.dlq", 20_000)
    written = MemoryLedger("producer")
    write(real_cluster, topic, [(b"bad-%d" % n, b"v" * 5_000) for n in range(40)], written)
    conf = client_conf(real_cluster, group_name())
    member = Member(conf, [topic], refuse_bad, dlq=True)
    answers = Answers(member)
    member.start()
    eventually(lambda: member.position() == 40, 60.0)
    assert answers.refusals == []
    assert member.stop() == 0
    assert_clean(written, member.ledger, letters(real_cluster, f"{topic}.dlq", 40))


def test_a_letter_too_large_is_held_with_its_name_until_it_fits(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    dlq = f"{topic}.dlq"
    real_cluster.create_topic(topic, 1)
    make_dlq(real_cluster, dlq, 3_000)
    written = MemoryLedger("producer")
    big = Random(1).randbytes(5_000)  # letters are compressed: this stays as large as it is
    records = [(b"good", b""), (b"bad-big", big), (b"bad-small", b""), (b"good", b"")]
    write(real_cluster, topic, records, written)
    group = group_name()
    member = Member(client_conf(real_cluster, group), [topic], refuse_bad, dlq=True)
    answers = Answers(member)
    member.start()
    eventually(lambda: len(answers.refusals) == 3, 60.0)
    assert member.done() == 3, "other keys go on"
    assert member.position() == 1, "the position does not pass what is held"
    line = errors(caplog)[0]
    for text in (f"{topic}-0@1", f"'{dlq}'", "size too large", "max.message.bytes: 5,007 bytes"):
        assert text in line
    refused = [at for at, error in answers.told if error is not None]
    assert refused[1] - refused[0] >= 1.0
    assert refused[2] - refused[1] >= 2.0, "each try waits longer"
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    entry = ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
    roomy = ConfigResource(ResourceType.TOPIC, dlq, incremental_configs=[entry])
    admin.incremental_alter_configs([roomy])[roomy].result(30)
    eventually(lambda: member.position() == 4, 60.0)
    assert member.stop() == 0
    assert committed(real_cluster, group, topic)[0] == 4
    assert_clean(written, member.ledger, letters(real_cluster, dlq, 2))


def test_a_dead_letter_topic_that_comes_back_gets_what_was_held(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    dlq = f"{topic}.dlq"
    for name in (topic, dlq):
        real_cluster.create_topic(name, 1)
    written = MemoryLedger("producer")
    write(real_cluster, topic, [(b"bad-first", b"")], written)
    member = Member(client_conf(real_cluster, group_name()), [topic], refuse_bad, dlq=True).start()
    eventually(lambda: member.position() == 1, 60.0)
    first = letters(real_cluster, dlq, 1)
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    admin.delete_topics([dlq])[dlq].result(30)
    write(real_cluster, topic, [(b"bad", b""), (b"good", b"")], written)
    eventually(lambda: member.done() == 2 and len(member.sub.closed) == 1, 60.0)
    assert member.position() == 1
    real_cluster.create_topic(dlq, 1)
    eventually(lambda: member.position() == 3, 90.0)
    assert member.stop() == 0
    (found,) = read_all(real_cluster, dlq, 1)
    headers: Any = found.headers()
    assert source_of(headers) == (topic, 0, 1)
    second = MemoryLedger("the topic that came back")
    second.dead_lettered(topic, 0, 1)
    assert_clean(written, member.ledger, first, second)


# --- a user who may not ---


def test_a_user_who_may_not_write_dead_letters_loses_none(
    secured: Secured, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may write nowhere gets a fatal error, after which a producer is of no use any more."""
    dlq, group = f"{topic}.dlq", group_name()
    for name in (topic, dlq):
        secured.cluster.create_topic(name, 1)
    secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    secured.allow(ResourceType.GROUP, group, AclOperation.READ)
    secured.allow(ResourceType.TOPIC, dlq, AclOperation.DESCRIBE)
    written = MemoryLedger("producer")
    records = [(b"good", b""), (b"bad-1", b""), (b"bad-2", b""), (b"good", b"")]
    write(secured.cluster, topic, records, written)
    member = Member(secured.alice(group), [topic], refuse_bad, dlq=True)
    answers = Answers(member)
    member.start()
    eventually(lambda: len(answers.refusals) == 6, 90.0)
    assert member.error is None, "the instance goes on"
    assert member.done() == 2
    assert member.position() == 1
    line = errors(caplog)[0]
    for text in (f"{topic}-0@", f"'{dlq}'", "authorization failed", "allow this user to WRITE"):
        assert text in line
    # Three tries of each letter take the 1 s and 2 s of the back-off, at the least.
    assert answers.told[-1][0] - answers.told[0][0] >= 3.0
    secured.allow(ResourceType.TOPIC, dlq, AclOperation.WRITE)
    eventually(lambda: member.position() == 4, 90.0)
    assert member.stop() == 0
    assert_clean(written, member.ledger, letters(secured.cluster, dlq, 2))


# --- two instances that claim to be the same member ---


def test_a_member_whose_identity_another_one_took_ends_and_says_why(
    real_cluster: Cluster, topic: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    real_cluster.create_topic(topic, 1)
    conf = client_conf(real_cluster, group_name(), group_instance_id="pod-0")
    first = Member(conf, [topic], lambda record: None, name="first").start()
    eventually(lambda: bool(first.assigned), 60.0)
    with caplog.at_level(logging.ERROR, "kafka_keyshared"):
        second = Member(conf, [topic], lambda record: None, name="second").start()
        first.join(60.0)
    assert first.status == 1
    assert any("stopping: " in each and "group.instance.id" in each for each in errors(caplog))
    written = MemoryLedger("producer")
    write(real_cluster, topic, [(b"k", b"v")], written)
    eventually(lambda: second.done() == 1, 60.0)
    assert second.stop() == 0
    assert_clean(written, first.ledger, second.ledger)
