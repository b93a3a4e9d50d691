"""What fifty scrapes a second cost: the package with and without them, beside the bare loop.

As a program it is the scraper: ``python -m tests.benchmarks.scrapes PORT`` asks for ``/metrics``
fifty times a second until it is ended, and then prints how often it was answered.
"""

from __future__ import annotations

import http.client
import signal
import statistics
import sys
import threading
import time
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import Progress, topic_of_our_own
from kafka_keyshared.lab.bench.noop import NoopPlan, fill
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.benchmarks.disturbed import disturbed_by, rate_of, run_on

PER_SECOND = 50
SCRAPERS = 10
"""Connections: on a busy interpreter one answer takes longer than a fiftieth of a second."""

LEAST_SHARE = 0.8
"""So much of what was due must have been answered, or what was measured is not the load."""


def measure(
    plan: NoopPlan, cluster: Cluster, progress: Progress, *, least: float = PER_SECOND * LEAST_SHARE
) -> dict[str, Any]:
    """Return ``ratio_lost``: the median of how much the ratio falls by being scraped.

    ``least`` is the rate of answers below which there is nothing to judge.
    """
    lost, plain_ratios, scraped_ratios, rates = [], [], [], []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill(cluster.bootstrap, topic, plan)

        def seconds(side: str) -> float:
            return run_on(plan, cluster, topic, side).seconds

        def scraped() -> float:
            (port,) = free_ports(1)
            with disturbed_by("tests.benchmarks.scrapes", port) as said:
                took = run_on(plan, cluster, topic, http_port=port).seconds
            rates.append(float(said[0]))
            return took

        for number in range(plan.repeat):
            bare = seconds("bare")
            # In turn, so that the machine's moods hit both alike.
            if number % 2:
                with_scrapes, plain = scraped(), seconds("keyshared")
            else:
                plain, with_scrapes = seconds("keyshared"), scraped()
            plain_ratios.append(bare / plain)
            scraped_ratios.append(bare / with_scrapes)
            lost.append(plain_ratios[-1] - scraped_ratios[-1])
            progress(
                f"{number + 1} of {plan.repeat}: ratio {plain_ratios[-1]:.3f} alone, "
                f"{scraped_ratios[-1]:.3f} with {rates[-1]:.0f} scrapes/s"
            )
    if statistics.median(rates) < least:
        raise KeySharedError(f"only {statistics.median(rates):.1f} scrapes a second were answered")
    return {
        "ratio_lost": round(statistics.median(lost), 3),
        "ratio": round(statistics.median(plain_ratios), 3),
        "scraped_ratio": round(statistics.median(scraped_ratios), 3),
        "all_lost": [round(each, 3) for each in lost],
        "scrapes_per_s": round(statistics.median(rates), 1),
    }


def main(port: int) -> int:
    """Scrape until ended; print the rate of answers from the first to the last."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    answered: list[float] = []
    scrapers = [
        threading.Thread(target=scrape, args=(port, SCRAPERS / PER_SECOND, ended, answered))
        for _ in range(SCRAPERS)
    ]
    for scraper in scrapers:
        scraper.start()
    for scraper in scrapers:
        scraper.join()
    sys.stdout.write(f"{rate_of(answered):.2f}\n")
    return 0


def scrape(port: int, every: float, ended: threading.Event, answered: list[float]) -> None:
    """Ask every so many seconds, over one connection, as long as there is somebody."""
    connection: http.client.HTTPConnection | None = None
    while not ended.is_set():
        due = time.monotonic() + every
        try:
            connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/metrics")
            if connection.getresponse().read():
                answered.append(time.monotonic())
        except (OSError, http.client.HTTPException):
            connection = None  # not there yet, or not there any more
        ended.wait(max(0.0, due - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
