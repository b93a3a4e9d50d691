"""Counts of the edges that were taken in the core's state tables.

The core has no line for it. The tables are data, and the core looks up each edge in them. While
edges are counted, the core's modules have other tables that count each successful look-up.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka_keyshared.core.lanes import closed
from kafka_keyshared.core.partitions import assignment
from kafka_keyshared.core.workers import worker

TABLES = {
    "lane": (closed, "LANE_TABLE"),
    "worker": (worker, "WORKER_TABLE"),
    "partition": (assignment, "PARTITION_TABLE"),
}
"""The module that follows a table and the table's name, by the kind of object that has the states.
"""


class _Row(dict[enum.Enum, enum.Enum]):
    """The states that follow a state. Each event that is found in it counts."""

    def __init__(self, row: Mapping[Any, Any], names: Mapping[Any, str], edges: Counter[str]):
        super().__init__(row)
        self._names = names
        self._edges = edges

    def get(self, event: enum.Enum, default: Any = None) -> Any:
        """Return the state that follows."""
        if (name := self._names.get(event)) is not None:
            self._edges[name] += 1
        return super().get(event, default)

    def __contains__(self, event: object) -> bool:
        if (name := self._names.get(event)) is not None:
            self._edges[name] += 1
        return super().__contains__(event)


def _names(of: str, state: enum.Enum, row: Mapping[Any, Any]) -> dict[Any, str]:
    return {event: f"{of} {state.name} {event.name}" for event in row}


@contextmanager
def counted_edges() -> Iterator[Counter[str]]:
    """Count the edges that are taken inside, by names such as ``lane WAITING LEASED``.

    All edges are in it from the beginning, with 0. One process counts once at a time.
    """
    edges: Counter[str] = Counter()
    tables = {of: getattr(module, name) for of, (module, name) in TABLES.items()}
    for of, (module, name) in TABLES.items():
        rows = {}
        for state, row in tables[of].items():
            names = _names(of, state, row)
            edges.update(dict.fromkeys(names.values(), 0))
            rows[state] = _Row(row, names, edges)
        setattr(module, name, rows)
    try:
        yield edges
    finally:
        for of, (module, name) in TABLES.items():
            setattr(module, name, tables[of])
