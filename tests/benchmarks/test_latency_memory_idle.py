"""The benches of latency, memory and waiting run once, small, on an embedded and a real cluster."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from kafka_keyshared.lab.bench import idle, latency, memory, noop
from kafka_keyshared.lab.bench.common import run_child
from kafka_keyshared.lab.bench.idle import IdlePlan
from kafka_keyshared.lab.bench.latency import LatencyPlan
from kafka_keyshared.lab.bench.memory import MemoryPlan
from kafka_keyshared.lab.bench.paced import STAMP, Pace, Paced
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import verify
from tests.benchmarks.cases import Outcome
from tests.conftest import Eventually
from tests.support.cli import in_process

LATENCY = LatencyPlan(rate=400, seconds=2.0, warmup=0.5, repeat=1)
MEMORY = MemoryPlan(keys=20_000)
IDLE = IdlePlan(seconds=1.0)


def floors_of(name: str) -> set[str]:
    (case,) = [case for case in verify.CASES if case.name == name]
    return {floor.figure for floor in case.floors}


def expect_latency(result: dict[str, Any]) -> None:
    assert floors_of("latency") <= result.keys()
    assert result["records"] == result["seen_least"] > 0
    for side in ("bare", "keyshared"):
        assert 0 < result[f"{side}_p50_ms"] <= result[f"{side}_p99_ms"]
        assert result[f"{side}_cpu_share"] > 0
    difference = result["keyshared_p50_ms"] - result["bare_p50_ms"]
    assert result["added_p50_ms"] == pytest.approx(difference, abs=0.002)
    assert result["p99_ratio"] > 0
    assert result["repeat"] == len(result["added_p50s_ms"]) == 1


def expect_memory(result: dict[str, Any]) -> None:
    assert floors_of("memory") <= result.keys()
    assert 0 < result["before_mib"] < result["after_million_mib"]
    assert result["end_mib"] <= result["peak_mib"]
    assert len(result["curve_mib"]) == len(result["bare_curve_mib"]) == 10
    assert result["growth_mib"] == pytest.approx(
        result["end_mib"] - result["after_million_mib"], abs=0.11
    )
    assert result["bare_peak_mib"] > 0
    assert result["seconds"] > 0
    # So few keys have nothing to say, and the result says that.
    assert any("keys are few" in reason for reason in result["suspect"])


def expect_idle(result: dict[str, Any]) -> None:
    assert floors_of("idle") <= result.keys()
    assert result["blocked_records"] == idle.BLOCKED_RECORDS
    for who in ("bare", "idle", "blocked"):
        assert 0 < result[f"{who}_percent"] < 200
    assert any("are short" in reason for reason in result["suspect"])


def test_latency_is_measured_on_an_embedded_cluster(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    result = latency.measure(LATENCY, embedded_cluster, said.append)
    expect_latency(result)
    assert result["kafka"] == "embedded"
    assert "the same client settings" in said[0]
    assert "pair 1 of 1: bare p50" in said[-1]


def test_memory_is_measured_on_an_embedded_cluster(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    result = memory.measure(MEMORY, embedded_cluster, said.append)
    expect_memory(result)
    assert result["kafka"] == "embedded"
    assert "20,000 records, each with its own key" in said[0]


@pytest.mark.usefixtures("quick")
def test_waiting_is_measured_on_an_embedded_cluster(embedded_cluster: Cluster) -> None:
    said: list[str] = []
    result = idle.measure(IDLE, embedded_cluster, said.append)
    expect_idle(result)
    assert result["kafka"] == "embedded"
    assert "three consumers" in said[0]


def expect_skew(result: dict[str, Any]) -> None:
    assert [row["distribution"] for row in result["rows"]] == ["zipf:0.8"]
    assert result["rows"][0]["records"] == 200
    assert result["rows"][0]["makespan_s"] >= 200 * 0.002 / 16


VERBS: dict[str, tuple[tuple[object, ...], Callable[[dict[str, Any]], None]]] = {
    "latency": (("--rate", 400, "--seconds", 2, "--warmup", 0.5, "--repeat", 1), expect_latency),
    "memory": (("--keys", 20_000), expect_memory),
    "idle": (("--seconds", 1), expect_idle),
    "skew": (
        ("--records", 200, "--sleep-ms", 2, "--distributions", "zipf:0.8", "--repeat", 1),
        expect_skew,
    ),
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes before the seconds that count is left out."""
    monkeypatch.setattr(latency, "WARM_BROKER", 0.0)
    monkeypatch.setattr(idle, "CALM", 0.1)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("verb", VERBS)
