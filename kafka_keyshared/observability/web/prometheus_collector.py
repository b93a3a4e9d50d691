"""Prometheus metrics from statuses, without instruments in the record path.

prometheus-client's multiprocess mode is not used. One process owns all numbers, and its workers
report theirs with their results. A process may run instances of several groups. Every metric of an
instance therefore has the label ``group``, which :class:`StatusCollector` adds.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import NamedTuple

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

from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.observability.web.metric_family import MetricFamily
from kafka_keyshared.status import Distribution, Status

BUILD_INFO = "keyshared_build_info"
BUILD_LABELS = ("version", "python", "librdkafka")
BUILD_HELP = "Versions of the package, of Python and of librdkafka. The value is always 1."

GROUP_LABEL = "group"
"""The first label of every metric of an instance: its consumer group.

Statuses of two groups are in one metric family, because a registry refuses two families of one
name. The build info and the metrics of the process have no group.
"""


class MetricSource(NamedTuple):
    """An instance whose metrics are exported.

    ``partitions`` False leaves out the metrics that have one sample for each partition.
    """

    read: Callable[[], Status | None]
    partitions: bool = True


class StatusCollector(Collector):
    """Turns the statuses of instances into metrics; for any ``CollectorRegistry``.

    The instances are of different groups. Otherwise two samples would have the same labels.
    """

    def __init__(self, *sources: MetricSource) -> None:
        self._sources = sources
        partitions = any(each.partitions for each in sources)
        self._families = [each for each in FAMILIES if partitions or not each.by_partition]

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without samples, so that registering does not read a status."""
        for family in self._families:
            yield _metric(family)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric with its samples. Without any status, yield only the build info."""
        build = GaugeMetricFamily(BUILD_INFO, BUILD_HELP, labels=BUILD_LABELS)
        build.add_metric(
            [version("kafka-keyshared"), platform.python_version(), libversion()[0]], 1
        )
        yield build
        statuses = [(each.read(), each.partitions) for each in self._sources]
        if all(status is None for status, _ in statuses):
            return
        for family in self._families:
            metric = _metric(family)
            for status, partitions in statuses:
                if status is not None and (partitions or not family.by_partition):
                    for labels, value in family.read(status):
                        _add(metric, (status.group, *labels), value)
            yield metric


def _metric(
    family: MetricFamily,
) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    labels = (GROUP_LABEL, *family.labels)
    if family.kind == "counter":
        return CounterMetricFamily(family.name, family.help, labels=labels)
    if family.kind == "gauge":
        return GaugeMetricFamily(family.name, family.help, labels=labels)
    return HistogramMetricFamily(family.name, family.help, labels=labels)


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


SERVED_FOR = 0.1
"""Seconds for which a text is served again despite a newer status.

In a rebalance every status differs, as it includes the rebalance's duration. Formatting a thousand
partitions holds the interpreter for 50 ms, while handlers need it.
"""


FORMATS_MOST = 8
"""Maximum number of cached texts, the latest: a client may name any version of a format."""


class Exposition:
    """The scraped text, formatted once per status for any number of scrapes.

    A text younger than ``SERVED_FOR`` also serves a later status.
    """

    def __init__(
        self,
        read: Callable[[], Status | None],
        *,
        partitions: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._status: Status | None = None
        self._registry = CollectorRegistry()
        source = MetricSource(lambda: self._status, partitions)
        self._registry.register(StatusCollector(source))
        ProcessCollector(registry=self._registry)
        self._lock = threading.Lock()
        self._made: dict[str, _Made] = {}  # by format

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the format of the ``Accept`` header, and the format's name."""
        status, read_at = self._read(), self._clock()
        encode, content_type = choose_encoder(accept)
        with self._lock:
            made = self._made.get(content_type)
            if made is None or (status is not made.status and read_at - made.read_at >= SERVED_FOR):
                self._status = status
                made = _Made(encode(self._registry), status, read_at)
                self._made.pop(content_type, None)
                self._made[content_type] = made
                if len(self._made) > FORMATS_MOST:
                    del self._made[next(iter(self._made))]
        return made.text, content_type


class _Made(NamedTuple):
    """A text, its status, and when that was read."""

    text: bytes
    status: Status | None
    read_at: float
