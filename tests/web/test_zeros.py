"""Every counter is there before its first event: one that appears with 1 has not grown.

Prometheus' ``increase()`` sees how a series grows from one scrape to the next, so the first failure
of a series that begins with it is the one that nobody is told of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from kafka_keyshared import KeyShared
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.http_scrapes import Samples, running, scraped
from tests.support.live_cluster import client_conf, group_name

Eventually = Callable[..., None]

PROCESSED = ("ok", "dropped", "dead_lettered", "diverted", "skipped", "unmatched")
ATTEMPTS = ("ok", "dropped", "failed", "timed_out")
COMMITS = ("accepted", "retry", "too_large", "lost", "denied")
WORKERS = ("worker-0", "worker-1")


def known(topics: Iterable[str]) -> dict[str, set[tuple[str, ...]]]:
    """Every counter, with what its labels can be known to say; in the order of their names."""
    topic: set[tuple[str, ...]] = {(each,) for each in topics}
    worker: set[tuple[str, ...]] = {(each,) for each in WORKERS}
    alone: set[tuple[str, ...]] = {()}
    return {
        "keyshared_records_fetched_total": topic,
        "keyshared_records_processed_total": set(product(PROCESSED, topics)),
        "keyshared_attempts_total": set(product(ATTEMPTS, topics)),
        "keyshared_keyless_records_total": topic,
        "keyshared_undecodable_records_total": topic,
        "keyshared_record_retries_total": set(product(("Retry", "other"), topics)),
        "keyshared_dlq_writes_total": set(product(("acknowledged", "failed"), topics)),
        "keyshared_drained_slots_total": alone,
        "keyshared_records_detached_total": alone,
        "keyshared_commits_total": {(each,) for each in COMMITS},
        "keyshared_worker_busy_seconds_total": worker,
        "keyshared_worker_starved_seconds_total": worker,
        "keyshared_worker_restarts_total": worker,
        "keyshared_worker_dropped_records_total": worker,
        "keyshared_records_stuck_total": alone,
        "keyshared_late_acks_total": alone,
        "keyshared_written_off_records_total": alone,
        "keyshared_paused_seconds_total": alone,
        "keyshared_partition_stalls_total": topic,
        "keyshared_rebalances_total": {("assigned",), ("revoked",), ("lost",)},
        "keyshared_stale_results_total": alone,
        "keyshared_instance_reports_total": {("written",), ("failed",)},
        "keyshared_rdkafka_rebalances_total": alone,
    }


MOVED_BY_STARTING = {
    ("keyshared_rebalances_total", ("assigned",)),
    ("keyshared_rdkafka_rebalances_total", ()),
    *(("keyshared_worker_starved_seconds_total", (each,)) for each in WORKERS),
}
"""An empty topic is assigned, too, and while nothing comes the workers have nothing to do."""


def exposed(found: Samples, name: str) -> set[tuple[str, ...]]:
    return {labels for each, labels in found if each == name}


def test_every_counter_is_there_at_0_before_the_first_record(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    names = (topic, f"{topic}-more")
    for name in names:
        embedded_cluster.create_topic(name, 2)
    app = KeyShared(
        client_conf(embedded_cluster, group_name()), [topic, f"^{topic}-m"], workers=2, http_port=0
    )
    app.handler(lambda record: None)
    with running(app) as url:
        eventually(lambda: ("keyshared_start_time_seconds", ()) in scraped(url), 60)
        found = scraped(url)
    expected = known(names)
    for family in FAMILIES:
        if family.kind != "counter":
            continue
        assert exposed(found, family.name) == expected.pop(family.name), family.name
        for labels in exposed(found, family.name):
            if (family.name, labels) not in MOVED_BY_STARTING:
                assert found[family.name, labels] == 0, (family.name, labels)
    assert not expected, "there are no such counters any more"
