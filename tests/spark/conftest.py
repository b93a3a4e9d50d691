"""One Spark for each process of tests: a start takes seconds and a gigabyte."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.spark.checks import require
from kafka_keyshared.spark.session import Session, SparkOptions, start
from tests.support.spark_cluster import SHORT_LIVED


def _require_spark() -> None:
    """Skip the test when Spark cannot be started here; fail it where it must be possible."""
    try:
        require("local[2]", {})
    except MissingPartError as missing:
        reason = " ".join(str(missing).split())
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"CI=true allows no skip: {reason}", pytrace=False)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark_parts() -> None:
    """Java and the jars are there, for a test that starts a Spark of its own."""
    _require_spark()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Forgive pyspark the sockets that it leaves to the garbage collector."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def _collect_sockets() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def no_sockets_for_others() -> Iterator[None]:
    """Collect what pyspark left before the tests of another module are blamed for it."""
    yield
    _collect_sockets()


@pytest.fixture(scope="session")
def session(spark_parts: None) -> Iterator[Session]:
    """Spark on two threads of this machine, for the whole session: leave its settings alone.

    A task that fails is run again, as on a cluster.
    """
    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": SHORT_LIVED}
    options = SparkOptions("local[2,4]", conf=conf)
    with start(options) as running:
        yield running
    _collect_sockets()