def test_the_verb_prints_json_and_deletes_its_topics(
    verb: str,
    real_cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    eventually: Eventually,
) -> None:
    arguments, expect = VERBS[verb]
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    before = set(admin.list_topics(timeout=30).topics)
    ended = in_process(capsys, "bench", verb, *arguments, "-b", real_cluster.bootstrap, "--json")
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    expect(result)
    assert result["kafka"] == "real"
    assert all(f"suspect: {reason}" in ended.err for reason in result["suspect"])

    def no_topic_is_left() -> bool:
        new = set(admin.list_topics(timeout=10).topics) - before
        return not any(name.startswith("bench-") for name in new)

    eventually(no_topic_is_left, 60.0)


def test_verify_hands_each_plan_to_its_bench_and_repeats_only_pairs(
    monkeypatch: pytest.MonkeyPatch, embedded_cluster: Cluster
) -> None:
    asked: dict[str, Any] = {}

    def stand_in(name: str) -> Callable[..., dict[str, Any]]:
        def measure(plan: object, *_: object) -> dict[str, Any]:
            asked[name] = plan
            return {"bench": name}

        return measure

    for bench in (noop, latency, memory, idle):
        name = bench.__name__.rpartition(".")[2]
        monkeypatch.setattr(bench, "measure", stand_in(name))
    plans = {case.name: case.plan for case in verify.CASES if case.plan is not None}
    for name, bench_name in (
        ("empty", "noop"),
        ("latency", "latency"),
        ("memory", "memory"),
        ("idle", "idle"),
    ):
        result = verify.run_plan(plans[name], embedded_cluster, 2, verify.note)
        assert result == {"bench": bench_name}
    assert asked["noop"].repeat == asked["latency"].repeat == 2
    assert asked["memory"] == plans["memory"]
    assert asked["idle"] == plans["idle"]


def test_verify_shows_both_sides_of_what_has_two() -> None:
    found: dict[str, dict[str, Any]] = {
        "latency": {
            f"{side}_{figure}": f"{side} {figure}"
            for side in ("bare", "keyshared")
            for figure in ("p50_ms", "p99_ms", "cpu_share")
        },
        "memory": {
            f"{side}{figure}": f"{side}{figure}"
            for side in ("bare_", "")
            for figure in ("peak_mib", "growth_mib", "seconds")
        },
        "idle": {"bare_percent": 0.2},
    }
    cases = {case.name: case for case in verify.CASES}
    page = verify.details([Outcome(cases[name], each) for name, each in found.items()])
    assert "| p50_ms | bare p50_ms | keyshared p50_ms |" in page
    assert "| peak_mib | bare_peak_mib | peak_mib |" in page
    assert len(page.splitlines()) == 2 + 3 + 3
    assert verify.details([]) == ""


def test_the_producer_sends_by_schedule_and_keeps_a_key_in_one_partition(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 4)
    pace = Pace(
        bootstrap=embedded_cluster.bootstrap,
        topic=topic,
        records=300,
        rate=1_000,
        skip=0,
        partitions=4,
        keys=30,
        value_bytes=50,
    )
    paced = run_child("paced", pace, Paced, "producer")
    assert 0 <= paced.late_p50_ms <= paced.late_p99_ms <= paced.late_max_ms
    consumer = Consumer(
        {
            "bootstrap.servers": embedded_cluster.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < pace.records:
        found += consumer.consume(pace.records, 1.0)
    consumer.close()
    assert {len(record.value()) for record in found} == {50}
    stamps = sorted(STAMP.unpack_from(record.value()) for record in found)
    assert [number for number, _ in stamps] == list(range(300))
    # By schedule, whenever the record really left: this is what makes the loop an open one.
    assert {due - stamps[0][1] - number * 1_000_000 for number, due in stamps} == {0}
    places = defaultdict(set)
    for record in found:
        places[record.key()].add(record.partition())
    assert len(places) == 30
    assert all(len(partitions) == 1 for partitions in places.values())
