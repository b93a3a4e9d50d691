"""Translation of client settings to Java's names, for Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_keyshared.config import connection_conf
from kafka_keyshared.errors import ConfigError

_SAME = ("client.id", "client.dns.lookup")
_SECURED_BY = ("security.", "sasl.", "ssl.", "https.", "oauth_cb", "enable.sasl.", "enable.ssl.")
"""Prefixes of settings without which the connection would be a different one."""

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_conf(conf: Mapping[str, Any]) -> dict[str, str]:
    """Return the connection settings of a consumer, by Java's names.

    The prefix ``kafka.`` is Spark's. Raises :class:`ConfigError` for a setting that Java's clients
    do not have. The connection would then differ from that of the pods.
    """
    own = connection_conf(conf)
    servers = own.pop("bootstrap.servers", None) or own.pop("metadata.broker.list", None)
    own.pop("metadata.broker.list", None)
    found = {"bootstrap.servers": str(servers)}
    found |= {name: str(own.pop(name)) for name in _SAME if name in own}
    if protocol := own.pop("security.protocol", None):
        found["security.protocol"] = str(protocol).upper()
    found |= _login(own)
    found |= _certificates(own)
    # Settings such as socket options and the client's software name need no Java equivalent.
    left = [name for name in own if name.startswith(_SECURED_BY)]
    if left:
        raise ConfigError(
            f"{', '.join(left)}: Spark's Kafka client has no such setting, and without it the "
            "connection would be another one; say it in Java's words with --spark-conf"
        )
    return {f"kafka.{name}": value for name, value in found.items()}


def _login(own: dict[str, Any]) -> dict[str, str]:
    mechanism = own.pop("sasl.mechanism", None) or own.pop("sasl.mechanisms", None)
    own.pop("sasl.mechanisms", None)
    user, password = own.pop("sasl.username", None), own.pop("sasl.password", None)
    if mechanism is None or str(mechanism) not in _LOGIN:
        if mechanism is not None:
            own["sasl.mechanism"] = mechanism
        return {}
    quoted = [str(each).replace("\\", "\\\\").replace('"', '\\"') for each in (user, password)]
    jaas = f'{_LOGIN[str(mechanism)]} required username="{quoted[0]}" password="{quoted[1]}";'
    return {"sasl.mechanism": str(mechanism), "sasl.jaas.config": jaas}


def _certificates(own: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    if authority := own.pop("ssl.ca.location", None):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority)}
    if (check := own.pop("ssl.endpoint.identification.algorithm", None)) is not None:
        found["ssl.endpoint.identification.algorithm"] = "" if check == "none" else str(check)
    return found
