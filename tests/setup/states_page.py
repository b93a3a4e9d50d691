"""Writes the tables of states in docs/internals/states.md from those that the core goes by.

``python tests/setup/states_page.py`` puts each between its two comments, below a picture of which
state leads to which (:mod:`tests.setup.page_tables`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup.page_tables import filled, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "states.md"


def lanes() -> str:
    """Return what follows on each event in each state of a closed lane."""
    from kafka_keyshared.core.lanes.closed import LANE_TABLE, LaneEvent

    return _states("of the head of a lane that is …", LANE_TABLE, {e: e.value for e in LaneEvent})


def workers() -> str:
    """Return what follows on each event in each state of a worker."""
    from kafka_keyshared.core.workers.worker import WORKER_TABLE, WorkerEvent

    return _states("of a worker that is …", WORKER_TABLE, {e: e.value for e in WorkerEvent})


def partitions() -> str:
    """Return what follows on each event in each state of a partition."""
    from kafka_keyshared.core.partitions.assignment import PARTITION_TABLE, PartitionEvent

    words = {
        PartitionEvent.ASSIGNED: "it is assigned",
        PartitionEvent.RECEIVED: "records of it arrive",
        PartitionEvent.REVOKING: "it is about to be revoked",
        PartitionEvent.FORGOTTEN: "it is gone",
    }
    return _states("of a partition that is …", PARTITION_TABLE, words)


def _states(what: str, states: Mapping[Any, Mapping[Any, Any]], words: Mapping[Any, str]) -> str:
    rows = [
        [text, *(_follows(states[state].get(event)) for state in states)]
        for event, text in words.items()
    ]
    return f"{_picture(states)}\n\n{table([what, *(state.name for state in states)], rows)}"


def _picture(states: Mapping[Any, Mapping[Any, Any]]) -> str:
    """Return a line for each state that leads to others: to which."""
    width = max(len(state.name) for state in states)
    lines = []
    for state, row in states.items():
        follow = {each.name: None for each in states if each in row.values() and each is not state}
        if follow:
            lines.append(f" {state.name.ljust(width)} ──▶ {', '.join(follow)}")
    return "\n".join(["```text", *lines, "```"])


def _follows(state: object) -> str:
    return "–" if state is None else str(getattr(state, "name", state))


TABLES = {"lanes": lanes, "workers": workers, "partitions": partitions}


def updated(text: str) -> str:
    """Return the page with its tables as the package has them now."""
    return filled(PAGE.name, text, TABLES)


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
