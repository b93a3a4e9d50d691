"""How long a command takes to begin: ``--help`` of every verb, and ``run`` to its first record.

As a program it is the bare consumer beside ``run``: ``start.py CONF TOPIC`` takes one record.
"""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Consumer

from kafka_keyshared.config import client_conf
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.child import Side
from kafka_keyshared.lab.bench.common import (
    Progress,
    group_of,
    produce_all,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.testing.clusters.cluster import Cluster

KEYSHARED = (sys.executable, "-m", "kafka_keyshared.cli")
TIMEOUT = 120.0
HELP_RUNS = 5
PARTITIONS = 4

# Both sides tell the moment of the record by the clock that all processes of a machine share.
_HANDLER = """
import sys, time

def handle(record):
    sys.stdout.write(f"{time.monotonic_ns()}\\n")
    sys.stdout.flush()
"""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """From the start of the process to the first call of the handler, ``repeat`` times."""

    repeat: int = 5


def measure(plan: StartPlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the medians of ``keyshared run`` and of a bare consumer with the same settings.

    Each takes one record that is there, in a group that is new, on a broker that has done so
    before. Raises :class:`KeySharedError` when a side ends without a record.
    """
    times: dict[Side, list[float]] = {"bare": [], "keyshared": []}
    with (
        topic_of_our_own(cluster, PARTITIONS, progress) as topic,
        TemporaryDirectory(prefix="keyshared-start-") as place,
    ):
        app = Path(place) / "starting.py"
        app.write_text(_HANDLER)
        produce_all(cluster.bootstrap, topic, [b"key"], PARTITIONS, 10)
        sides: dict[Side, Callable[[], float]] = {
            "bare": lambda: _seconds_of(_bare(cluster.bootstrap, topic)),
            "keyshared": lambda: _seconds_of(_keyshared(cluster.bootstrap, topic, app)),
        }
        for pair in range(-1, plan.repeat):
            for side in sides_of(pair % 2):
                seconds = sides[side]()
                if pair >= 0:  # the first of each warms the broker, and the files of this machine
                    times[side].append(seconds)
            if pair >= 0:
                told = ", ".join(f"{side} {took[-1]:.3f} s" for side, took in times.items())
                progress(f"pair {pair + 1} of {plan.repeat}: {told}")
    medians = {side: round(statistics.median(took), 3) for side, took in times.items()}
    return {
        "bare_s": medians["bare"],
        "keyshared_s": medians["keyshared"],
        "slowest_s": round(max(times["keyshared"]), 3),
        "repeat": plan.repeat,
        "kafka": cluster.kind,
    }


def _keyshared(bootstrap: str, topic: str, app: Path) -> list[str]:
    named = ["run", f"{app}:handle", "-b", bootstrap, "-t", topic, "-g", group_of("start")]
    return [*KEYSHARED, *named, "-X", "auto.offset.reset=earliest"]


def _bare(bootstrap: str, topic: str) -> list[str]:
    asked = {"bootstrap.servers": bootstrap, "group.id": group_of("bare")}
    # With the package's own defaults: a plain client waits longer for its first record.
    conf = client_conf({**asked, "auto.offset.reset": "earliest"})
    return [sys.executable, __file__, json.dumps(conf), topic]


def _seconds_of(command: Sequence[str]) -> float:
    """Return how long it took from before the process was started to its first record."""
    started = time.monotonic_ns()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            told = process.stdout.readline() if process.stdout is not None else ""
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    if not told.strip().isdecimal():
        raise KeySharedError(f"{' '.join(command[:5])}: it ended without a record:\n{said}")
    return (int(told) - started) / 1e9


def take_one(conf: dict[str, Any], topic: str) -> int:
    """Take one record and return when it came."""
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            came = time.monotonic_ns()
            consumer.close()
            return came


# --- help ---


def verbs() -> list[tuple[str, ...]]:
    """Return every verb of the command line, the bare command first."""
    from typer.main import get_command

    from kafka_keyshared.cli.app import app

    def below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, (*words, name))

    return list(below(get_command(app), ()))


def measure_help(
    repeat: int | None, asked: Sequence[tuple[str, ...]] | None = None
) -> dict[str, Any]:
    """Time ``--help`` of every verb, from the start of the process to its end.

    ``median_s`` is that of the bare command, ``worst_s`` the median of the slowest verb.
    """
    medians: dict[str, float] = {}
    for verb in verbs() if asked is None else asked:
        times = []
        for _ in range(repeat or HELP_RUNS):
            started = time.perf_counter()
            subprocess.run(
                [*KEYSHARED, *verb, "--help"],
                stdout=subprocess.DEVNULL,
                check=True,
                timeout=TIMEOUT,
            )
            times.append(time.perf_counter() - started)
        medians[" ".join(verb)] = round(statistics.median(times), 3)
    worst = max(medians, key=medians.__getitem__)
    return {
        "median_s": medians[""],
        "worst_s": medians[worst],
        "worst_verb": worst,
        "verbs": len(medians),
        "medians_s": medians,
    }


if __name__ == "__main__":
    sys.stdout.write(f"{take_one(json.loads(sys.argv[1]), sys.argv[2])}\n")
