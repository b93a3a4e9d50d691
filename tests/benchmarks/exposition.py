"""How long a scrape takes of an instance with very many partitions."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

from kafka_keyshared.observability.web.prometheus_collector import Exposition
from tests.support.doctor_survey import instance, partition, worker

PARTITIONS = 1_000
WORKERS = 16


def _same(status: Any) -> Any:
    return status


def measure(repeat: int = 30) -> dict[str, Any]:
    """Return the milliseconds that it takes to write the metrics, each time of another status."""
    took = []
    for _ in range(repeat):
        status = instance(
            partitions=[partition(number, 5) for number in range(PARTITIONS)],
            workers=[worker(number, 17, 4.0) for number in range(WORKERS)],
        )
        exposition = Exposition(partial(_same, status))
        begun = time.perf_counter()
        text, _ = exposition.text("")
        took.append((time.perf_counter() - begun) * 1_000)
    return {
        "median_ms": round(statistics.median(took), 1),
        "worst_ms": round(max(took), 1),
        "kib": round(len(text) / 1024),
        "series": sum(not line.startswith(b"#") for line in text.splitlines()),
    }
