"""Readers of some slots, and what the tests of them ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_keyshared import Reader
from kafka_keyshared.client import log_reader
from kafka_keyshared.client.bounds import ask_logs
from kafka_keyshared.testing.clusters.cluster import Cluster

ALL = "0-65535"


def conf(cluster: Cluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap, "log_level": 2}


def reading(cluster: Cluster, *topics: str, ranges: Any = ALL, **more: Any) -> Reader:
    return Reader(conf(cluster), topics, ranges, **{"until": "latest", **more})


def places(records: Sequence[Any]) -> list[tuple[int, int]]:
    return [(each.partition(), each.offset()) for each in records]


def all_of(reader: Reader) -> list[tuple[int, int]]:
    with reader:
        return places(list(reader))


def read_until(
    reader: Reader, there: Callable[[list[Any]], bool], seconds: float = 60
) -> list[Any]:
    """Read on until what came says so."""
    found: list[Any] = []
    deadline = time.monotonic() + seconds
    while not there(found):
        assert time.monotonic() < deadline, f"only {places(found)} have come"
        found += reader.read(0.2)
    return found


def after_asking(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Have something happen between the first question for the logs and the reading of them."""
    asked: list[Any] = []

    def asking(*given: Any) -> Any:
        found = ask_logs(*given)
        if not asked:
            asked.append(given)
            then()
        return found

    monkeypatch.setattr(log_reader, "ask_logs", asking)
