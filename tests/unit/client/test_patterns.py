"""Topic patterns: which topics they mean, and that nobody consumes his own dead letters."""

from __future__ import annotations

import logging

import pytest

from kafka_keyshared import ConfigError, KeyShared
from kafka_keyshared.client.patterns import BadPatternError, matching, topics_meant
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.live_cluster import client_conf, group_name

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


def test_a_pattern_means_what_it_matches_from_the_beginning_and_a_name_itself() -> None:
    there = ["orders", "orders.eu", "old-orders", "payments"]
    assert topics_meant(["^orders", "refunds"], there) == ["orders", "orders.eu", "refunds"]


def test_the_clients_classes_of_characters_are_understood() -> None:
    there = ["orders-1", "orders-x", "orders-"]
    assert matching("^orders-[[:digit:]]$", there) == ["orders-1"]
    assert matching("^orders-[[:alnum:]]$", there) == ["orders-1", "orders-x"]


def test_what_is_no_expression_is_named() -> None:
    with pytest.raises(BadPatternError, match=r"'\^no\[t' is no regular expression"):
        matching("^no[t", [])


def test_a_dead_letter_topic_that_a_pattern_reads_again_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"the dead letters of 'orders' would go to 'orders.dlq'"):
        KeyShared(CONF, ["orders", "^ord.*"], dlq=True)
    KeyShared(CONF, ["orders", "^pay.*"], dlq=True)


def test_a_pattern_that_would_read_its_own_dead_letters_is_refused_at_the_start(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    app = KeyShared(client_conf(embedded_cluster, group_name()), [f"^{topic}.*"], dlq=True)
    app.handler(lambda record: None)
    with pytest.raises(ConfigError, match=rf"the dead letters of '{topic}' would go to"):
        app.run()


def test_the_dead_letter_topic_of_a_topic_that_a_pattern_means_must_be_there(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    app = KeyShared(client_conf(embedded_cluster, group_name()), [f"^{topic}$"], dlq=True)
    app.handler(lambda record: None)
    with pytest.raises(ConfigError, match=rf"dead-letter topic '{topic}.dlq' does not exist"):
        app.run()


def test_a_pattern_that_matches_nothing_is_said_in_python_too(
    embedded_cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    conf = client_conf(embedded_cluster, group_name())
    app = KeyShared(conf, [f"^{topic}-never"], workers=1)
    app.handler(lambda record: None)
    app.stop()
    with caplog.at_level(logging.WARNING, "kafka_keyshared"):
        assert app.run() == 0
    assert f"pattern ^{topic}-never matches none of the" in caplog.text
