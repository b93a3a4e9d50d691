"""The client's statistics: what is taken from them, and that nothing in them can do harm."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest

from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.client.statistics import read_statistics
from kafka_keyshared.config import client_conf
from kafka_keyshared.status import ClientStatus

STATISTICS = {
    "name": "rdkafka#consumer-1",
    "brokers": {
        "127.0.0.1:9092/bootstrap": {"nodeid": -1, "nodename": "boot", "rtt": {"avg": 9}},
        "127.0.0.1:9092/1": {"nodeid": 1, "nodename": "127.0.0.1:9092", "rtt": {"avg": 1500}},
        "127.0.0.1:9094/2": {"nodeid": 2, "nodename": "127.0.0.1:9094", "rtt": {"avg": 0}},
    },
    "topics": {
        "orders": {
            "partitions": {
                "0": {"partition": 0, "fetchq_cnt": 7, "consumer_lag": 42},
                "1": {"partition": 1, "fetchq_cnt": 5, "consumer_lag": -1},
                "-1": {"partition": -1, "fetchq_cnt": 99, "consumer_lag": 99},
            }
        }
    },
    "cgrp": {"rebalance_cnt": 3},
}


def client(**conf: Any) -> KafkaClient:
    """A client that talks to nobody."""
    own = client_conf({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0, **conf})
    return KafkaClient(own, ["orders"], lambda answered: None)


def test_what_is_of_use_is_taken_and_what_stands_for_nothing_is_left_out() -> None:
    found = read_statistics(json.dumps(STATISTICS))
    assert found.lag == {"orders": {0: 42}}
    assert found.fetch_queue == 12
    assert found.round_trip_seconds == {"127.0.0.1:9092": 0.0015}
    assert found.rebalances == 3


def test_statistics_without_a_group_or_topics_are_read_too() -> None:
    found = read_statistics(b"{}")
    assert (found.lag, found.fetch_queue, found.rebalances) == ({}, 0, 0)


def test_what_is_no_statistics_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_statistics("no JSON")


def test_the_clients_statistics_come_by_default_and_the_users_interval_wins() -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    assert client_conf(conf)["statistics.interval.ms"] == 15_000
    assert client_conf({**conf, "statistics.interval.ms": 0})["statistics.interval.ms"] == 0


def test_a_client_that_is_not_asked_for_statistics_has_none() -> None:
    ours = client(**{"statistics.interval.ms": 0})
    assert ours.statistics() is None
    ours.close()


def test_the_users_own_callback_is_called_too_and_neither_can_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts: list[str] = []

    def users(text: str) -> None:
        texts.append(text)
        raise ValueError("the user's own mistake")

    with caplog.at_level(logging.ERROR):
        ours = client(stats_cb=users, **{"statistics.interval.ms": 10})
        before = ours.statistics()
        assert before == ClientStatus(), "what it counts is there as 0 before its first word"
        while not texts:
            ours.poll(1.0)
    assert ours.statistics() is not before
    assert "stats_cb failed" in caplog.text
    ours.close()
