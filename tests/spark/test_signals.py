"""Signals that reach the whole process group of a run, as schedulers and terminals send them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import Eventually, filled, noted
from tests.support.spark_cluster import SHORT_LIVED

WITHIN = 300.0
"""Seconds for each step, where the machine has a lot of other work."""

HANDLER = """
import threading
from pathlib import Path

OUT = Path({out!r})

def handle(record):
    number = int(record.value())
    if number == 30:
        (OUT / "waits").touch()
        pause = threading.Event()
        while not (OUT / "released").exists():
            pause.wait(0.05)
    with (OUT / "noted" / f"{{record.partition()}}.txt").open("a") as file:
        file.write(f"{{record.key()!r}} {{number}} {{record.partition()}} {{record.offset()}}\\n")
"""


@pytest.mark.timeout(900)
def test_signals_to_the_process_group_let_the_batch_end_and_commit(
    spark_parts: None, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """GNU timeout and Airflow signal the group, and timeout signals its child twice."""
    filled(real_cluster, topic, 300)
    (tmp_path / "noted").mkdir()
    (tmp_path / "handlers.py").write_text(HANDLER.format(out=str(tmp_path)))
    out, err = tmp_path / "out", tmp_path / "err"
    command = ["spark", "run", str(tmp_path / "handlers.py:handle"), "-b", real_cluster.bootstrap]
    command += ["-t", topic, "-g", f"g-{topic}", "--from-beginning", "--workers", "4", "--json"]
    command += ["--master", "local[2]", "--batch-offsets", "40"]
    command += ["--spark-log", str(tmp_path / "spark.log")]
    with out.open("wb") as said, err.open("wb") as logged:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_keyshared.cli", *command],
            env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIVED},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=logged,
            start_new_session=True,
        )
    try:
        eventually(lambda: (tmp_path / "waits").exists() or process.poll() is not None, WITHIN)
        assert process.poll() is None, err.read_text()
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGINT)
        eventually(lambda: "stopping: " in err.read_text(), WITHIN)
        (tmp_path / "released").touch()
        status = process.wait(WITHIN)
    finally:
        process.kill()
        process.wait()
    assert status == 1, err.read_text()
    told = json.loads(out.read_text())
    assert (told["ended"], told["batches"]) == ("stopped", 1)
    assert told["records"] == len(noted(tmp_path / "noted")) > 30
    assert told["left"] == 300 - told["records"]
    assert "batch 1 committed: " in err.read_text()
    assert "Traceback" not in err.read_text()
    assert "stopped twice" not in err.read_text()
