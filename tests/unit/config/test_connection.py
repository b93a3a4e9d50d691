"""Which of a consumer's settings another client of the same user is made with."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_keyshared.config import client_conf, connection_conf
from kafka_keyshared.config.client import client_error
from kafka_keyshared.config.properties import CALLBACKS, CONSUMER, CONSUMER_ONLY
from kafka_keyshared.dlq.publish import producer_conf

VALUES = ("1", "100", "2000000", "true", "none", "x", "read_committed", "classic", "rebootstrap")
"""One of these is a value of each setting that a consumer may have, but for names of choices."""

SHARED = {
    "https.ca.location": "/ca.pem",
    "connections.max.idle.ms": 240_000,
    "reconnect.backoff.ms": 200,
    "metadata.max.age.ms": 60_000,
    "api.version.request.timeout.ms": 5_000,
    "enable.sasl.oauthbearer.unsecure.jwt": True,
    "topic.metadata.refresh.interval.ms": 30_000,
    "broker.address.ttl": 500,
    "retry.backoff.ms": 200,
    "client.rack": "a",
    "client.id": "pod-7",
    "receive.message.max.bytes": 200_000_000,
    "enable.metrics.push": False,
    "log.connection.close": False,
    "sasl.username": "u",
    "a.setting.of.tomorrow": 1,
}


class Lines:
    """A logger of a client that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, _level: int, text: str, *words: object) -> None:
        self.lines.append(text % words if words else text)


def test_another_client_takes_every_setting_that_is_not_about_consuming() -> None:
    assert connection_conf({"group.id": "g", "fetch.min.bytes": 2, **SHARED}) == SHARED


def test_another_client_finds_the_brokers_by_whichever_name_they_were_given() -> None:
    for name in ("bootstrap.servers", "metadata.broker.list"):
        assert connection_conf({"group.id": "g", name: "x:1"}) == {name: "x:1"}


def test_what_is_the_consumers_alone_stays_with_it() -> None:
    own: dict[str, Any] = {name: print for name in CALLBACKS if name not in ("oauth_cb", "logger")}
    own |= {
        "group.id": "g",
        "group.instance.id": "pod-7",
        "transactional.id": "t",
        "statistics.interval.ms": 1_000,
        "plugin.library.paths": "spy.so",
        "allow.auto.create.topics": True,
        "acks": 1,
    }
    assert connection_conf(own) == {}


def heeded_by_a_producer(name: str) -> bool | None:
    """Say whether the installed client heeds a setting in a producer; None: that cannot be said."""
    value = next((each for each in VALUES if client_error({name: each}) is None), None)
    if value is None:
        return None
    lines = Lines()
    Producer({name: value, "logger": lines, "log_level": 7}).poll(0.05)
    return not any("is a consumer property" in line for line in lines.lines)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in CONSUMER
        if not name.startswith(("ssl.", "sasl.", "https.", "security.", "plugin.", "reconnect."))
        and name not in ("partition.assignment.strategy", "group.protocol.type", "debug")
    ],
)
def test_the_installed_client_says_which_settings_a_consumer_alone_heeds(name: str) -> None:
    """It logs a line for each that a producer is given, but for topics to subscribe to."""
    heeded = heeded_by_a_producer(name)
    if heeded is not None and name != "allow.auto.create.topics":
        assert heeded is (name not in CONSUMER_ONLY)


@pytest.mark.parametrize("name", ["max.in.flight", "max.in.flight.requests.per.connection"])
def test_a_producer_of_letters_is_made_whatever_a_consumer_was_given(name: str) -> None:
    conf: dict[str, Any] = client_conf(
        {
            "bootstrap.servers": "127.0.0.1:1",
            "group.id": "g",
            name: 1_000,
            "acks": 0,
            "retries": 0,
            "enable.idempotence": False,
            "transactional.id": "t",
            "message.max.bytes": 20_000_000,
            "delivery.report.only.error": True,
        }
    )
    assert Producer({**producer_conf(conf), "log_level": 0}).flush(0) == 0
