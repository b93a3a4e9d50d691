"""Each thing that can be wrong, made wrong with the real thing: what the doctor says of it.

| what is broken | test |
|---|---|
| handler: import, error in the module, signature | `test_a_handler_*` |
| broker down, DNS, wrong port, wrong listener, lost address | `test_a_broker_*`, `test_dns`, … |
| TLS and SASL, both ways | `test_tls_*`, `test_plaintext_*`, `test_sasl_*` |
| topic missing, pattern, rights on topic and group | `test_a_topic_*`, `test_*_denied` |
| group with another assignor or protocol | `test_a_group_*` |
| positions, retention | `test_a_commit_*`, `test_records_*`, … |
| a group that does not get on | `test_a_key_that_is_blocked`, `test_a_handler_that_hangs`, … |
| dead-letter topic | `test_a_dead_letter_topic_*` |
| clocks, either way | `test_a_clock_*`, `test_a_record_*` |

What needs no cluster of its own is looked at in ``tests/unit/test_cli_doctor*.py``.
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclOperation,
    AdminClient,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.hashing import slot_of
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.observability.doctor import survey
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.conftest import Eventually
from tests.support.cli import in_process
from tests.support.kafka_requests import commit_as_written
from tests.support.live_cluster import (
    Member,
    client_conf,
    committed,
    group_name,
    settled_sets,
    write,
)
from tests.support.secured_broker import Secured

Found = dict[str, dict[str, str]]
Doctor = Callable[..., Found]


@pytest.fixture
def no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a dead connection, whose reason is there soon: do not wait out all of 6 s."""
    monkeypatch.setattr(survey, "ANSWER_TIMEOUT", 4.0)


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run the doctor with these arguments and client settings and return its checks by name."""

    def run(*arguments: object, **settings: Any) -> Found:
        for name, value in settings.items():
            arguments += ("-X", f"{name.replace('_', '.')}={value}")
        ended = in_process(capsys, "doctor", *arguments, "--json")
        result: dict[str, Any] = json.loads(ended.out)
        found = {check["name"]: check for check in result["checks"]}
        assert ended.status == (0 if result["healthy"] else 3)
        return found

    return run


def expect(found: Found, name: str, status: str, section: str, *said: str) -> None:
    """Hold a check to its status, its page, and words of its reason and cure."""
    check = found[name]
    assert (check["status"], check["page"]) == (status, f"reference/doctor.md#{section}"), check
    assert check["why"]
    assert check["cure"]
    told = f"{check['seen']} | {check['why']} | {check['cure']}"
    for text in said:
        assert text in told
    if status == "fail":
        assert found[name] in [each for each in found.values() if each["status"] == "fail"]


def make_topic(cluster: Cluster, name: str, partitions: int = 1, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    conf = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=conf)])[name].result(30)
    cluster.create_topic(name, partitions)


def statuses(found: Found) -> list[str]:
    return [check["status"] for check in found.values()]


# --- the handler ---


@pytest.mark.parametrize(
    ("spec", "section", "why"),
    [
        ("no_such_module:handle", "handler-import", "No module named 'no_such_module'"),
        ("needs_what_is_not_there.py:handle", "handler-import", "No module named 'nix'"),
        ("handlers.py:handel", "handler-import", "it has handle, two"),
        ("handlers.py:two", "handler-unusable", "one record"),
    ],
)
def test_a_handler_that_cannot_be_used(
    embedded_cluster: Cluster, tmp_path: Path, doctor: Doctor, *, spec: str, section: str, why: str
) -> None:
    (tmp_path / "handlers.py").write_text("def handle(record): ...\ndef two(one, other): ...\n")
    (tmp_path / "needs_what_is_not_there.py").write_text("import nix\ndef handle(record): ...\n")
    if spec.partition(":")[0].endswith(".py"):
        spec = str(tmp_path / spec)
    found = doctor(spec, "--app-dir", tmp_path, "-b", embedded_cluster.bootstrap)
    expect(found, "handler", "fail", section, why, "`keyshared run` would refuse it too")
    assert found["broker"]["status"] == "ok", "the rest is looked at all the same"


# --- a broker that cannot be reached ---


@pytest.mark.usefixtures("no_answer")
def test_a_broker_that_is_down(doctor: Doctor) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    found = doctor("-b", address, "-t", "t", "-g", "g", "--dlq", "auto")
    said = (address, "Connection refused", "nothing listens there", "see that the broker runs")
    expect(found, "broker", "fail", "no-listener", *said)
    assert statuses(found) == ["skipped", "ok", "fail"] + ["skipped"] * (len(found) - 3), (
        "told once"
    )
    assert found["retention"]["seen"] == "needs positions"


@pytest.mark.usefixtures("no_answer")
def test_dns(doctor: Doctor) -> None:
    found = doctor("-b", "no-such-host.invalid:9092")
    said = ("'no-such-host.invalid:9092'", "not known here", "DNS")
    expect(found, "broker", "fail", "host-unknown", *said)


# Waited out: once the client gives the connection up it says the same as of one that is closed.
def test_a_port_that_takes_connections_and_never_answers(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        found = doctor("-b", f"127.0.0.1:{mute.getsockname()[1]}")
    expect(found, "broker", "fail", "no-answer", "no answer", "see firewalls")


@pytest.mark.usefixtures("no_answer")
def test_the_listener_of_a_controller(real_cluster: Cluster, doctor: Doctor) -> None:
    assert isinstance(real_cluster, RealCluster)
    address = f"127.0.0.1:{real_cluster._nodes[0].address.controller_port}"
    found = doctor("-b", address)
    expect(found, "broker", "fail", "not-a-broker", "no broker that", "KRaft controller")


def test_brokers_that_go_away_meanwhile_are_told_once(
    topic: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = survey.Survey.partitions
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)

        def after_they_went(own: survey.Survey, counts: dict[str, int]) -> object:
            cluster.broker_down()
            return asked(own, counts)

        monkeypatch.setattr(survey.Survey, "partitions", after_they_went)
        found = doctor("-b", cluster.bootstrap, "-t", topic, "-g", topic, "--dlq", "auto")
    assert [name for name, check in found.items() if check["status"] == "fail"] == ["broker"]
    assert "answered at first, but not again" in found["broker"]["seen"]
    assert found["topics"]["status"] == "ok", "what was seen before is true"
    for name in ("positions", "retention", "progress", "dlq", "metadata", "clock"):
        assert found[name]["seen"] == "needs broker"


@pytest.mark.usefixtures("no_answer")
def test_an_advertised_address_that_leads_nowhere(secured: Secured, doctor: Doctor) -> None:
    found = doctor("-b", secured.misled)
    said = ("127.0.0.1:1, where none answers", "Connection refused", "advertised.listeners")
    expect(found, "broker", "fail", "misleading-address", *said)


# --- TLS and SASL ---


def test_tls_that_fits_is_healthy(secured: Secured, doctor: Doctor) -> None:
    found = doctor("-b", secured.tls, security_protocol="SSL", ssl_ca_location=secured.authority)
    assert found["broker"]["status"] == "ok"


@pytest.mark.usefixtures("no_answer")
def test_tls_at_a_plain_listener(secured: Secured, doctor: Doctor) -> None:
    found = doctor("-b", secured.cluster.bootstrap, security_protocol="SSL")
    said = ("is a plain one", "leave security.protocol out")
    expect(found, "broker", "fail", "plain-listener", *said)


@pytest.mark.usefixtures("no_answer")
def test_plaintext_at_a_tls_listener(secured: Secured, doctor: Doctor) -> None:
    found = doctor("-b", secured.tls)
    said = ("that port wants TLS", "set security.protocol=SSL, or SASL_SSL")
    expect(found, "broker", "fail", "tls-listener", *said)


@pytest.mark.usefixtures("no_answer")
def test_tls_by_an_authority_that_is_not_known(secured: Secured, doctor: Doctor) -> None:
    found = doctor("-b", secured.tls, security_protocol="SSL")
    said = ("certificate verify failed", "the TLS handshake failed", "ssl.ca.location")
    expect(found, "broker", "fail", "tls-refused", *said)


@pytest.mark.usefixtures("no_answer")
def test_tls_for_another_host(secured: Secured, doctor: Doctor) -> None:
    """The certificate is for 127.0.0.1; by another name it is somebody else's."""
    port = secured.tls.rpartition(":")[2]
    settings = {"security_protocol": "SSL", "ssl_ca_location": secured.authority}
    found = doctor("-b", f"localhost:{port}", broker_address_family="v4", **settings)
    expect(found, "broker", "fail", "tls-refused", "the certificate's host name")


