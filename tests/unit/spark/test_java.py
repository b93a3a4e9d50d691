"""Spark's client gets the settings of ours, or a line that says which it cannot have."""

from __future__ import annotations

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.java import java_conf


def test_a_login_is_handed_on_and_a_quote_in_a_password_ends_nothing() -> None:
    found = java_conf(
        {
            "bootstrap.servers": "a:1",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "me",
            "sasl.password": 'a"b\\c',
            "group.id": "g",
        }
    )
    assert found == {
        "kafka.bootstrap.servers": "a:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="me" password="a\\"b\\\\c";'
        ),
    }


def test_an_authority_is_handed_on_and_a_certificate_of_ones_own_refused_by_name() -> None:
    found = java_conf({"bootstrap.servers": "a:1", "ssl.ca.location": "/ca.pem"})
    assert found["kafka.ssl.truststore.location"] == "/ca.pem"
    with pytest.raises(ConfigError, match=r"ssl\.key\.location: Spark's Kafka client has no such"):
        java_conf({"bootstrap.servers": "a:1", "ssl.key.location": "/key.pem"})
