"""What ``keyshared advise`` takes for a topic in which every record has a key of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import Progress, key_of, produce_all, topic_of_our_own
from kafka_keyshared.testing.clusters.cluster import Cluster

TIMEOUT = 300.0

# The process tells what it held at most: what its parent is told begins with the parent's own.
_PROGRAM = """
import sys
from kafka_keyshared.lab.bench.memory_side import peak_mib
from kafka_keyshared.cli import main
status = main()
sys.stderr.write(f"peak {peak_mib()}")
sys.exit(status)
"""


@dataclass(frozen=True, slots=True)
class AdvisePlan:
    """How many records there are; each has its own key, the worst case for memory."""

    records: int = 1_000_000
    partitions: int = 16
    value_bytes: int = 100


def measure(plan: AdvisePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the seconds from the start of the process to its end, and the most it held.

    Raises :class:`KeySharedError` when it failed or did not count every record and key.
    """
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        progress(f"producing {plan.records:,} records, each with its own key")
        keys = map(key_of, range(plan.records))
        produce_all(cluster.bootstrap, topic, keys, plan.partitions, plan.value_bytes)
        return measured(cluster.bootstrap, topic, plan.records)


def measured(bootstrap: str, topic: str, records: int) -> dict[str, Any]:
    """Run it once on a topic with so many records and keys."""
    command = [sys.executable, "-c", _PROGRAM, "advise", "-b", bootstrap, "-t", topic, "--json"]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise KeySharedError(f"advise ended with status {done.returncode}: {done.stderr}")
    found = json.loads(done.stdout)
    counted = (found["records"], found["keys"], found["complete"])
    if counted != (records, records, True):
        raise KeySharedError(f"of {records:,} records it counted {counted}")
    return {
        "seconds": round(seconds, 2),
        "reading_s": found["seconds"],
        "peak_mib": round(float(done.stderr.rpartition("peak ")[2]), 1),
        "records": records,
        "keys": found["keys"],
    }
