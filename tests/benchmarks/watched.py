"""What it costs to be watched: the package with metrics, admin API and an open stream, and without.

As a program it is who watches: ``python -m tests.benchmarks.watched HTTP CONSOLE`` holds a stream
of snapshots open, asks for ``/metrics`` once a second until it is ended, and then prints how many
snapshots came.
"""

from __future__ import annotations

import http.client
import signal
import statistics
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.bench.common import Progress, topic_of_our_own
from kafka_keyshared.bench.noop import NoopPlan, fill
from kafka_keyshared.bench.side import Result
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.local.node import free_ports
from tests.benchmarks.disturbed import disturbed_by, run_on


@dataclass(frozen=True, slots=True)
class WatchedPlan:
    """The empty handler with and without somebody who watches."""

    noop: NoopPlan


def measure(plan: NoopPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return ``lost``: the median share of the throughput that being watched takes.

    And ``busier``: how much more processor time the process takes for the same records, as a share.
    Where it has an interpreter's lock to share that is what can be lost, and other work of the
    machine disturbs it less.
    """
    lost, busier, rates, events = [], [], [], []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill(cluster.bootstrap, topic, plan)

        def watched() -> Result:
            first, second = free_ports(2)
            with disturbed_by("tests.benchmarks.watched", first, second) as said:
                result = run_on(plan, cluster, topic, http_port=first, console_port=second)
            events.append(int(said[0]))
            return result

        for number in range(plan.repeat):
            # In turn, so that the machine's moods hit both alike.
            if number % 2:
                with_them = watched()
                alone = run_on(plan, cluster, topic)
            else:
                alone = run_on(plan, cluster, topic)
                with_them = watched()
            lost.append(1.0 - alone.seconds / with_them.seconds)
            busier.append(with_them.processor / alone.processor - 1.0)
            rates.append(plan.records / alone.seconds)
            progress(
                f"{number + 1} of {plan.repeat}: {lost[-1]:.3f} lost, {busier[-1]:.3f} busier, "
                f"{events[-1]} snapshots"
            )
    if min(events) < 2:
        raise KeySharedError("nobody has watched: a stream brought no two snapshots")
    return {
        "lost": round(statistics.median(lost), 3),
        "all_lost": [round(each, 3) for each in lost],
        "busier": round(statistics.median(busier), 3),
        "all_busier": [round(each, 3) for each in busier],
        "alone_per_s": round(statistics.median(rates)),
        "snapshots": events,
    }


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
