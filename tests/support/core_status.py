"""The status of a core that a test drives."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.core.status.builder import take
from kafka_keyshared.core.status.environment import StatusInputs
from kafka_keyshared.status import Status
from tests.support.core_harness import Harness

WALL = 2_000.0


def status_of(harness: Harness, **around: Any) -> Status:
    """The status now; ``around`` says what the core does not know."""
    progress = harness.pool.progress()
    harness.core.snapshots.take(progress, harness.now)
    given = {
        "wall": WALL,
        "started_at": 1_000.0,
        "phase": "running",
        "joined": True,
        "group": "billing",
        "pool": "thread",
        "polled_at": None,
        "poll_used": 0.0,
        "log_ends": {},
        **around,
    }
    return take(harness.core, progress, harness.now, StatusInputs(**given))
