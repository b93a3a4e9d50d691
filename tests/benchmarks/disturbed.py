"""One side of a measurement, and a program that disturbs it meanwhile."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from kafka_keyshared.lab.bench.common import Progress
from kafka_keyshared.lab.bench.noop import NoopPlan, run_side
from kafka_keyshared.lab.bench.side import SideResult
from kafka_keyshared.testing.clusters.cluster import Cluster


def run_on(
    plan: NoopPlan,
    cluster: Cluster,
    topic: str,
    side: Any = "keyshared",
    *,
    http_port: int | None = None,
    console_port: int | None = None,
    group_view: str | None = None,
) -> SideResult:
    """Run a side over the topic once; with ports it serves there meanwhile.

    With ``group_view`` it tells that topic how it is.
    """
    served = {"http_port": http_port, "console_port": console_port, "group_view": group_view}
    return run_side(structs.replace(plan.task(side, cluster.bootstrap, topic), **served))


def lost_beside(
    plan: NoopPlan,
    alone: Callable[[], SideResult],
    beside: Callable[[], SideResult],
    progress: Progress,
    remark: Callable[[], str] = lambda: "",
) -> dict[str, Any]:
    """Return ``lost``: the median share of the throughput that what stands beside a run takes.

    And ``busier``: how much more processor time the process takes for the same records, as a share.
    Where it has an interpreter's lock to share that is what can be lost, and other work of the
    machine disturbs it less. ``remark`` is said of each pair as well.
    """
    lost, busier, rates = [], [], []
    for number in range(plan.repeat):
        # In turn, so that the machine's moods hit both alike.
        if number % 2:
            second = beside()
            first = alone()
        else:
            first = alone()
            second = beside()
        lost.append(1.0 - first.seconds / second.seconds)
        busier.append(second.processor / first.processor - 1.0)
        rates.append(plan.records / first.seconds)
        progress(
            f"{number + 1} of {plan.repeat}: {lost[-1]:.3f} lost, {busier[-1]:.3f} busier{remark()}"
        )
    return {
        "lost": round(statistics.median(lost), 3),
        "all_lost": [round(each, 3) for each in lost],
        "busier": round(statistics.median(busier), 3),
        "all_busier": [round(each, 3) for each in busier],
        "alone_per_s": round(statistics.median(rates)),
    }


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
