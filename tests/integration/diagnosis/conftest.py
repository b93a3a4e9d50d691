"""Instances in which causes are made, each with a cluster of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.diagnosis_causes import Looks, Named
from tests.support.live_cluster import Member, Written, client_conf, group_name, write
from tests.support.odd_records import ODD, RECORDS, Gate

Started = Callable[..., Member]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """A cluster of the test's own: answers that are planned and not used up would be another's."""
    with EmbeddedCluster() as own:
        yield own


@pytest.fixture
def started(cluster: EmbeddedCluster, topic: str) -> Iterator[Started]:
    """What starts an instance over 100 records of 13 keys and one of the key ``odd``, or others.

    With None for ``records`` the topic is there already.
    """
    members: list[Member] = []

    def start(
        handler: Any,
        *,
        records: Sequence[Written] | None = RECORDS,
        partitions: int = 2,
        client: dict[str, Any] | None = None,
        **options: Any,
    ) -> Member:
        if records is not None:
            cluster.create_topic(topic, partitions)
            write(cluster, topic, records)
        conf = client_conf(cluster, group_name(), **(client or {}))
        given = {"workers": 2, "show_keys": True, "commit_interval": 0.1} | options
        members.append(Member(conf, [topic], handler, name=f"m{len(members)}", **given).start())
        return members[-1]

    yield start
    for member in members:
        member.stop()


@pytest.fixture
def gate(started: Started) -> Iterator[Gate]:
    """A handler that stops in the records of the key ``odd``."""
    gate = Gate(ODD)
    yield gate
    gate.open()


@pytest.fixture
def closed(started: Started) -> Iterator[Gate]:
    """A handler that stops in every record."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, eventually: Eventually) -> Named:
    """``named(app, code)`` waits until an instance names a cause, in time, and returns it."""
    return Named(Looks(monkeypatch), monkeypatch, eventually)
