"""Each benchmark runs once, tiny: what it measures is really done. Speed is for verify.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from confluent_kafka import Consumer, Message
from confluent_kafka.admin import AdminClient

from kafka_keyshared.config.keys import from_header
from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.lab.bench import noop
from kafka_keyshared.lab.bench.noop import NoopPlan, fill, measure
from kafka_keyshared.lab.bench.side import SideResult, Task, fails, handler_of, median_of
from kafka_keyshared.testing.clusters import jars
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks import verify
from tests.benchmarks.cases import Case, Floor
from tests.conftest import Eventually
from tests.support.live_cluster import read_all

BENCHES = [case for case in verify.CASES if isinstance(case.plan, NoopPlan)]
RECORDS = 4_000
FEW = 400


class FakeRecord:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


@pytest.mark.parametrize("case", BENCHES, ids=lambda case: case.name)
def test_a_benchmark_settles_and_commits_every_record(
    case: Case, embedded_cluster: Cluster
) -> None:
    assert isinstance(case.plan, NoopPlan)
    said: list[str] = []
    records = FEW if case.plan.one_in_flight_per_key else RECORDS
    plan = msgspec.structs.replace(case.plan, records=records, repeat=1)
    result = measure(plan, embedded_cluster, said.append)
    assert result["records"] == records
    assert result["kafka"] == "embedded"
    assert result["commits"] > 0
    assert result["median_batch"] > 0
    assert result["ratios"] == [result["ratio"]]
    assert result["bare_per_s"] > 0
    assert result["keyshared_per_s"] > 0
    offsets = [number // plan.partitions for number in range(records)]
    failing = sum(fails(offset, plan.fail_every) for offset in offsets) if plan.fail_every else 0
    assert result["failed_attempts"] == failing
    assert any("embedded Kafka" in line for line in said)
    # So small a run has nothing to say about speed, and the result says that.
    assert any("commit intervals" in reason for reason in result["suspect"])
    assert {floor.figure for floor in case.floors} <= result.keys()


def test_an_embedded_cluster_is_given_no_more_than_it_keeps(embedded_cluster: Cluster) -> None:
    fitting = NoopPlan(records=10_000_000).that_fits(embedded_cluster)
    assert fitting.records == 8 * noop.EMBEDDED_RECORDS_MAX
    large = NoopPlan(records=10_000_000, value_bytes=100_000).that_fits(embedded_cluster)
    assert large.records < 8 * 50
    assert NoopPlan(records=10).that_fits(embedded_cluster).records == 10


def test_without_java_the_embedded_cluster_is_measured_and_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent() -> Path:
        raise MissingPartError("no Java here")

    monkeypatch.setattr(jars, "java", absent)
    said: list[str] = []
    result = noop.measure_at(NoopPlan(records=1_000, repeat=1), None, said.append)
    assert result["kafka"] == "embedded"
    assert "1,000 records to bench-" in said[0]
    assert "embedded Kafka at" in said[0]


def test_on_a_real_cluster_the_topic_is_deleted_at_the_end(
    real_cluster: Cluster, eventually: Eventually
) -> None:
    said: list[str] = []
    result = noop.measure_at(
        NoopPlan(records=1_000, repeat=2, keys=3), real_cluster.bootstrap, said.append
    )
    assert result["kafka"] == "real"
    assert len(result["ratios"]) == 2
    (topic,) = {word.strip(",") for word in said[0].split() if word.startswith("bench-")}
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics, 30.0)


@pytest.mark.parametrize("workers", ["thread:2", "asyncio:100", "process:2"])
def test_the_empty_handler_is_measured_in_each_kind_of_pool(
    embedded_cluster: Cluster, workers: str
) -> None:
    plan = NoopPlan(records=1_000, repeat=1, workers=workers)
    result = measure(plan, embedded_cluster, lambda _: None)
    assert (result["records"], len(result["ratios"])) == (1_000, 1)


def test_null_keys_are_as_many_as_asked_for_and_in_every_partition(
    embedded_cluster: Cluster, topic: str
) -> None:
    plan = NoopPlan(records=2_000, partitions=4, keys=7, null_share=0.25)
    embedded_cluster.create_topic(topic, plan.partitions)
    fill(embedded_cluster.bootstrap, topic, plan)
    consumer = Consumer(
        {
            "bootstrap.servers": embedded_cluster.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < plan.records:
        found += consumer.consume(plan.records, 1.0)
    consumer.close()
    keyless = [record for record in found if record.key() is None]
    assert 400 < len(keyless) < 600
    assert {record.partition() for record in keyless} == {0, 1, 2, 3}
    assert {record.key() for record in found} == {None, *(b"key-%d" % n for n in range(7))}


def test_a_key_in_a_header_is_read_by_both_sides_unless_told_otherwise() -> None:
    def handler(side: Any, *, bare_reads: bool = True) -> Any:
        return handler_of(
            Task(
                side=side,
                bootstrap="",
                topic="",
                group="",
                records=1,
                key_header="key",
                bare_reads=bare_reads,
            )
        )

    record = Message(topic="t", headers=[("key", b"key-3")])
    handler("bare")(record)
    with pytest.raises(KeyError):
        handler("bare")(Message(topic="t", headers=[("other", b"key-3")]))
    assert handler("bare", bare_reads=False)(record) is None
    assert handler("keyshared")(record) is None, "there the layer reads it"


def test_keys_in_a_header_are_nowhere_else(embedded_cluster: Cluster, topic: str) -> None:
    plan = NoopPlan(records=400, partitions=2, keys=7, key="header", null_share=0.25)
    embedded_cluster.create_topic(topic, plan.partitions)
    fill(embedded_cluster.bootstrap, topic, plan)
    found = read_all(embedded_cluster, topic, plan.records)
    assert {record.key() for record in found} == {None}
    keys = {from_header("key")(cast(Any, record)) for record in found}
    assert keys == {None, *(b"key-%d" % number for number in range(7))}


def test_the_failing_handler_does_the_same_on_both_sides_but_raises_on_one() -> None:
    def task(side: Any) -> Task:
        return Task(side=side, bootstrap="", topic="t", group="g", records=1, fail_every=50)

    layer, bare = handler_of(task("keyshared")), handler_of(task("bare"))
    failing = next(offset for offset in range(1, 10_000) if fails(offset, 50))
    with pytest.raises(ValueError, match="fails once"):
        layer(FakeRecord(failing))
    assert layer(FakeRecord(failing)) is None
    assert layer(FakeRecord(failing + 1)) is None
    assert bare(FakeRecord(failing)) is None
    assert bare(FakeRecord(failing + 1)) is None


def test_the_failing_records_are_scattered_over_all_keys() -> None:
    numbers = [number for number in range(400_000) if fails(number // 8, 50)]
    assert 0.018 < len(numbers) / 400_000 < 0.022
    assert len({number % 1_000 for number in numbers}) == 1_000


def test_a_run_that_hardly_committed_is_no_measurement() -> None:
    def result(seconds: float, commits: int) -> SideResult:
        return SideResult(seconds=seconds, records=1, commits=commits, median_batch=1)

    noop.check_commits("bare", result(0.2, 1))
    noop.check_commits("bare", result(4.5, 3))
    for poor in (result(0.2, 0), result(4.5, 2)):
        with pytest.raises(KeySharedError, match="the bare side ran"):
            noop.check_commits("bare", poor)


def test_median_counts_fetches_not_records() -> None:
    assert median_of({}) == 0
    assert median_of({5: 1}) == 5
    assert median_of({1: 3, 2_000: 2}) == 1
    assert median_of({1: 2, 2_000: 3}) == 2_000


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (NoopPlan(records=0), "--records"),
        (NoopPlan(partitions=0), "--partitions"),
        (NoopPlan(keys=0), "--keys"),
        (NoopPlan(repeat=0), "--repeat"),
        (NoopPlan(value_bytes=-1), "--value-bytes"),
        (NoopPlan(null_share=1.5), "--null-share"),
        (NoopPlan(fail_every=-1), "--fail-every"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(plan: NoopPlan, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        plan.check()


def test_a_side_that_dies_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    task = Task(
        side="keyshared", bootstrap="x", topic="t", group="g", records=1, workers="thread:0"
    )
    with pytest.raises(KeySharedError, match="keyshared side ended with status 1"):
        noop.run_side(task)
    assert "at least 1 worker" in capfd.readouterr().err


def test_verify_judges_writes_its_reports_and_fails_for_a_missed_floor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    floors = (Floor("rate", 100), Floor("seconds", 3, at_most=True))
    good = Case("good", "a good one", floors, run=lambda _: {"rate": 100, "seconds": 3.0})
    slow = Case("slow", "a slow one", floors, run=lambda _: {"rate": 99, "seconds": 3.1})
    monkeypatch.setattr(verify, "CASES", (good, slow))
    report, page = tmp_path / "report.json", tmp_path / "report.md"
    files = ["--json", str(report), "--markdown", str(page)]
    assert verify.main([*files, "--case", "good"]) == 0
    assert json.loads(report.read_text())["cases"] == {"good": {"rate": 100, "seconds": 3.0}}
    assert verify.main(files) == 1
    assert json.loads(report.read_text())["missed"] == {"good": [], "slow": [">= 100", "<= 3"]}
    assert page.read_text().count("MISSED") == 2
    assert "| a slow one | rate | 99 |  |  | >= 100 |  | MISSED |" in capsys.readouterr().out
