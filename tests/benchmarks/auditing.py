"""What `keyshared spark audit` takes over a log made to order, and what it finds in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafka_keyshared.lab.bench.processes import watched
from kafka_keyshared.spark.audit import RULES
from kafka_keyshared.spark.session import SparkOptions, start
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.cpu_meter import CpuMeter
from tests.support.planted_log import FAULTS, clean_log, planted

KEYSHARED = (sys.executable, "-m", "kafka_keyshared.cli")


def audited(log: Path, *more: str) -> dict[str, Any]:
    """Run the verb over a log; return what it told, its seconds and the memory it had at most."""
    began, meter = time.monotonic(), CpuMeter(os.getpid())
    command = [*KEYSHARED, "spark", "audit", str(log), "--json", *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with process, watched(process.pid) as peak:
        told = json.loads(process.communicate()[0])
    took = {
        "seconds": round(time.monotonic() - began, 1),
        "cpu": round(meter.seconds(), 1),
        "mib": peak.total() >> 20,
        "load": round(os.getloadavg()[0], 1),
    }
    return {**told, "took": took, "status": process.returncode}


def measure_audit(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """The verb over a log in Parquet: its seconds and the memory of its processes, at most."""
    del cluster
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        with start(SparkOptions("local[2]", driver_memory="2g")) as session:
            clean_log(session.spark, records).write.parquet(str(log))
        runs = []
        for _ in range(count):
            told = audited(log, "--driver-memory", "2g")
            if told["totals"]["produced"] != records or told["status"]:
                raise RuntimeError(f"{told}")
            runs.append(told["took"])
    return {"runs": runs}


def measure_planted(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """What the verb finds in a clean log, and in one with each fault in a partition of its own."""
    del cluster, count
    found = {}
    with tempfile.TemporaryDirectory() as place:
        clean, broken = Path(place) / "clean", Path(place) / "broken"
        with start(SparkOptions("local[2]")) as session:
            rows = clean_log(session.spark, records)
            rows.write.parquet(str(clean))
            for partition, fault in enumerate(FAULTS, start=3):
                rows = planted(rows, fault, partition)
            rows.write.parquet(str(broken))
        for log, status, each in ((clean, 0, 0), (broken, 1, 1)):
            told = audited(log)
            counts = {rule: told[rule] for rule in RULES}
            if (told["status"], set(counts.values())) != (status, {each}):
                raise RuntimeError(f"{log.name}: {told}")
            found[log.name] = {**counts, **told["took"]}
    return found
