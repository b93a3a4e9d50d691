"""Writes the table of states in docs/architecture.md from the one that the core goes by.

``python tests/setup/states_page.py`` puts it between its two comments
(:mod:`tests.setup.page_tables`).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup.page_tables import filled, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def lanes() -> str:
    """Return what follows on each event in each state of a closed lane."""
    from kafka_keyshared.core.lanes import LANE_TABLE, LaneEvent, LaneState

    rows = [
        [event.value, *(_follows(LANE_TABLE[state].get(event)) for state in LaneState)]
        for event in LaneEvent
    ]
    return table(["of the head of a lane that is …", *(each.name for each in LaneState)], rows)


def _follows(state: object) -> str:
    return "–" if state is None else str(getattr(state, "name", state))


TABLES = {"lanes": lanes}


def updated(text: str) -> str:
    """Return the page with its tables as the package has them now."""
    return filled(PAGE.name, text, TABLES)


def main() -> int:
    """Write the page; return the exit status."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
