"""Skew counts by key and slot what there is, as advise counts it, and time from the log."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kafka_keyshared.cli import spark_tools
from kafka_keyshared.cli.weights import read_weights
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.spark.session import Session
from kafka_keyshared.spark.skew import measure
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import PARTITIONS, produce
from tests.support.cli import in_process


def test_records_bytes_and_seconds_are_counted_by_key_and_slot(session: Session) -> None:
    keys: list[bytes | None] = [b"key-%d" % (number**2 % 97) for number in range(900)]
    keys += [None] * 30
    spark = session.spark
    source = spark.createDataFrame([(key, 10) for key in keys], "key binary, bytes bigint")
    rows = spark.createDataFrame(
        [
            ("handled", b"key-1", 0, 2_000_000_000, 1),
            ("handled", b"key-1", 0, 1_000_000_000, 2),
            ("dead_lettered", b"key-1", 0, 9_000_000_000, None),
        ],
        "event string, key binary, started bigint, ended bigint, attempt int",
    )
    found = measure(source, rows)
    keyed = [key for key in keys if key is not None]
    assert found.keys == len(set(keyed))
    assert found.slots["records"] == Counter(map(slot_of, keyed))
    assert found.totals == {"records": 930, "bytes": 9_300, "seconds": 3}
    assert found.keyless == {"records": 30, "bytes": 300, "seconds": 0}
    most = Counter(keyed).most_common(1)[0]
    assert found.heaviest["records"][0]["records"] == most[1]
    assert [each["key"] for each in found.heaviest["seconds"]] == ["key-1"]
    assert found.slots["seconds"][slot_of(b"key-1")] == 3


def test_the_verb_agrees_with_advise_and_its_weights_are_loaded(  # noqa: PLR0917
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As it is typed; but the Spark is the one that runs already."""
    monkeypatch.setattr(spark_tools, "start", lambda _: nullcontext(session))
    real_cluster.create_topic(topic, PARTITIONS)
    produce(real_cluster, topic, (number**2 for number in range(500)), keys=23)
    weights, out = tmp_path / "weights.json", tmp_path / "out"
    where = ("-b", real_cluster.bootstrap, "-t", topic, "--json")
    more = ("--workers", "4", "--weights-file", weights, "--out", out)
    status, printed, _ = in_process(capsys, "spark", "skew", *where, *more)
    assert status == 0
    found = json.loads(printed)
    status, printed, _ = in_process(capsys, "advise", *where)
    assert status == 0
    advised = json.loads(printed)
    assert (found["keys"], found["totals"]["records"]) == (advised["keys"], advised["records"])
    assert found["heaviest_keys"][0]["records"] == advised["hottest_keys"][0]["records"]
    assert found["workers"]["4"]["speedup"] == pytest.approx(advised["speedup"]["4"], rel=0.001)
    assert json.loads((out / "skew.json").read_text()) == found
    assert (out / "skew.svg").read_text().startswith("<svg")
    assert read_weights(weights) == found["weights"]
