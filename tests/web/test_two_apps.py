"""Two apps of one process in one Prometheus registry: their metrics differ in the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kafka_keyshared import ConfigError, KeyShared
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import running
from tests.support.live_cluster import client_conf, group_name, write

Eventually = Callable[..., None]

PROCESSED = "keyshared_records_processed_total"


def app_of(cluster: Cluster, group: str, topic: str, **options: Any) -> KeyShared:
    app = KeyShared(client_conf(cluster, group), [topic], workers=1, http_port=0, **options)
    app.handler(lambda record: None)
    return app


def families(registry: CollectorRegistry) -> list[Any]:
    """Return what a scrape of the registry has; a doubled family would be there twice."""
    return list(text_string_to_metric_families(generate_latest(registry).decode()))


def ok(found: list[Any]) -> list[tuple[str, float]]:
    """Return the group and the value of each sample of acknowledged records."""
    return [
        (sample.labels["group"], sample.value)
        for family in found
        for sample in family.samples
        if sample.name == PROCESSED and sample.labels["outcome"] == "ok"
    ]


def acknowledged(registry: CollectorRegistry) -> float:
    """Return how many records all groups have acknowledged."""
    return sum(value for _, value in ok(families(registry)))


def processed(found: list[Any]) -> dict[str, float]:
    """Return the acknowledged records of each group."""
    return dict(ok(found))


def test_two_running_apps_are_exported_from_one_registry(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"key-%d" % n, b"") for n in range(20)])
    one, other = group_name(), group_name()
    first = app_of(embedded_cluster, one, topic)
    second = app_of(embedded_cluster, other, topic, partition_metrics=False)
    registry = CollectorRegistry()
    registry.register(first.collector(second))
    with running(first), running(second):
        eventually(lambda: acknowledged(registry) == 40, 60)
        found = families(registry)
    assert processed(found) == {one: 20, other: 20}
    names = [family.name for family in found]
    assert len(names) == len(set(names))
    series = [(s.name, tuple(sorted(s.labels.items()))) for f in found for s in f.samples]
    assert len(series) == len(set(series))
    served = {family.name.removesuffix("_total") for family in FAMILIES}
    for family in found:
        if family.name in served:
            groups = {sample.labels["group"] for sample in family.samples}
            assert groups <= {one, other}
            by_partition = any("partition" in sample.labels for sample in family.samples)
            assert groups == ({one} if by_partition else groups), "the second app has left them out"


def test_an_app_that_has_not_started_keeps_no_other_from_being_exported() -> None:
    conf = {"bootstrap.servers": "localhost:1"}
    apps = [KeyShared({**conf, "group.id": group}, ["orders"]) for group in ("a", "b")]
    registry = CollectorRegistry()
    registry.register(apps[0].collector(apps[1]))
    assert [family.name for family in families(registry)] == ["keyshared_build_info"]


def test_two_apps_of_one_group_are_refused_because_their_metrics_are_the_same() -> None:
    conf = {"bootstrap.servers": "localhost:1", "group.id": "billing"}
    first, second = KeyShared(conf, ["orders"]), KeyShared(conf, ["payments"])
    with pytest.raises(ConfigError, match="two apps of group 'billing' have the same metrics"):
        first.collector(second)
