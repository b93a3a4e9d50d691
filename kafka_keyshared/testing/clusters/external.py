"""Existing clusters: one at an address, one started in a container."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.testing.clusters.cluster import (
    Cluster,
    await_metadata,
    closed_error,
    create_by_admin,
)

if TYPE_CHECKING:
    from testcontainers.community.kafka import KafkaContainer

BOOTSTRAP_VARIABLE = "KEYSHARED_TEST_BOOTSTRAP"
"""Environment variable with the address of an existing cluster for the tests."""


class ExternalCluster(Cluster):
    """A cluster at ``bootstrap`` that is not ours: closing it leaves it, and its topics, alone.

    Raises :class:`BrokerUnavailableError` when no broker answers there within ``timeout`` seconds.
    """

    kind = "real"

    def __init__(self, bootstrap: str, *, timeout: float = 30.0) -> None:
        self.bootstrap = bootstrap
        self._closed = False
        await_metadata(bootstrap, lambda _: True, timeout=timeout, what="Kafka")

    def _create(self, name: str, partitions: int, timeout: float) -> bool:
        if self._closed:
            raise closed_error(f"the connection to {self.bootstrap}")
        return create_by_admin(self.bootstrap, name, partitions, timeout)

    def close(self) -> None:
        """Refuse further calls; the cluster keeps running."""
        self._closed = True


class ContainerCluster(ExternalCluster):
    """A cluster in a container, which is stopped and removed when this object is closed."""

    def __init__(self, container: KafkaContainer, *, timeout: float = 30.0) -> None:
        self._container = container
        super().__init__(container.get_bootstrap_server(), timeout=timeout)

    def close(self) -> None:
        """Stop and remove the container; a second call does nothing."""
        if not self._closed:
            super().close()
            self._container.stop()


def external_cluster(bootstrap: str, *, timeout: float = 30.0) -> Cluster:
    """Return the cluster at ``bootstrap``, once it has answered; see :class:`ExternalCluster`."""
    return ExternalCluster(bootstrap, timeout=timeout)


def testcontainers_cluster(*, timeout: int = 120) -> Cluster:
    """Start Kafka (KRaft) in a container with testcontainers' own choice of image.

    ``timeout`` is in whole seconds and covers the start, not the download of the image. Raises
    :class:`MissingPartError` when the library or a Docker engine is missing.
    """
    try:
        from docker.errors import DockerException  # type: ignore[import-untyped]
        from testcontainers.community.kafka import KafkaContainer
    except ImportError as absent:
        raise MissingPartError(
            f"Kafka in a container needs testcontainers ({absent}); pip install 'testcontainers'"
        ) from absent
    try:
        container = KafkaContainer().with_kraft().start(timeout=timeout)
    except DockerException as refused:
        raise MissingPartError(
            f"Kafka in a container needs a running Docker engine ({refused}); start one, or run "
            "`python -m kafka_keyshared.testing.clusters.broker`, which needs only Java"
        ) from refused
    try:
        return ContainerCluster(container)
    except BaseException:
        container.stop()
        raise


# pytest takes every callable called test* that a test module imports for a test.
testcontainers_cluster.__test__ = False  # type: ignore[attr-defined]
