"""A real broker with an authorizer and listeners of every kind, to be got wrong on purpose."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_keyshared.testing.clusters import jars, node
from kafka_keyshared.testing.clusters.broker import RealCluster

_STORE_PASSWORD = "store-of-tests"


class Secured(NamedTuple):
    """A broker where ours may do everything and ``alice``, by SASL, what she is allowed.

    ``tls`` is a listener with a certificate for 127.0.0.1 alone, which ``authority`` (a PEM file)
    vouches for. ``misled`` is one that sends its clients to an address where nobody listens.
    """

    cluster: RealCluster
    sasl: str
    tls: str
    misled: str
    authority: Path

    def alice(self, group: str, password: str = "secret") -> dict[str, Any]:
        """Return the settings of alice's consumer."""
        return {
            "bootstrap.servers": self.sasl,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": password,
        }

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Allow alice something, from now on."""
        allowed = AclPermissionType.ALLOW
        literal = ResourcePatternType.LITERAL
        rule = AclBinding(kind, name, literal, "User:alice", "*", operation, allowed)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        admin.create_acls([rule])[rule].result(30)
        _in_force(admin, _rule_of(kind, name, operation), there=True)

    def refuse(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Take back what was allowed, from now on."""
        rule = _rule_of(kind, name, operation)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        admin.delete_acls([rule])[rule].result(30)
        _in_force(admin, rule, there=False)


def _rule_of(kind: ResourceType, name: str, operation: AclOperation) -> AclBindingFilter:
    """Return the filter that finds what alice was allowed there."""
    allowed = AclPermissionType.ALLOW
    literal = ResourcePatternType.LITERAL
    return AclBindingFilter(kind, name, literal, "User:alice", "*", operation, allowed)


def _in_force(admin: AdminClient, rule: AclBindingFilter, *, there: bool) -> None:
    """Return once the broker goes by the rule, or by it no more.

    The controller answers a change when it has it; the broker reads of it a moment later, and what
    it is asked in between it judges by the rule from before. It describes what it goes by itself.
    """
    deadline = time.monotonic() + 30.0
    while bool(admin.describe_acls(rule).result(30)) is not there:
        assert time.monotonic() < deadline, f"the broker has not heard of {rule}"


@contextmanager
def secured_broker(place: Path) -> Iterator[Secured]:
    """Start it; keys and certificate are made in ``place``."""
    store, authority = _certificate(place)
    sasl, tls, misled = (f"127.0.0.1:{port}" for port in node.free_ports(3))
    plain = node.server_properties

    def properties(*arguments: Any) -> str:
        lines = []
        for line in plain(*arguments).splitlines():
            listeners = f",SASL://{sasl},TLS://{tls},MISLED://"
            added = {
                "listeners": listeners + misled,
                "advertised.listeners": listeners + "127.0.0.1:1",
                "listener.security.protocol.map": ",SASL:SASL_PLAINTEXT,TLS:SSL,MISLED:PLAINTEXT",
            }.get(line.partition("=")[0], "")
            lines.append(line + added)
        lines += [
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users=User:ANONYMOUS",
            "listener.name.sasl.sasl.enabled.mechanisms=PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain."
            'PlainLoginModule required user_alice="secret";',
            f"listener.name.tls.ssl.keystore.location={store}",
            "listener.name.tls.ssl.keystore.type=PKCS12",
            f"listener.name.tls.ssl.keystore.password={_STORE_PASSWORD}",
        ]
        return "\n".join(lines) + "\n"

    with pytest.MonkeyPatch.context() as patch:
        # The ports of these listeners belong into settings that the cluster makes itself.
        patch.setattr(node, "server_properties", properties)
        started = RealCluster()
    with started as cluster:
        yield Secured(cluster, sasl, tls, misled, authority)


def _certificate(place: Path) -> tuple[Path, Path]:
    """Make a key for 127.0.0.1; return its store and the certificate that vouches for it."""
    store, authority = place / "broker.p12", place / "authority.pem"
    tool = Path(jars.java()).resolve().with_name("keytool")
    key = "-genkeypair -keyalg RSA -keysize 2048 -dname CN=broker -ext san=ip:127.0.0.1"
    for words in (f"{key} -storetype PKCS12 -validity 30", f"-exportcert -rfc -file {authority}"):
        common = ["-alias", "broker", "-keystore", str(store), "-storepass", _STORE_PASSWORD]
        subprocess.run(
            [str(tool), *words.split(), *common], check=True, capture_output=True, timeout=120
        )
    return store, authority
