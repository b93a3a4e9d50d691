"""A header whose name is not UTF-8: what the client makes of it, and what we make of the client."""

from __future__ import annotations

import ctypes
import json
from typing import Any

import pytest
from confluent_kafka import cimpl

from kafka_keyshared.config.keys import from_header
from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.core.contract.events import DeadLetterAnswer
from kafka_keyshared.dlq.publish import DeadLetterPublisher
from kafka_keyshared.headers import HeadersError, read_headers
from kafka_keyshared.model import Undecodable
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import in_process
from tests.support.letters import a_publish
from tests.support.live_cluster import Member, client_conf, group_name, read_all, write

TOPIC, PARTITION, VALUE, FLAGS, HEADERS, END = 1, 3, 4, 7, 10, 0
COPY = 2


def write_header(bootstrap: str, topic: str, name: bytes) -> None:
    """Write a record with a header of this name, as the library lets any program in C."""
    library: Any = ctypes.CDLL(cimpl.__file__)
    for function in ("conf_new", "new", "headers_new"):
        getattr(library, f"rd_kafka_{function}").restype = ctypes.c_void_p
    handle, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    why = ctypes.create_string_buffer(200)
    conf = handle(library.rd_kafka_conf_new())
    servers = bootstrap.encode()
    assert library.rd_kafka_conf_set(conf, b"bootstrap.servers", servers, why, size(200)) == 0
    producer = handle(library.rd_kafka_new(0, conf, why, size(200)))
    assert producer, why.value
    headers = handle(library.rd_kafka_headers_new(size(2)))
    for each in (b"fine", name):
        library.rd_kafka_header_add(headers, each, size(len(each)), b"1", size(1))
    error = library.rd_kafka_producev(
        *(producer, TOPIC, text(topic.encode()), PARTITION, ctypes.c_int32(0)),
        *(VALUE, text(b"v"), size(1), FLAGS, ctypes.c_int(COPY), HEADERS, headers, END),
    )
    assert error == 0
    assert library.rd_kafka_flush(producer, 30_000) == 0
    library.rd_kafka_destroy(producer)


def test_a_header_name_that_is_not_utf_8(
    embedded_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client raises once, and then returns a pair whose first half is no object."""
    embedded_cluster.create_topic(topic, 1)
    write_header(embedded_cluster.bootstrap, topic, b"\xff\xfe")
    (message,) = read_all(embedded_cluster, topic, 1)
    with pytest.raises(SystemError):
        message.headers()
    after = message.headers()
    assert after is not None
    assert repr(after) == "[('fine', b'1'), (<NULL>, b'1')]"

    # Asked once more, ours names the cause, and does not touch the pair.
    record: Any = message
    with pytest.raises(HeadersError, match="not UTF-8"):
        read_headers(record)

    # A handler that failed on it has asked before: the letter is refused and told, for its key.
    whole = a_publish([])
    sent = Publish("default", whole.lane, record, 1, whole.first, whole.last)
    told: list[DeadLetterAnswer] = []
    publisher = DeadLetterPublisher(
        {"bootstrap.servers": embedded_cluster.bootstrap}, lambda name: f"{name}.dlq", told.append
    )
    publisher.publish(sent)
    assert [each.publish for each in told] == [sent]
    assert "not UTF-8" in str(told[0].error)
    publisher.close(1.0)

    # In a dead-letter topic it is shown as what it is.
    ended = in_process(
        *(capsys, "dlq", "show", "0:0", "-b", embedded_cluster.bootstrap, "--dlq", topic, "--json")
    )
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert (found["form"], found["value"], found["headers"]) == ("unreadable", {"text": "v"}, [])
    assert "not UTF-8" in found["problem"]


def test_such_a_header_is_refused_also_where_many_good_ones_were_read_before(
    embedded_cluster: Cluster, topic: str
) -> None:
    """Once Python has made a call often, it no longer looks whether the client left an error."""
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"1")], headers=[("fine", b"1")])
    write_header(embedded_cluster.bootstrap, topic, b"\xff\xfe")
    found: list[Any] = read_all(embedded_cluster, topic, 2)
    good, bad = sorted(found, key=lambda message: bool(message.value() == b"v"))
    for _ in range(1_000):
        assert read_headers(good) == [("fine", b"1")]
    for _ in range(2):
        with pytest.raises(HeadersError, match="not UTF-8"):
            read_headers(bad)


def test_a_handler_that_reads_such_headers_runs_once_and_its_key_waits(
    embedded_cluster: Cluster,
    topic: str,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A second attempt would be given what ends the process, so there is none."""
    embedded_cluster.create_topic(topic, 1)
    embedded_cluster.create_topic(f"{topic}.dlq", 1)
    write_header(embedded_cluster.bootstrap, topic, b"\xff\xfe")
    write(embedded_cluster, topic, [(b"other", b"1")])
    called: list[bytes | None] = []

    def handle(record: Any) -> None:
        called.append(record.value())
        for name, value in record.headers() or []:
            assert name, value

    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], handle, dlq=True, retry={"backoff": 0.01}, workers=2)
    member.start()
    eventually(lambda: member.done() == 1, 30.0)
    eventually(lambda: "not UTF-8" in caplog.text, 30.0)
    member.stop()
    assert sorted(called, key=str) == [b"1", b"v"]


def test_a_key_in_a_header_is_undecodable_beside_such_a_name_however_many_were_read(
    embedded_cluster: Cluster, topic: str
) -> None:
    """A method that is called often is called in another way, which does not see the exception."""
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"v")] * 300, headers=[("fine", b"1")])
    write_header(embedded_cluster.bootstrap, topic, b"\xff\xfe")
    key_of = from_header("fine")
    *good, bad = read_all(embedded_cluster, topic, 301)
    assert {key_of(each) for each in good} == {b"1"}  # type: ignore[arg-type]
    with pytest.raises(Undecodable, match="not UTF-8"):
        key_of(bad)  # type: ignore[arg-type]
