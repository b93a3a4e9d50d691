"""Prometheus metrics from statuses, without a single instrument on the way of a record.

prometheus-client's multiprocess mode is not used: one process owns all numbers, and its workers
report theirs with what they finish.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version

from confluent_kafka import libversion
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from kafka_keyshared.status import Distribution, Status
from kafka_keyshared.web.families import FAMILIES
from kafka_keyshared.web.family import Family

BUILD_INFO = "keyshared_build_info"
BUILD_LABELS = ("version", "python", "librdkafka")
BUILD_HELP = "What runs here; always 1."


class StatusCollector(Collector):
    """Turns the status that ``read`` returns into metrics; for any ``CollectorRegistry``.

    ``partitions`` False leaves out the metrics that have one sample for each partition.
    """

    def __init__(self, read: Callable[[], Status | None], *, partitions: bool = True) -> None:
        self._read = read
        self._families = [each for each in FAMILIES if partitions or not each.by_partition]

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples, so that registering does not ask for a status."""
        for family in self._families:
            yield _metric(family)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its samples; without a status only what is built here."""
        build = GaugeMetricFamily(BUILD_INFO, BUILD_HELP, labels=BUILD_LABELS)
        build.add_metric(
            [version("kafka-keyshared"), platform.python_version(), libversion()[0]], 1
        )
        yield build
        status = self._read()
        if status is None:
            return
        for family in self._families:
            metric = _metric(family)
            for labels, value in family.read(status):
                _add(metric, labels, value)
            yield metric


def _metric(family: Family) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    if family.kind == "counter":
        return CounterMetricFamily(family.name, family.help, labels=family.labels)
    if family.kind == "gauge":
        return GaugeMetricFamily(family.name, family.help, labels=family.labels)
    return HistogramMetricFamily(family.name, family.help, labels=family.labels)


def _add(
    metric: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily,
    labels: tuple[str, ...],
    value: float | Distribution,
) -> None:
    if isinstance(metric, HistogramMetricFamily):
        if not isinstance(value, Distribution):
            raise TypeError(f"{metric.name} is a histogram and was given {value!r}")
        buckets: list[tuple[str, float]] = []
        seen = 0
        for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
            seen += count
            buckets.append((bound, seen))
        metric.add_metric(labels, buckets, value.total)
    else:
        metric.add_metric(labels, float(value))  # type: ignore[arg-type]


class Exposition:
    """The text that is scraped, made once for each status however often it is asked for."""

    def __init__(self, read: Callable[[], Status | None], *, partitions: bool = True) -> None:
        self._read = read
        self._status: Status | None = None
        self._registry = CollectorRegistry()
        self._registry.register(StatusCollector(lambda: self._status, partitions=partitions))
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()
        self._texts: dict[str, bytes] = {}

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format that the ``Accept`` header asks for, and its name."""
        status = self._read()
        encode, content_type = choose_encoder(accept)
        with self._lock:
            if status is not self._status:
                self._status = status
                self._texts.clear()
            text = self._texts.get(content_type)
            if text is None:
                text = self._texts[content_type] = encode(self._registry)
        return text, content_type
