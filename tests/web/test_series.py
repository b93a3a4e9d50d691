"""How many series a scrape has: bounded for each partition and each worker."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_keyshared.observability.web.prometheus_collector import Exposition
from tests.support.doctor_survey import instance, partition, worker

MOST = 50


def series(partitions: int, workers: int) -> int:
    told: dict[str, Any] = {
        "partitions": [partition(number, 5, "paused") for number in range(partitions)],
        "workers": [worker(number, 17, 4.0) for number in range(workers)],
    }
    status = instance(**told)
    text, _ = Exposition(lambda: status).text("")
    return sum(not line.startswith(b"#") for line in text.splitlines())


@pytest.mark.parametrize(("more_partitions", "more_workers"), [(1, 0), (0, 1)])
def test_each_partition_and_each_worker_adds_at_most_50(
    more_partitions: int, more_workers: int
) -> None:
    added = series(10 + more_partitions, 10 + more_workers) - series(10, 10)
    assert 0 < added <= MOST
