"""Spans over a real wire: from the producer's headers to those of the dead letter."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_keyshared import KeyShared
from kafka_keyshared.dlq.json_view import whole
from kafka_keyshared.dlq.letter import read_letter
from kafka_keyshared.dlq.payload import Decoder, PayloadFormat
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.http_scrapes import running
from tests.support.live_cluster import client_conf, group_name, read_all
from tests.support.spans import PRODUCER, kept, traceparent


@pytest.mark.parametrize("form", ["headers", "avro"])
def test_a_dead_letter_says_which_span_its_last_attempt_was(
    embedded_cluster: Cluster, topic: str, form: Any, eventually: Eventually
) -> None:
    for name in (topic, f"{topic}.dlq"):
        embedded_cluster.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    producer.produce(topic, b"v", b"k", headers=[("traceparent", PRODUCER.encode())])
    assert producer.flush(60) == 0
    app = KeyShared(
        client_conf(embedded_cluster, group_name()),
        [topic],
        dlq=True,
        dlq_format=form,
        tracing=True,
        http_port=0,
        retry={"attempts": 2, "backoff": 0},
    )

    @app.handler
    def handle(_record: Any) -> None:
        raise ValueError("bad")

    with kept() as spans, running(app):
        eventually(lambda: len(spans.of_calls()) == 2, 60)
        (letter,) = read_all(embedded_cluster, f"{topic}.dlq", 1)
        first, last = spans.of_calls()
    headers = dict(letter.headers() or [])
    assert headers["keyshared.traceparent"] == traceparent(last).encode()
    shown = whole(read_letter(letter), Decoder(PayloadFormat.AUTO))
    assert shown["traceparent"] == traceparent(last), "dlq show has it"
    assert traceparent(first) != traceparent(last)
    # In Avro the record's own headers are in the envelope.
    assert headers.get("traceparent") == (PRODUCER.encode() if form == "headers" else None)
    assert [link.context.span_id for link in last.links] == [int(PRODUCER.split("-")[2], 16)]