@pytest.mark.usefixtures("no_answer")
def test_sasl_refuses_a_password(secured: Secured, doctor: Doctor) -> None:
    conf = secured.alice("g", password="guessed")
    found = doctor(**{name.replace(".", "_"): value for name, value in conf.items()})
    said = ("refuses these credentials", "sasl.password")
    expect(found, "broker", "fail", "credentials-refused", *said)
    assert "guessed" not in json.dumps(found)


@pytest.mark.usefixtures("no_answer")
def test_sasl_left_out(secured: Secured, doctor: Doctor) -> None:
    found = doctor("-b", secured.sasl)
    said = ("connections are closed", "may want SASL")
    expect(found, "broker", "fail", "connection-closed", *said)


@pytest.mark.usefixtures("no_answer")
def test_sasl_at_a_plain_listener(secured: Secured, doctor: Doctor) -> None:
    conf = {**secured.alice("g"), "bootstrap.servers": secured.cluster.bootstrap}
    found = doctor(**{name.replace(".", "_"): value for name, value in conf.items()})
    expect(found, "broker", "fail", "plain-listener", "is a plain one")


# --- topics and rights ---


def test_a_topic_that_is_missing(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    found = doctor("-b", real_cluster.bootstrap, "-t", f"{topic}-nix", "-g", topic)
    said = (f"topic '{topic}-nix' does not exist", "create it or mend the name")
    expect(found, "topics", "fail", "topic-missing", *said)
    assert found["group"]["status"] == "ok"
    for name in ("positions", "retention", "dlq", "clock"):
        assert found[name]["status"] == "skipped"


def test_a_topic_that_is_missing_hides_no_dead_letter_topic_that_is(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    found = doctor("-b", real_cluster.bootstrap, "-t", topic, "--dlq", "auto")
    expect(found, "topics", "fail", "topic-missing", f"topic '{topic}' does not exist")
    expect(found, "dlq", "fail", "dlq-missing", f"'{topic}.dlq' does not exist")


def test_a_pattern_that_matches_nothing(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    found = doctor("-b", real_cluster.bootstrap, "-t", f"^{topic}-[0-9]+")
    said = ("matches no topic", "fix the pattern or create a topic")
    expect(found, "topics", "warn", "pattern-matches-nothing", *said)


def test_a_pattern_means_to_the_doctor_what_it_means_to_the_client(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    """Also the cluster's own topics, and one of the user's that only looks like them."""
    mine = f"__{topic}"
    for name in (topic, mine):
        make_topic(real_cluster, name)
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 0, b"")
    pattern = f"^__consumer_offsets$|^(__)?{topic}$"
    given: set[str] = set()
    consumer = Consumer(client_conf(real_cluster, group_name()))
    consumer.subscribe([pattern], on_assign=lambda _, own: given.update(p.topic for p in own))
    deadline = time.monotonic() + 90
    while not given:
        assert time.monotonic() < deadline, "the group does not form"
        consumer.poll(0.1)
    consumer.close()
    assert given == {"__consumer_offsets", mine, topic}
    found = doctor("-b", real_cluster.bootstrap, "-t", pattern)
    assert f"3 topics (__consumer_offsets, {mine}, {topic})" in found["topics"]["seen"]
    said = ("matches internal topics of the cluster, __consumer_offsets:", "fix the pattern")
    expect(found, "topics", "warn", "pattern-matches-internal", *said)
    mended = doctor("-b", real_cluster.bootstrap, "-t", f"^(__)?{topic}$")
    assert mended["topics"]["status"] == "ok"
    assert f"2 topics ({mine}, {topic})" in mended["topics"]["seen"]


def test_rights_that_are_denied(secured: Secured, topic: str, doctor: Doctor) -> None:
    """One after the other is given, until nothing is wrong."""
    dlq, group = f"{topic}.dlq", group_name()
    for name in (topic, dlq):
        make_topic(secured.cluster, name)
        secured.allow(ResourceType.TOPIC, name, AclOperation.DESCRIBE)
    conf = {name.replace(".", "_"): value for name, value in secured.alice(group).items()}
    named = ("-t", topic, "--dlq", "auto")
    found = doctor(*named, **conf)
    read = (f"may not read '{topic}'", f"allow READ on topic {topic}")
    expect(found, "topics", "fail", "topic-read-denied", *read)
    expect(found, "group", "fail", "group-unknown", "authorization failed", "may DESCRIBE it")
    expect(found, "dlq", "fail", "dlq-write-denied", f"may not write to '{dlq}'")
    secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    secured.allow(ResourceType.GROUP, group, AclOperation.DESCRIBE)
    found = doctor(*named, **conf)
    assert found["topics"]["status"] == "ok"
    join = (f"may not join group '{group}'", f"allow READ on group {group}")
    expect(found, "group", "fail", "group-denied", *join)
    letters = (f"may not write to '{dlq}'", f"allow WRITE on topic {dlq}")
    expect(found, "dlq", "fail", "dlq-write-denied", *letters)
    secured.allow(ResourceType.GROUP, group, AclOperation.READ)
    secured.allow(ResourceType.TOPIC, dlq, AclOperation.WRITE)
    found = doctor(*named, **conf)
    assert "fail" not in statuses(found)
    # Whether the brokers tell their settings is another right.
    assert found["metadata"]["status"] == "skipped"


# --- the topic of the group view ---


@pytest.fixture
def told_in(topic: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The topic in which instances tell one another how they are, as the settings have it."""
    monkeypatch.setenv("KEYSHARED_GROUP_VIEW_TOPIC", f"{topic}.status")
    return f"{topic}.status"


def test_a_group_view_whose_topic_is_missing_or_keeps_everything(
    real_cluster: Cluster,
    topic: str,
    told_in: str,
    doctor: Doctor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic)
    found = doctor(*named)
    cures = ("create it, with cleanup.policy=compact,delete", "set group_view_create")
    expect(found, "group-view", "warn", "group-view-missing", f"topic '{told_in}' does", *cures)
    monkeypatch.setenv("KEYSHARED_GROUP_VIEW_CREATE", "true")
    found = doctor(*named)
    assert found["group-view"]["status"] == "ok"
    assert found["group-view"]["seen"] == f"{told_in}: not there, would be made at start"
    make_topic(real_cluster, told_in)
    found = doctor(*named)
    said = (f"'{told_in}' is not compacted (cleanup.policy=delete)", "cleanup.policy=compact,del")
    expect(found, "group-view", "warn", "group-view-kept", *said)
    monkeypatch.setenv("KEYSHARED_GROUP_VIEW_TOPIC", f"{told_in}.2")
    make_topic(real_cluster, f"{told_in}.2", cleanup_policy="compact,delete")
    assert doctor(*named)["group-view"]["status"] == "ok"


def test_rights_on_the_group_view_that_are_denied(
    secured: Secured, topic: str, told_in: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other is given, until nothing is wrong."""
    make_topic(secured.cluster, topic)
    secured.allow(ResourceType.TOPIC, topic, AclOperation.READ)
    conf = {name.replace(".", "_"): value for name, value in secured.alice("g").items()}
    monkeypatch.setenv("KEYSHARED_GROUP_VIEW_CREATE", "true")
    found = doctor("-t", topic, **conf)
    unmade = ("could not be made: ", "uthorization failed", f"allow CREATE on topic {told_in}")
    expect(found, "group-view", "warn", "group-view-missing", *unmade)
    secured.allow(ResourceType.TOPIC, told_in, AclOperation.CREATE)
    found = doctor("-t", topic, **conf)
    assert "would be made at start" in found["group-view"]["seen"]
    make_topic(secured.cluster, told_in, cleanup_policy="compact")
    secured.allow(ResourceType.TOPIC, told_in, AclOperation.DESCRIBE)
    found = doctor("-t", topic, **conf)
    write = (f"may not write to '{told_in}'", f"allow WRITE on topic {told_in}")
    read = (f"may not read '{told_in}'", f"allow READ on topic {told_in}")
    expect(found, "group-view", "warn", "group-view-denied", *write, *read)
    secured.allow(ResourceType.TOPIC, told_in, AclOperation.WRITE)
    found = doctor("-t", topic, **conf)
    expect(found, "group-view", "warn", "group-view-denied", *read)
    assert "write" not in found["group-view"]["why"]
    secured.allow(ResourceType.TOPIC, told_in, AclOperation.READ)
    assert doctor("-t", topic, **conf)["group-view"]["status"] == "ok"


# --- the group and its positions ---


@contextmanager
def member(cluster: Cluster, topic: str, **settings: Any) -> Iterator[Consumer]:
    """Another program's member of the group ``topic``, which has its partitions."""
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": topic,
        "client.id": "an-older-release",
        "enable.auto.commit": False,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    other = Consumer(conf)
    assigned = threading.Event()
    other.subscribe([topic], on_assign=lambda *_: assigned.set())
    deadline = time.monotonic() + 90
    try:
        while not assigned.is_set():
            assert time.monotonic() < deadline, "the group does not form"
            other.poll(0.1)
        yield other
    finally:
        other.close()


def test_a_group_that_is_active_with_another_assignor(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    with member(real_cluster, topic, partition_assignment_strategy="cooperative-sticky"):
        found = doctor(*named)
        agreed = doctor(*named, partition_assignment_strategy="cooperative-sticky")
    said = (
        "'cooperative-sticky' (an-older-release at /127.0.0.1)",
        "ours: range,roundrobin",
        "set partition.assignment.strategy=cooperative-sticky",
    )
    expect(found, "group", "warn", "other-assignor", *said)
    assert agreed["group"]["status"] == "ok"


def test_a_group_that_is_active_with_another_protocol(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    with member(real_cluster, topic, group_protocol="consumer"):
        found = doctor(*named)
    said = ("active with group.protocol=consumer", "ours: classic", "set the same group.protocol")
    expect(found, "group", "warn", "other-group-protocol", *said)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_has_no_partitions(
    real_cluster: Cluster, topic: str, doctor: Doctor, eventually: Eventually, protocol: str
) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    ours = {"group_protocol": protocol}
    found: Found = {}

    def told() -> bool:
        found.update(doctor(*named, **ours))
        return "have no partition" in str(found["group"])

    with member(real_cluster, topic, **ours) as first:
        assert doctor(*named, **ours)["group"]["status"] == "ok"
        conf = {"bootstrap.servers": real_cluster.bootstrap, "group.id": topic}
        more = {name.replace("_", "."): value for name, value in ours.items()}
        second = Consumer({**conf, **more, "client.id": "one-too-many"})
        second.subscribe([topic])
        with polled(first, second):
            eventually(told, 90.0)
        second.close()
    said = (
        "1 of 2 members have no partition",
        f"only 1 partition of {topic} can be assigned",
        "--workers",
    )
    expect(found, "group", "warn", "member-without-partitions", *said)


def test_a_group_that_waits_for_a_member(
    real_cluster: Cluster, topic: str, doctor: Doctor, eventually: Eventually
) -> None:
    """As for one that was killed: its lag stands still, and no handler is to blame."""
    make_topic(real_cluster, topic)
    write(real_cluster, topic, [(b"k", b"v")] * 20)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    found: Found = {}

    def told() -> bool:
        found.update(doctor(*named, "--held-after", "0"))
        return "a rebalance is in progress" in str(found["group"])

    with member(real_cluster, topic) as first:
        first.commit(offsets=[ClientPartition(topic, 0, 5)], asynchronous=False)
        second = Consumer({"bootstrap.servers": real_cluster.bootstrap, "group.id": topic})
        second.subscribe([topic])
        with polled(second):  # and nobody polls the first
            eventually(told, 90.0)
        second.close()
    said = ("no member reads", "session.timeout.ms (45 s)", "run the doctor again in a minute")
    expect(found, "group", "warn", "group-rebalancing", *said)
    assert found["progress"]["status"] == "skipped"
    assert "a rebalance is in progress" in str(found["progress"])


@contextmanager
def polled(*consumers: Consumer, then: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Somebody polls these consumers meanwhile, so that they stay in their group."""
    done = threading.Event()

    def poll() -> None:
        while not done.is_set():
            for each in consumers:
                each.poll(0.05)
            then()

    polling = threading.Thread(target=poll, name="polling")
    polling.start()
    try:
        yield
    finally:
        done.set()
        polling.join(60)


def test_a_commit_that_is_no_text_hides_no_position(
    any_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    """Reading its metadata raises; the position beside it, and all the others, are shown.

    A real broker makes text of the bytes, which the client then reads past the end of.
    """
    any_cluster.create_topic(topic, 3)
    for partition in range(3):
        write(any_cluster, topic, [(b"k", b"v")] * 10, partition=partition)
    for partition, metadata in ((0, b"\xff\xfe\xfd"), (1, b"text")):
        at = TopicPartition(topic, partition)
        commit_as_written(any_cluster.bootstrap, topic, at, 4, metadata)
    named = ("-b", any_cluster.bootstrap, "-t", topic, "-g", topic)
    found = doctor(*named, auto_offset_reset="earliest")
    assert found["positions"]["status"] == "ok"
    seen = f"{topic}: lag 12 (1 of 3 partitions, 10 records, start at the beginning)"
    assert found["positions"]["seen"] == seen


def test_partitions_that_start_at_their_end(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic, 2)
    for partition in range(2):
        write(real_cluster, topic, [(b"k", b"v")] * 10, partition=partition)
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 10, b"")
    found = doctor("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    said = ("1 of 2 partitions", "10 records already in them", "give --from-beginning")
    expect(found, "positions", "warn", "starts-at-end", *said)


def test_a_new_group_that_starts_at_the_end(
    any_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    """The trap of whoever tries a group for the first time: it waits, and nothing happens."""
    any_cluster.create_topic(topic, 2)
    for partition in range(2):
        write(any_cluster, topic, [(b"k", b"v")] * 10, partition=partition)
    named = ("-b", any_cluster.bootstrap, "-t", topic, "-g", topic)
    said = ("2 of 2 partitions have no committed position", "20 records", "give --from-beginning")
    expect(doctor(*named), "positions", "warn", "starts-at-end", *said)
    assert doctor(*named, "--from-beginning")["positions"]["status"] == "ok"


def test_records_that_were_deleted_unread(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    write(real_cluster, topic, [(b"k", b"v")] * 10)
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 3, b"")
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    start = ClientPartition(topic, 0, 7)
    admin.delete_records([start])[start].result(30)
    found = doctor("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    said = (f"{topic}-0: from the committed position 3 on, 4 records", "raise retention.ms")
    expect(found, "retention", "fail", "deleted-unread", *said)


def test_a_topic_that_was_made_anew(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    make_topic(real_cluster, topic)
    write(real_cluster, topic, [(b"k", b"v")])
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 500, b"")
    found = doctor("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    said = ("position 500 is beyond the end 1", "reset the group's offsets")
    expect(found, "retention", "fail", "position-beyond-end", *said)


# --- a group that does not get on ---


def settled_beyond(cluster: Cluster, topic: str, position: int) -> int:
    """How many offsets are committed as settled beyond this position; 0 at any other one."""
    at, sets = settled_sets(cluster, topic, topic)
    return sum(end - first for first, end in sets.get("default", ()) if at == position)


@contextmanager
def stuck(cluster: Cluster, topic: str, age: float, *, hangs: bool) -> Iterator[str]:
    """An instance one key of which fails for good or hangs; the others are done and committed.

    The records are so many seconds old. Yields where the instance gives its status.
    """
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    written = int((time.time() - age) * 1000)
    for number in range(20):
        producer.produce(topic, b"v", b"key-%d" % (number % 4), 0, timestamp=written)
    assert producer.flush(30) == 0
    end = threading.Event()

    def handle(record: Record) -> None:
        if record.key() == b"key-1":
            if not hangs:
                raise KeyError("customer_id")
            end.wait(300)

    conf = client_conf(cluster, topic)
    # What waits behind the one that hangs, for its worker, is not settled either.
    options: dict[str, Any] = {"retry": {"attempts": 1}, "http_port": 0, "workers": 16}
    instance = Member(conf, [topic], handle, **options).start()
    settled = 1 if hangs else 14
    try:
        deadline = time.monotonic() + 120
        # The first commit names records that run, and an earlier one may have less of what settles.
        while settled_beyond(cluster, topic, 1) < settled:
            assert time.monotonic() < deadline, "it does not get so far"
            end.wait(0.2)
        assert instance.app.http is not None
        yield instance.app.http.url
    finally:
        end.set()
        instance.stop()


def test_a_key_that_is_blocked(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--watch", 1)
    with stuck(real_cluster, topic, 900, hangs=False) as url:
        found = doctor(*named, "--held-after", 600, "--status-url", url)
        unasked = doctor(*named, "--held-after", 600)
        longer = doctor(*named, "--held-after", 1)
    said = (
        f"{topic}-0, which rdkafka at /127.0.0.1 has, has stood at 1 for ",
        "(key b'key-1', written ",
        " min ago)",
        "but for 4 more records (5 key b'key-1', 9 key b'key-1', 13 key b'key-1', …)",
    )
    known = "its instance says: its key is blocked, for"
    expect(found, "progress", "fail", "position-held", *said, known, "fix the handler and restart")
    assert "--status-url" not in found["progress"]["cure"], "it was given"
    in_doubt = (
        "whether it is stuck or only slow, ",
        " s do not tell",
        "--watch 600",
        "--status-url",
    )
    expect(unasked, "progress", "warn", "offsets-held", *said, *in_doubt)
    expect(longer, "progress", "fail", "position-held", *said)
    blocks = (
        f"1 key is blocked: a key of slot {slot_of(b'key-1'):#06x} at {topic}-0@1 for",
        "last: KeyError at ",
    )
    expect(found, "instance", "fail", "key-blocked", *blocks, "fix the handler")


def test_a_handler_that_hangs(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--watch", 1)
    with stuck(real_cluster, topic, 900, hangs=True) as url:
        found = doctor(*named, "--held-after", 0.5, "--status-url", url)
        patient = doctor(*named, "--held-after", 3_600, "--status-url", url)
    expect(found, "progress", "fail", "position-held", "has stood at 1")
    running = ("1 record running for longer than 0.5 s", f"{topic}-0@1 for", "on worker-")
    expect(found, "instance", "fail", "record-running-long", *running)
    runs = "its instance says: worker-"
    expect(patient, "progress", "warn", "offsets-held", "has stood at 1", runs, "py-spy")
    assert patient["instance"]["status"] == "ok"


def test_a_member_that_does_not_get_on(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    """A plain consumer that has joined and commits nothing: its metadata tells nothing."""
    make_topic(real_cluster, topic)
    write(real_cluster, topic, [(b"k", b"v")] * 5)
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 2, b"")
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--watch", 1)
    assert doctor(*named)["progress"]["status"] == "skipped", "nobody is there"
    with member(real_cluster, topic) as consumer, polled(consumer):
        found = doctor(*named)
        later = doctor(*named, "--held-after", 0)
    said = ("an-older-release at /127.0.0.1 has, has stood at 2", "nothing behind it up to 5")
    expect(found, "progress", "warn", "lag-not-moving", *said)
    expect(later, "progress", "fail", "lag-not-moving", *said)
    # It has looked, and read a record, and that is all.
    assert committed(real_cluster, topic, topic)[0] == 2


def test_a_group_that_is_slow_with_an_old_backlog_is_not_stuck(
    real_cluster: Cluster, topic: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its position moves only when the doctor has already looked for as long as it usually does."""
    make_topic(real_cluster, topic)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    for _ in range(5):
        producer.produce(topic, b"v", b"k", 0, timestamp=int((time.time() - 7_200) * 1000))
    assert producer.flush(30) == 0
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 2, b"")
    looks: list[float] = []
    asked = survey.Survey.watch

    def noted(own: survey.Survey, behind: Any, seconds: float) -> Any:
        looks.append(seconds)
        return asked(own, behind, seconds)

    monkeypatch.setattr(survey.Survey, "watch", noted)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
    with member(real_cluster, topic) as consumer:

        def commit() -> None:
            if len(looks) == 2:
                consumer.commit(offsets=[ClientPartition(topic, 0, 3)], asynchronous=False)

        with polled(consumer, then=commit):
            found = doctor(*named)
            looks.clear()
            hurried = doctor(*named, "--watch", 1)
    assert found["progress"]["status"] == "ok", found["progress"]
    assert "all moved within" in found["progress"]["seen"]
    in_doubt = "whether it is stuck or only slow, 1 s do not tell"
    expect(hurried, "progress", "warn", "lag-not-moving", "written 2 h ago", in_doubt)


def test_what_is_no_record_holds_nobody_up_and_an_open_transaction_does(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    producer.commit_transaction(60)
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 1, b"")
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--watch", 1)
    with member(real_cluster, topic) as consumer, polled(consumer):
        found = doctor(*named)
        producer.begin_transaction()
        producer.produce(topic, b"v", b"k", 0)
        producer.flush(60)
        blocked = doctor(*named)
        producer.abort_transaction(60)
    assert found["progress"]["status"] == "ok"
    assert f"from {topic}-0@1 on there is no record" in found["progress"]["seen"]
    said = ("has stood at 1", "the records from 2 on are of an open transaction")
    expect(blocked, "progress", "warn", "transaction-open", *said)


def test_a_group_that_gets_on(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    """Slowly, and with more before it than it does while anybody looks."""
    make_topic(real_cluster, topic)
    write(real_cluster, topic, [(b"k", b"v")] * 20_000)
    commit_as_written(real_cluster.bootstrap, topic, TopicPartition(topic, 0), 0, b"")
    with member(real_cluster, topic) as consumer:
        position = itertools.count(1)

        def commit() -> None:
            at = ClientPartition(topic, 0, next(position))
            consumer.commit(offsets=[at], asynchronous=False)

        with polled(consumer, then=commit):
            found = doctor("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--watch", 60)
    assert found["progress"]["status"] == "ok"
    assert "all moved within" in found["progress"]["seen"]


def test_an_address_where_nobody_listens(embedded_cluster: Cluster, doctor: Doctor) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    found = doctor("-b", embedded_cluster.bootstrap, "--status-url", address)
    expect(found, "instance", "fail", "instance-silent", address, "refused", "--http-port")
    assert found["broker"]["status"] == "ok"


# --- dead letters ---


def test_a_dead_letter_topic_that_is_missing(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    named = ("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--dlq", "auto")
    said = (f"'{topic}.dlq' does not exist", "create it, or give --dlq-create")
    expect(doctor(*named), "dlq", "fail", "dlq-missing", *said)
    made = doctor(*named, "--dlq-create")["dlq"]
    assert (made["status"], made["seen"]) == (
        "ok",
        f"{topic}.dlq: not there, would be made at start",
    )


def test_a_dead_letter_topic_that_takes_less_and_is_compacted(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    make_topic(real_cluster, f"{topic}.dlq", max_message_bytes="1000", cleanup_policy="compact")
    found = doctor("-b", real_cluster.bootstrap, "-t", topic, "-g", topic, "--dlq", "auto")
    said = ("takes records of 1,000 bytes at most", "is compacted", "set max.message.bytes")
    expect(found, "dlq", "warn", "dlq-too-small", *said)


def test_a_dead_letter_topic_that_is_consumed_too(
    real_cluster: Cluster, topic: str, doctor: Doctor
) -> None:
    make_topic(real_cluster, topic)
    make_topic(real_cluster, f"{topic}.dlq")
    named = ("-b", real_cluster.bootstrap, "-t", f"^{topic}", "--dlq", "auto", "--dlq-create")
    found = doctor(*named)
    assert found["topics"]["seen"] == f"^{topic}: 2 topics ({topic}, {topic}.dlq)"
    said = (f"'{topic}.dlq' is consumed here too", "name another topic")
    expect(found, "dlq", "fail", "dlq-consumed", *said)


# --- clocks ---


def test_a_record_from_the_future(real_cluster: Cluster, topic: str, doctor: Doctor) -> None:
    """A producer's clock is ten minutes ahead; a broker takes less than an hour."""
    make_topic(real_cluster, topic)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    refused: list[object] = []
    ahead = int(time.time() * 1000) + 600_000
    producer.produce(
        topic, b"", b"k", timestamp=ahead, on_delivery=lambda error, _: refused.append(error)
    )
    assert producer.flush(30) == 0
    assert refused == [None]
    found = doctor("-b", real_cluster.bootstrap, "-t", topic)
    said = (f"{topic}: a record was written", "from now", "a producer's is ahead", "NTP")
    expect(found, "clock", "warn", "record-from-future", *said)


@contextmanager
def commits(cluster: Cluster, topic: str) -> Iterator[None]:
    """Somebody commits again and again, so that the coordinator writes its time."""
    done = threading.Event()

    def commit() -> None:
        number = 0
        while not done.wait(0.02):
            number += 1
            at = TopicPartition(topic, 0)
            commit_as_written(cluster.bootstrap, f"{topic}-busy", at, number, b"")

    committer = threading.Thread(target=commit, name="committer")
    commit_as_written(cluster.bootstrap, f"{topic}-busy", TopicPartition(topic, 0), 0, b"")
    committer.start()
    try:
        yield
    finally:
        done.set()
        committer.join(60)


@pytest.mark.parametrize(
    ("shift", "section", "why"),
    [
        (3_600_000, "clock-ahead", "s ahead of that of a broker"),
        (-60_000, "clock-behind", "s behind that of a broker"),
        (0, "clock", "the brokers' clocks agree with this one"),
    ],
    ids=["ahead", "behind", "right"],
)
def test_a_clock_that_is_wrong_either_way(
    real_cluster: Cluster,
    topic: str,
    doctor: Doctor,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Eventually,
    *,
    shift: int,
    section: str,
    why: str,
) -> None:
    """What a broker writes while the doctor looks must have a time between its two looks."""
    make_topic(real_cluster, topic)
    right = survey.Survey.now_ms
    monkeypatch.setattr(survey.Survey, "now_ms", staticmethod(lambda: right() + shift))
    found: Found = {}

    def told() -> bool:
        found.update(doctor("-b", real_cluster.bootstrap, "-t", topic))
        return found["clock"]["status"] != "skipped"

    with commits(real_cluster, topic):
        eventually(told, 60.0)
    if shift:
        expect(found, "clock", "warn", section, why, "by NTP")
    else:
        assert (found["clock"]["status"], found["clock"]["page"][-6:]) == ("ok", "#clock")
        assert why in found["clock"]["seen"]


def test_a_clock_that_is_ahead_shows_by_what_a_broker_stamps(
    real_cluster: Cluster, topic: str, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor waits a moment when the group has members, whose commits will tell."""
    make_topic(real_cluster, topic, message_timestamp_type="LogAppendTime")
    right = survey.Survey.now_ms
    monkeypatch.setattr(survey.Survey, "now_ms", staticmethod(lambda: right() + 90_000))
    done = threading.Event()

    def produce() -> None:
        while not done.wait(0.02):
            write(real_cluster, topic, [(b"k", b"v")])

    with member(real_cluster, topic):
        producing = threading.Thread(target=produce, name="producing")
        producing.start()
        try:
            found = doctor("-b", real_cluster.bootstrap, "-t", topic, "-g", topic)
        finally:
            done.set()
            producing.join(60)
    expect(found, "clock", "warn", "clock-ahead", "s ahead of that of a broker")
