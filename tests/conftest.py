"""Fixtures that every kind of test may use: clusters, unique names, waiting."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.testing.clusters import jars
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.testing.clusters.external import BOOTSTRAP_VARIABLE, external_cluster
from tests.support.secured_broker import Secured, secured_broker

Eventually = Callable[[Callable[[], bool], float], None]


def pytest_configure() -> None:
    """Have what tests start hear Ctrl-C, also in a job in the background, which ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _require_kafka() -> None:
    """Skip the test when a broker cannot be started here; fail it where it must be possible."""
    try:
        jars.java()
        jars.require_jars()
    except MissingPartError as missing:
        reason = " ".join(str(missing).split())
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI=true allows no skip: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def embedded_cluster() -> Iterator[Cluster]:
    """One cluster inside this process for the whole session; make your own topics in it."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def real_cluster() -> Iterator[Cluster]:
    """One Kafka for the whole session: the one that the environment names, else our own broker."""
    named = os.environ.get(BOOTSTRAP_VARIABLE)
    if named:
        with external_cluster(named) as cluster:
            yield cluster
        return
    _require_kafka()
    with RealCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[RealCluster]:
    """Three Kafka brokers for the whole session; leave all three running behind you."""
    _require_kafka()
    with RealCluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def broker_of_my_own() -> Iterator[RealCluster]:
    """A broker for one test that stops or kills it."""
    _require_kafka()
    with RealCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One broker with an authorizer, SASL, TLS and a misleading address for the whole session."""
    _require_kafka()
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_parts() -> None:
    """Java and the jars are there, for a test that starts a broker in a process of its own."""
    _require_kafka()


@pytest.fixture(params=["embedded", "real"])
def any_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The test runs once on each kind of cluster."""
    cluster = request.getfixturevalue(f"{request.param}_cluster")
    assert isinstance(cluster, Cluster)
    return cluster


@pytest.fixture
def topic() -> str:
    """A topic name that no other test uses, also on a cluster that outlives the session."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def eventually() -> Eventually:
    """``eventually(condition, seconds)`` waits until the condition holds, or fails the test."""

    def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
        pause = threading.Event()
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not so within {seconds} s: {condition}"
            pause.wait(0.02)

    return wait
