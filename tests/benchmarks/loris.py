"""What a hundred scrapes a second and clients that never ask cost: the package with and without.

Both take processor time of their own wherever they are aimed, and the machine has two cores; so the
same clients are also aimed at a process that answers a page out of a can, while the instance is
asked nothing. What an instance that is asked does beside that one is what it can help itself, and
what is judged.

As a program it is who does that: ``python -m tests.benchmarks.loris HTTP CONSOLE WHAT...`` scrapes,
with ``scrapes`` among the words, and with ``slow`` holds connections open over which a request
comes byte by byte, until it is ended; then it prints the rate of answers, how many connections were
opened, and its processor time.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import Progress, topic_of_our_own
from kafka_keyshared.lab.bench.noop import NoopPlan, fill
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
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

SCRAPES, SLOW = "scrapes", "slow"
ALONE, BOTH, ELSEWHERE = "alone", "both", "elsewhere"
PARTS = {
    ALONE: (),
    SCRAPES: (SCRAPES,),
    SLOW: (SLOW,),
    BOTH: (SCRAPES, SLOW),
    ELSEWHERE: (SCRAPES, SLOW),
}
"""What there is beside the instance in each part of a round."""


@dataclass(slots=True)
class Took:
    """The runs of one part: seconds, processor time of the instance, and how it was disturbed.

    ``clients`` is the processor time of those who did.
    """

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    clients: list[float] = field(default_factory=list)


def measure(
    plan: NoopPlan, cluster: Cluster, progress: Progress, *, least: float = PER_SECOND * LEAST_SHARE
) -> dict[str, Any]:
    """Return ``ratio``: the median of the throughput of an instance that is asked by all of them,
    over that of one beside which they ask somebody else.

    ``left`` is the same over an instance beside which nobody asks anything, for each part.
    ``least`` is the rate of answers below which there is nothing to judge.
    """
    took = {part: Took() for part in PARTS}
    with topic_of_our_own(cluster, plan.partitions, progress) as topic:
        fill(cluster.bootstrap, topic, plan)
        for number in range(plan.repeat):
            # Each is first in turn, so that the machine's moods hit all alike.
            first = number % len(PARTS)
            for part in [*PARTS][first:] + [*PARTS][:first]:
                _run(plan, cluster, topic, part, took[part])
            progress(f"{number + 1} of {plan.repeat}: {_said(took)}")
    for part, words in PARTS.items():
        if SCRAPES in words and statistics.median(took[part].rates) < least:
            raise KeySharedError(f"too little has disturbed it: {took[part].rates} scrapes/s")
        if SLOW in words and min(took[part].opened) < SLOW_CLIENTS:
            raise KeySharedError(f"too little has disturbed it: {took[part].opened} opened")
    judged = _ratios(took[ELSEWHERE], took[BOTH])
    return {
        "ratio": round(statistics.median(judged), 3),
        "all_ratios": [round(each, 3) for each in judged],
        "left": {
            part: [round(each, 3) for each in sorted(_ratios(took[ALONE], took[part]))]
            for part in PARTS
            if part != ALONE
        },
        "seconds": {part: round(statistics.median(of.seconds), 2) for part, of in took.items()},
        "processor_s": {
            part: round(statistics.median(of.processor), 2) for part, of in took.items()
        },
        "clients_s": round(statistics.median(took[BOTH].clients), 2),
        "scrapes_per_s": round(statistics.median(took[BOTH].rates), 1),
        "connections": round(statistics.median(took[BOTH].opened)),
    }


def _run(plan: NoopPlan, cluster: Cluster, topic: str, part: str, took: Took) -> None:
    """Run one part of a round."""
    words = PARTS[part]
    first, second = free_ports(2)
    with contextlib.ExitStack() as beside:
        if part == ELSEWHERE:
            beside.enter_context(disturbed_by("tests.benchmarks.canned", first, second))
        asked = words and part != ELSEWHERE
        said: Sequence[str] = ()
        if words:
            said = beside.enter_context(
                disturbed_by("tests.benchmarks.loris", first, second, *words, within=60.0)
            )
        result = run_on(
            plan,
            cluster,
            topic,
            http_port=first if asked else None,
            console_port=second if asked else None,
        )
    took.seconds.append(result.seconds)
    took.processor.append(result.processor)
    if words:
        rate, opened, busy = said
        took.rates.append(float(rate))
        took.opened.append(int(opened))
        took.clients.append(float(busy))


def _ratios(without: Took, within: Took) -> list[float]:
    return [one / two for one, two in zip(without.seconds, within.seconds, strict=True)]


def _said(took: dict[str, Took]) -> str:
    parts = [f"{part} {of.seconds[-1]:.2f} s" for part, of in took.items()]
    both = took[BOTH]
    return f"{', '.join(parts)}; {both.rates[-1]:.0f} scrapes/s and {both.opened[-1]} connections"


def main(http_port: int, console_port: int, words: Sequence[str]) -> int:
    """Disturb until ended; print the rate of answers, connections opened, and processor time."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    answered: list[float] = []
    opened: list[int] = []
    threads = []
    if SCRAPES in words:
        threads += [
            threading.Thread(
                target=scrape, args=(http_port, SCRAPERS / PER_SECOND, ended, answered)
            )
            for _ in range(SCRAPERS)
        ]
    if SLOW in words:
        threads += [
            threading.Thread(target=drip, args=(port, ended, opened))
            for port in (http_port, console_port)
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(f"{rate_of(answered):.2f} {len(opened)} {time.process_time():.2f}\n")
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
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
