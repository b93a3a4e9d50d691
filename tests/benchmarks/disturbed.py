"""One side of a measurement, and a program that disturbs it meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_keyshared.bench.common import group_of
from kafka_keyshared.bench.noop import NoopPlan, run_side
from kafka_keyshared.bench.side import Result, Task
from kafka_keyshared.local.cluster import Cluster


def run_on(
    plan: NoopPlan,
    cluster: Cluster,
    topic: str,
    side: Any = "keyshared",
    *,
    http_port: int | None = None,
    console_port: int | None = None,
    beats: str | None = None,
) -> Result:
    """Run a side over the topic once; with ports it serves there meanwhile.

    With ``beats`` it tells that topic how it is.
    """
    return run_side(
        Task(
            side=side,
            bootstrap=cluster.bootstrap,
            topic=topic,
            group=group_of(side),
            records=plan.records,
            workers=plan.workers,
            http_port=http_port,
            console_port=console_port,
            beats=beats,
        )
    )


@contextmanager
def disturbed_by(module: str, *told: int | str, within: float = 30.0) -> Iterator[list[str]]:
    """Run a module of the benchmarks beside the block, with these words (mostly ports).

    It is ended with SIGTERM, has ``within`` seconds for that, and what it says then, word by word,
    is in the list behind the block.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, told)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    said: list[str] = []
    try:
        yield said
    finally:
        process.send_signal(signal.SIGTERM)
        said += process.communicate(timeout=within)[0].split()


def rate_of(answered: Sequence[float]) -> float:
    """Return how many answers a second there were, from the first moment to the last."""
    lasted = max(answered) - min(answered) if len(answered) > 1 else 0.0
    return (len(answered) - 1) / lasted if lasted else 0.0
