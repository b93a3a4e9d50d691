"""What it costs to be watched: the package with metrics, admin API and an open stream, and without.

As a program it is who watches: ``python -m tests.benchmarks.watched HTTP CONSOLE`` holds a stream
of snapshots open, asks for ``/metrics`` once a second until it is ended, and then prints how many
snapshots came.
"""

from __future__ import annotations

import http.client
import signal
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import Progress, topic_of_our_own
from kafka_keyshared.lab.bench.noop import NoopPlan, fill
from kafka_keyshared.lab.bench.side import SideResult
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.benchmarks.disturbed import disturbed_by, lost_beside, run_on


@dataclass(frozen=True, slots=True)
class WatchedPlan:
    """The empty handler with and without somebody who watches."""

    noop: NoopPlan


def measure(plan: NoopPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return what being watched takes, as :func:`.disturbed.lost_beside` does."""
    events: list[int] = []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill(cluster.bootstrap, topic, plan)

        def watched() -> SideResult:
            first, second = free_ports(2)
            with disturbed_by("tests.benchmarks.watched", first, second) as said:
                result = run_on(plan, cluster, topic, http_port=first, console_port=second)
            events.append(int(said[0]))
            return result

        found = lost_beside(
            plan,
            lambda: run_on(plan, cluster, topic),
            watched,
            progress,
            lambda: f", {events[-1]} snapshots",
        )
    if min(events) < 2:
        raise KeySharedError("nobody has watched: a stream brought no two snapshots")
    return found | {"snapshots": events}


def main(http_port: int, console_port: int) -> int:
    """Watch until ended; print how many snapshots came."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    came: list[int] = []
    for work in (lambda: stream(console_port, ended, came), lambda: scrape(http_port, ended)):
        threading.Thread(target=work, daemon=True).start()
    ended.wait()
    sys.stdout.write(f"{len(came)}\n")
    return 0


def stream(port: int, ended: threading.Event, came: list[int]) -> None:
    """Read snapshots as long as there is somebody who sends them."""
    while not ended.is_set():
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as asked:
            try:
                asked.request("GET", "/api/v1/stream")
                answer = asked.getresponse()
                while line := answer.readline():
                    if line.startswith(b"data: "):
                        came.append(len(line))
            except (OSError, http.client.HTTPException):
                ended.wait(0.1)  # not there yet, or not there any more


def scrape(port: int, ended: threading.Event) -> None:
    """Ask for the metrics once a second."""
    while not ended.wait(1.0):
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as asked:
            try:
                asked.request("GET", "/metrics")
                asked.getresponse().read()
            except (OSError, http.client.HTTPException):
                continue


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
