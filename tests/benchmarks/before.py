"""The empty handler in two checkouts, in turn within one run.

Each side is a process of its own, as in ``bench noop``. The side of the other checkout imports the
package from there, so both trees meet the same broker, topic and hour. In each round every side
runs once, in an order that changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

import kafka_keyshared
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.common import Progress, topic_of_our_own
from kafka_keyshared.lab.bench.figures import median, spread
from kafka_keyshared.lab.bench.noop import (
    NoopPlan,
    check_commits,
    fill,
    run_side,
    short_runs,
    slow_bare,
)
from kafka_keyshared.lab.bench.side import SideResult
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.cases import OnCluster

HERE = Path(kafka_keyshared.__file__).resolve().parents[1]
"""The tree that this process has imported."""

BARE, BEFORE, NOW = "bare", "before", "now"
IMPORTED = "import kafka_keyshared.lab.bench.side as side; print(side.__file__)"
IMPORT_TIMEOUT = 60.0


@contextmanager
def in_tree(tree: Path) -> Iterator[None]:
    """Have child processes import the package from this checkout."""
    # Both: "python -m" looks into the working directory first, then into PYTHONPATH.
    with chdir(tree), mock.patch.dict(os.environ, PYTHONPATH=str(tree)):
        yield


def require_tree(tree: Path) -> Path:
    """Return the absolute path of a checkout.

    Raises :class:`KeySharedError` where a child process there imports another package.
    """
    tree = tree.resolve()
    if not tree.is_dir():
        raise KeySharedError(f"--before {tree}: not a directory")
    with in_tree(tree):
        done = subprocess.run(
            [sys.executable, "-c", IMPORTED],
            capture_output=True,
            text=True,
            check=False,
            timeout=IMPORT_TIMEOUT,
        )
    if not Path(done.stdout.strip() or "/").is_relative_to(tree):
        raise KeySharedError(f"--before {tree}: kafka_keyshared is not imported from there")
    return tree


@dataclass(frozen=True, slots=True)
class BeforePlan(OnCluster):
    """The empty handler, now and ``before``, which is a checkout; with ``bare`` the bare loop too.

    The other numbers are those of ``noop``.
    """

    noop: NoopPlan
    bare: bool = True
    before: Path | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the sides of a round."""
        return (BARE, BEFORE, NOW) if self.bare else (BEFORE, NOW)

    def measure(self, cluster: Cluster, repeat: int | None, progress: Progress) -> dict[str, Any]:
        """Return the throughput as a share of what it was before, in medians over rounds.

        Raises :class:`KeySharedError` where ``before`` is no checkout, or a side fails.
        """
        if self.before is None:
            raise KeySharedError("give --before PATH: a checkout to compare with")
        trees = {BARE: HERE, NOW: HERE, BEFORE: require_tree(self.before)}
        noop = self.noop.that_fits(cluster)
        noop = msgspec.structs.replace(noop, repeat=repeat or noop.repeat)
        orders = [*permutations(self.sides)]
        rounds = []
        with topic_of_our_own(cluster, noop.partitions, progress) as topic:
            fill(cluster.bootstrap, topic, noop)
            for number in range(noop.repeat):
                found: dict[str, SideResult] = {}
                for side in orders[number % len(orders)]:
                    of = noop.task(
                        "bare" if side == BARE else "keyshared", cluster.bootstrap, topic
                    )
                    with in_tree(trees[side]):
                        found[side] = run_side(of)
                    check_commits(side, found[side])
                rounds.append({side: each.records / each.seconds for side, each in found.items()})
                shown = ", ".join(f"{side} {rounds[-1][side]:,.0f}/s" for side in self.sides)
                progress(f"round {number + 1} of {noop.repeat}: {shown}")
        shortest = min(noop.records / rates[side] for rates in rounds for side in (BEFORE, NOW))
        figures = figures_of(rounds)
        slow = slow_bare(figures["bare_per_s"]) if self.bare else []
        return {
            **figures,
            "records": noop.records,
            "before": str(self.before),
            "kafka": cluster.kind,
            "suspect": [*slow, *short_runs(shortest)],
        }


def figures_of(rounds: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the figures of rounds, each of which has records per second by side."""
    found: dict[str, Any] = {
        f"{side}_per_s": round(median(rates[side] for rates in rounds)) for side in rounds[0]
    }
    pairs = {"of_before": (NOW, BEFORE)}
    if BARE in rounds[0]:
        pairs |= {"ratio": (NOW, BARE), "before_ratio": (BEFORE, BARE)}
    for name, (side, other) in pairs.items():
        shares = [rates[side] / rates[other] for rates in rounds]
        found |= {
            name: median(shares),
            f"{name}s": [round(each, 3) for each in shares],
            f"{name}_spread": spread(shares, 3),
        }
    return found
