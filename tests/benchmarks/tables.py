"""What it takes to make the slot table anew when a worker joins: the owner does nothing else then.

Processor time of this process, in which nothing but the table is made.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

from kafka_keyshared.core.routing import (
    AutoSplit,
    Exclusive,
    Routing,
    StickyRanges,
    Unowned,
    VnodeRing,
)
from kafka_keyshared.core.routing.table import SlotTable
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.core.workers.worker import Worker
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import SLOTS


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How many workers there are when the last has joined, and how often that is measured."""

    workers: int = 100
    vnodes: int = 100
    repeat: int = 15


def routings(plan: TablePlan) -> dict[str, Routing]:
    """Return each routing as it is before the last worker joins."""
    names = worker_names(plan.workers - 1)
    width = SLOTS // len(names)
    ranges = {name: [(at * width, at * width + width - 1)] for at, name in enumerate(names)}
    return {
        "ring": VnodeRing(names, plan.vnodes),
        "ring_as_routed": VnodeRing(names, 2 * plan.vnodes),
        "ranges": StickyRanges(ranges),
        "auto_split": AutoSplit(names),
        "exclusive": Exclusive(names),
    }


def milliseconds(routing: Routing, plan: TablePlan) -> float:
    """Return the processor time that the table takes when the last worker joins."""
    workers = [Worker(name, at, 1_000) for at, name in enumerate(worker_names(plan.workers))]
    table = SlotTable(workers[:-1], routing, {why: [] for why in Unowned})
    began = time.process_time()
    table.project(workers)
    took = time.process_time() - began
    if len(table.owners) != SLOTS or table.routing.workers != worker_names(plan.workers):
        raise KeySharedError(f"the table of {len(table.routing.workers)} workers is not whole")
    return took * 1e3


def measure(plan: TablePlan) -> dict[str, Any]:
    """Return the median for each routing, as ``ring_ms`` and so on, in milliseconds."""
    found: dict[str, Any] = {"workers": plan.workers, "vnodes": plan.vnodes}
    for name, routing in routings(plan).items():
        times = [milliseconds(routing, plan) for _ in range(plan.repeat)]
        found[f"{name}_ms"] = round(statistics.median(times), 2)
    return found
