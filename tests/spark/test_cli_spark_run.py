"""`keyshared spark run` as a user calls it: the flights, with the answer that pods give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_keyshared.lab.demo.expected import compare, expected, read_answers
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.spark_cluster import SHORT_LIVED

FLIGHTS = Path("examples/flights")


def keyshared(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafka_keyshared.cli", *arguments],
        env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIVED, **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.timeout(600)
def test_the_flights_on_spark_come_to_the_same_answer(
    spark_parts: None, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    loaded = keyshared("demo", "load", "-b", real_cluster.bootstrap, "-t", topic)
    assert loaded.returncode == 0, loaded.stderr
    handler, settings = f"{FLIGHTS / 'app.py'}:Flights", str(FLIGHTS / "keyshared.toml")
    run = keyshared(
        *("spark", "run", handler, "--config", settings, "-b", real_cluster.bootstrap),
        *("-t", topic, "-g", f"g-{topic}", "--dlq", f"{topic}.dlq", "--master", "local[2]"),
        *("--spark-log", str(tmp_path / "spark.log"), "--json"),
        # What tasks hand out is never the driver's to hold.
        *("--spark-conf", "spark.driver.maxResultSize=64m"),
        FLIGHTS_OUT=str(tmp_path),
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert (told["records"], told["dead_lettered"], told["left"]) == (362_891, 8_255, 0)
    assert compare(expected(), read_answers(tmp_path)) == []
    assert "its pages: http://127.0.0.1:" in run.stderr
    assert "batch 1 committed: 362,891 records" in run.stderr
