"""What a hundred scrapes a second and clients that never ask cost: the package with and without.

As a program it is who does that: ``python tests/benchmarks/loris.py HTTP CONSOLE`` scrapes, and
holds connections open over which a request comes byte by byte, until it is ended; then it prints
the rate of answers, and how many connections were opened.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import statistics
import sys
import threading
from typing import Any

from kafka_keyshared.bench.common import Progress, topic_of_our_own
from kafka_keyshared.bench.noop import NoopPlan, fill
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.local.node import free_ports
from tests.benchmarks.disturbed import disturbed_by, rate_of, run_on
from tests.benchmarks.scrapes import scrape

PER_SECOND = 100
SCRAPERS = 20
LEAST_SHARE = 0.5
"""So much of what was due must have been answered, or what was measured is not the load."""

SLOW_CLIENTS = 120
"""More than either port waits for at once."""

DRIP_EVERY = 1.0
"""Seconds between two bytes of each."""


def measure(
    plan: NoopPlan, cluster: Cluster, progress: Progress, *, least: float = PER_SECOND * LEAST_SHARE
) -> dict[str, Any]:
    """Return ``ratio``: the median of the throughput with them over that without, side by side.

    ``least`` is the rate of answers below which there is nothing to judge.
    """
    ratios, rates, opened = [], [], []
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill(cluster.bootstrap, topic, plan)

        def disturbed() -> float:
            first, second = free_ports(2)
            with disturbed_by("tests.benchmarks.loris", first, second, within=60.0) as said:
                took = run_on(plan, cluster, topic, http_port=first, console_port=second).seconds
            rates.append(float(said[0]))
            opened.append(int(said[1]))
            return took

        def plain() -> float:
            return run_on(plan, cluster, topic).seconds

        for number in range(plan.repeat):
            # In turn, so that the machine's moods hit both alike.
            if number % 2:
                with_them, alone = disturbed(), plain()
            else:
                alone, with_them = plain(), disturbed()
            ratios.append(alone / with_them)
            progress(
                f"{number + 1} of {plan.repeat}: {ratios[-1]:.3f} of it with {rates[-1]:.0f} "
                f"scrapes/s and {opened[-1]} connections"
            )
    if statistics.median(rates) < least or min(opened) < SLOW_CLIENTS:
        raise KeySharedError(f"too little has disturbed it: {rates} scrapes/s, {opened} opened")
    return {
        "ratio": round(statistics.median(ratios), 3),
        "all_ratios": [round(each, 3) for each in ratios],
        "scrapes_per_s": round(statistics.median(rates), 1),
        "connections": round(statistics.median(opened)),
    }


def main(http_port: int, console_port: int) -> int:
    """Disturb until ended; print the rate of answers and how many connections were opened."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    answered: list[float] = []
    opened: list[int] = []
    threads = [
        *(
            threading.Thread(
                target=scrape, args=(http_port, SCRAPERS / PER_SECOND, ended, answered)
            )
            for _ in range(SCRAPERS)
        ),
        *(
            threading.Thread(target=drip, args=(port, ended, opened))
            for port in (http_port, console_port)
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(f"{rate_of(answered):.2f} {len(opened)}\n")
    return 0


def drip(port: int, ended: threading.Event, opened: list[int]) -> None:
    """Hold so many connections open, a byte a second on each; open those again that were ended."""
    with contextlib.ExitStack() as stack:
        held: list[socket.socket] = []
        while not ended.wait(DRIP_EVERY):
            for each in held[:]:
                try:
                    each.sendall(b"x")
                except OSError:
                    held.remove(each)
                    each.close()
            while len(held) < SLOW_CLIENTS:
                try:
                    asked = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                    asked.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: ")
                except OSError:
                    break  # not there yet, or not there any more
                held.append(asked)
                opened.append(port)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
