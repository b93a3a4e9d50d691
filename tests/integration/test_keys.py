"""Keys out of headers, JSON and Avro on live clusters: order, dead letters, and never a stop."""

from __future__ import annotations

import io
import json
import threading
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config.keys import from_avro, schemas
from kafka_keyshared.status import UnreadableKeyStatus
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import (
    Headers,
    Member,
    client_conf,
    committed,
    group_name,
    read_all,
)

V1 = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "total", "type": "double"}, {"name": "customer", "type": "string"}],
}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    """Avro in Confluent's wire format."""
    out = io.BytesIO()
    out.write(b"\x00" + schema_id.to_bytes(4, "big"))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def produce(
    cluster: Cluster,
    topic: str,
    records: Sequence[tuple[bytes | None, bytes | None, Headers]],
    partition: int = -1,
) -> None:
    """Write records, each with headers of its own."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 2})
    for key, value, headers in records:
        producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(60) == 0


class Watched:
    """A handler that keeps books of its own by the key that is meant, and fails now and then."""

    def __init__(self, meant: Any, fail: Any = None) -> None:
        self._meant = meant
        self._fail = fail
        self._lock = threading.Lock()
        self._running: set[Any] = set()
        self._failed: set[tuple[int, int]] = set()
        self.wrong: list[str] = []
        self.done: dict[Any, list[tuple[int, int]]] = defaultdict(list)
        self.own_keys: set[Any] = set()

    def __call__(self, record: Any) -> None:
        key, place = self._meant(record), (record.partition(), record.offset())
        with self._lock:
            if key in self._running:
                self.wrong.append(f"{place} started while another record of {key} runs")
            self._running.add(key)
        try:
            if self._fail is not None and place not in self._failed and self._fail(place):
                self._failed.add(place)
                raise ValueError("the first time only")
            with self._lock:
                if any(p == place[0] and o > place[1] for p, o in self.done[key]):
                    self.wrong.append(f"{place} of {key} came after {self.done[key][-1]}")
                self.done[key].append(place)
                self.own_keys.add(record.key())
        finally:
            with self._lock:
                self._running.discard(key)

    def count(self) -> int:
        """How many records are done."""
        with self._lock:
            return sum(map(len, self.done.values()))


def test_a_header_is_the_key_whatever_the_records_own_keys_say(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    any_cluster.create_topic(topic, 4)
    chance = Random(20130101)
    customers = [b"customer-%d" % number for number in range(6)]
    records: list[tuple[bytes | None, bytes | None, Headers]] = [
        (
            b"own-%d" % chance.randrange(40),
            b"%d" % number,
            [("trace", b"t"), ("customer", customers[number % len(customers)])],
        )
        for number in range(600)
    ]
    produce(any_cluster, topic, records)
    failing = {(p, o) for p in range(4) for o in range(600) if chance.random() < 0.05}
    handler = Watched(lambda record: dict(record.headers())["customer"], failing.__contains__)
    member = Member(
        client_conf(any_cluster, group_name()),
        [topic],
        handler,
        key="header:customer",
        retry={"backoff": 0.01},
    ).start()
    eventually(lambda: member.position() == 600, 60.0)
    assert member.stop() == 0
    assert handler.wrong == []
    assert handler.count() == 600
    assert len(handler.own_keys) == 40, "the handler gets the record with its own key"
    assert set(handler.done) == set(customers)


def test_avro_of_two_versions_is_keyed_and_what_nobody_can_read_is_dead_lettered(
    any_cluster: Cluster, topic: str, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "PATIENCE", 0.5)  # each of these is one record among good ones
    any_cluster.create_topic(topic, 1)
    any_cluster.create_topic(f"{topic}.dlq", 1)
    bad: dict[bytes, str] = {
        framed(3, V1, {"customer": "c"}): "schema 3: the registry knows no such schema",
        framed(4, V1, {"customer": "c"}): "schema 4: it is not Avro",
        b"\x00\x00\x00\x00\x01\x0acut": "the value is not Avro of its schema",
        b"\x00\x00\x00\x00\x02\x02": "the value is not Avro of its schema",
        b"no frame at all": "the value does not begin with the id of a schema",
        b"": "the value is empty",
    }
    values: list[bytes] = []
    for number in range(60):
        customer = f"c-{number % 3}"
        if number % 2:
            values.append(framed(2, V2, {"total": 1.5, "customer": customer}))
        else:
            values.append(framed(1, V1, {"customer": customer}))
        if number % 10 == 5:
            values.append(list(bad)[number // 10])
    headers: Headers = [("h", b"1"), ("h", b"\xff\x00"), ("none", None)]
    produce(any_cluster, topic, [(b"\xff", value, headers) for value in values])
    key_of = from_avro("customer", registry={1: V1, 2: V2, 4: {"type": "no such"}}.get)
    asked: list[bytes | None] = []

    def meant(record: Any) -> bytes | None:
        asked.append(record.value())
        return key_of(record)

    handler = Watched(meant, lambda place: place[1] % 7 == 0)
    member = Member(
        client_conf(any_cluster, group_name()),
        [topic],
        handler,
        key=key_of,
        dlq=True,
        retry={"backoff": 0.01},
    ).start()
    eventually(lambda: member.position() == len(values), 60.0)
    assert member.stop() == 0
    assert handler.wrong == []
    assert (handler.count(), set(handler.done)) == (60, {b"c-0", b"c-1", b"c-2"})
    assert not set(asked) & set(bad), "no handler sees a record whose key cannot be read"
    found = read_all(any_cluster, f"{topic}.dlq", len(bad))
    reasons = {}
    for letter in found:
        own: Any = letter.headers()
        assert own[: len(headers)] == headers
        added = dict(own[len(headers) :])
        assert (added["keyshared.attempts"], added["keyshared.error.type"]) == (
            b"0",
            b"Undecodable",
        )
        assert letter.key() == b"\xff"
        value = letter.value()
        assert value is not None
        reasons[value] = added["keyshared.error.message"].decode()
    assert set(reasons) == set(bad)
    for value, reason in bad.items():
        assert reasons[value].startswith(reason), (value, reasons[value])


def test_json_without_its_place_has_a_null_key_and_reject_dead_letters_it(
    any_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    any_cluster.create_topic(topic, 1)
    any_cluster.create_topic(f"{topic}.dlq", 1)
    good = [json.dumps({"customer": {"id": number % 4}}).encode() for number in range(40)]
    bad = [b'{"customer": {}}', b'{"customer": [1]}', b"{", b"{'customer': 1}", b"null"]
    produce(any_cluster, topic, [(None, value, []) for value in [*good, *bad, *good]])
    handler = Watched(lambda record: json.loads(record.value())["customer"]["id"])
    member = Member(
        client_conf(any_cluster, group_name()),
        [topic],
        handler,
        key="json:/customer/id",
        null_keys="reject",
        dlq=True,
    ).start()
    eventually(lambda: member.position() == 85, 60.0)
    assert member.stop() == 0
    assert handler.wrong == []
    assert (handler.count(), set(handler.done)) == (80, {0, 1, 2, 3})
    reasons = defaultdict(list)
    for letter in read_all(any_cluster, f"{topic}.dlq", len(bad)):
        headers: Any = letter.headers()
        reasons[dict(headers)["keyshared.error.message"].decode()].append(letter.value())
    assert sorted(reasons.pop("its key is null"), key=str) == sorted(
        [bad[0], bad[1], bad[4]], key=str
    )
    assert all(reason.startswith("the value is not JSON") for reason in reasons)
    assert sum(map(len, reasons.values())) == 2


def test_while_a_registry_is_down_partitions_that_need_it_wait_and_others_go_on(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """New schemas cannot be read meanwhile; what follows them might be of the same key."""
    real_cluster.create_topic(topic, 2)
    known, new = framed(1, V1, {"customer": "c"}), framed(2, V2, {"total": 1.0, "customer": "c"})
    produce(real_cluster, topic, [(None, value, []) for value in (known, new, known)], 0)
    produce(real_cluster, topic, [(None, known, [])] * 3, 1)
    up, asked = threading.Event(), threading.Event()

    def registry(schema_id: Any) -> Any:
        if schema_id == 1:
            return V1
        asked.set()
        if not up.is_set():
            raise ConnectionError("no route to the registry")
        return V2

    ran: list[tuple[int, int]] = []
    group = group_name()
    app = KeyShared(
        client_conf(real_cluster, group),
        [topic],
        workers=4,
        commit_interval=0.2,
        key=from_avro("customer", registry=registry),
    )
    app.handler(lambda record: ran.append((record.partition(), record.offset())))
    status: list[int] = []
    thread = threading.Thread(target=lambda: status.append(app.run()), daemon=True)
    thread.start()
    eventually(lambda: len(ran) == 4 and asked.is_set(), 60.0)
    eventually(lambda: committed(real_cluster, group, topic, 1)[0] == 3, 60.0)
    assert sorted(ran) == [(0, 0), (1, 0), (1, 1), (1, 2)]
    eventually(lambda: committed(real_cluster, group, topic, 0)[0] == 1, 60.0)
    up.set()
    eventually(lambda: committed(real_cluster, group, topic, 0)[0] == 3, 60.0)
    app.stop()
    thread.join(60)
    assert status == [0]
    assert [place for place in ran if place[0] == 0] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("registered", [False, True])
def test_records_of_a_schema_that_the_registry_does_not_know_wait_and_none_is_dead_lettered(
    any_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    *,
    registered: bool,
) -> None:
    monkeypatch.setattr(schemas, "PATIENCE", 0.0)  # they are many, so none is judged all the same
    any_cluster.create_topic(topic, 1)
    any_cluster.create_topic(f"{topic}.dlq", 1)
    values = [framed(1, V1, {"customer": f"c-{number % 3}"}) for number in range(20)]
    values += [
        framed(2, V2, {"total": 1.0, "customer": f"c-{number % 3}"}) for number in range(20, 40)
    ]
    produce(any_cluster, topic, [(None, value, []) for value in values])
    known: dict[Any, Any] = {1: V1}
    asked = threading.Event()

    def registry(schema_id: Any) -> Any:
        if schema_id == 2:
            asked.set()
        return known.get(schema_id)

    key_of = from_avro("customer", registry=registry)
    handler = Watched(key_of)
    group = group_name()
    member = Member(
        client_conf(any_cluster, group), [topic], handler, key=key_of, dlq=True, commit_interval=0.2
    ).start()
    eventually(asked.is_set, 60.0)
    eventually(lambda: committed(any_cluster, group, topic, 0)[0] == 20, 60.0)

    def waiting() -> tuple[UnreadableKeyStatus, ...]:
        status = member.app.status()
        return () if status is None else status.subscriptions[0].unreadable_keys

    eventually(lambda: bool(waiting()), 60.0)
    (unread,) = waiting()
    assert (unread.offset, unread.records) == (20, 20)
    assert unread.error == "schema 2: the registry knows no such schema"
    if registered:
        known[2] = V2
        eventually(lambda: member.position() == 40, 60.0)
    assert member.stop() == 0
    assert handler.wrong == []
    assert handler.count() == (40 if registered else 20)
    assert member.position() == handler.count(), "nothing went past it in another way"
    ended = member.app.status()
    assert ended is not None
    assert not ended.subscriptions[0].undecodable.get(topic)
    assert not ended.subscriptions[0].processed.get(topic, {}).get("dead_lettered")
