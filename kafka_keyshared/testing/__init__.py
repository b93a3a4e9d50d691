"""Test support for users: handlers without Kafka, and Kafka without a broker.

:func:`run_handler` and :class:`HandlerTest` run a handler over records by the package's own rules,
without Kafka, threads or waiting. :class:`EmbeddedKafka` is a cluster inside the test process with
injectable faults, and :func:`running` runs an app against it. No part of it needs pytest.

With pytest, one line in ``conftest.py`` gives the fixtures ``keyshared_cluster`` and
``keyshared_topic``::

    pytest_plugins = ["kafka_keyshared.testing"]

(PYTEST_DONT_REWRITE: a conftest may import from here before pytest does.)
"""

from __future__ import annotations

from kafka_keyshared.testing.cluster import EmbeddedKafka, Request
from kafka_keyshared.testing.handlers import HandlerTest, Result, run_handler
from kafka_keyshared.testing.records import ReceivedRecord, record
from kafka_keyshared.testing.running import RunningApp, running

# Read by pytest alone, when this module is one of its plugins.
pytest_plugins = ("kafka_keyshared.testing.fixtures",)

__all__ = [
    "EmbeddedKafka",
    "HandlerTest",
    "ReceivedRecord",
    "Request",
    "Result",
    "RunningApp",
    "record",
    "run_handler",
    "running",
]
