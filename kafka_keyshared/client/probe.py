"""A check that a cluster is reachable before anything starts on it."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import unreachable
from kafka_keyshared.client.standalone import address_of, outsider, telling, text_of
from kafka_keyshared.config.tokens import with_guarded_tokens

ANSWER_TIMEOUT = 6.0

_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request that any Kafka broker answers, or closes the connection for (KIP-35).

It consists of its length, ApiVersions in version 0, the number 1, and no client id.
"""


def require_broker(conf: Mapping[str, Any], timeout: float = ANSWER_TIMEOUT) -> None:
    """Return once a broker has answered a client with this configuration.

    Raises :class:`~kafka_keyshared.errors.BrokerUnavailableError` with the address, the client's
    last reason and a remedy after ``timeout`` seconds, and
    :class:`~kafka_keyshared.errors.ConfigError` when the client refuses a setting.
    """
    reasons: list[str] = []
    own = with_guarded_tokens(conf)
    consumer = outsider(own, reasons)
    try:
        consumer.list_topics(timeout=timeout)
    except KafkaException as error:
        consumer.poll(0)
        why = telling(reasons) or text_of(error)
        raise unreachable(address_of(conf), why, own) from error
    finally:
        consumer.close()


def speaks_tls(servers: str, timeout: float) -> bool:
    """Return whether the first of these listeners accepts a TLS handshake."""
    host, port = _first_address(servers)
    asking = ssl.create_default_context()
    # The certificate's owner does not matter, as nothing is sent.
    asking.check_hostname = False
    asking.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            asking.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except (OSError, ValueError):
        return False


def is_mute(servers: str, timeout: float) -> bool:
    """Return whether the first of these listeners neither answers nor closes the connection.

    A port of another service that waits for more input behaves so, and one behind a firewall.
    """
    try:
        with socket.create_connection(_first_address(servers), timeout) as plain:
            plain.sendall(_API_VERSIONS)
            plain.recv(1)  # empty if the listener closes the connection
    except TimeoutError:
        return True
    except OSError:
        return False
    return False


def _first_address(servers: str) -> tuple[str, int]:
    """Return host and port of the first address. The port defaults to the client's default."""
    address = servers.partition(",")[0].strip().rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = address, "9092"
    return host.strip("[]"), int(port) if port.isdecimal() else 0
