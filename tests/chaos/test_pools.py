"""Every kind of pool on a real broker: members come, are resized, killed and stopped; keys fail."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.pools import Pool, workers_of
from tests.chaos.processes import (
    PARTITIONS,
    Incarnation,
    Scene,
    assert_nothing_but_duplicates,
)

RETRY = {"attempts": 50, "backoff": 0.02, "jitter": 0.0}
SHARE = 150
AHEAD = 600


SCALES: dict[Pool, tuple[int, int, int]] = {
    "thread": (2, 32, 3),
    "asyncio": (2, 256, 3),
    "process": (2, 4, 3),  # each takes as much memory as an instance
    "batch": (2, 32, 3),
}
"""How many workers the first member begins with, and has later while it runs."""


def says(member: Incarnation, text: str) -> bool:
    """Say whether the member has logged that."""
    return text in member.log()


@pytest.mark.parametrize("pool", SCALES)
def test_resizes_a_kill_and_a_stop_lose_nothing_and_keep_each_key_in_order(
    real_cluster: Cluster, topic: str, tmp_path: Path, pool: Pool
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    scene = Scene(real_cluster, topic, tmp_path, {"session.timeout.ms": 3_000})

    begins, *scales = SCALES[pool]

    def start(name: str, fails: str = "", **more: Any) -> Incarnation:
        options = {"retry": RETRY, "workers": workers_of(pool, begins)}
        return scene.start(
            name, pool=pool, fails=fails, slow="key-3", pause=0.001, options=options, **more
        )

    def busy(*members: Incarnation) -> None:
        """Keep them busy until each has done its share since this began."""
        enough = {each.name: each.ended() + SHARE for each in members}

        def there() -> bool:
            scene.keep_busy(AHEAD)
            return all(each.ended() >= enough[each.name] for each in members)

        scene.until(there, *members)

    try:
        first = start("first", fails="key-7", scales=scales)
        second = start("second", fails="key-7")
        busy(first, second)
        for count in scales:
            scene.open(f"first-{count}")
            scene.until(partial(says, first, f"scaled to {count}"), first)
            busy(first)
        second.kill()
        busy(first)
        third = start("third")
        busy(first, third)
        first.terminate()
        scene.drain(third)
        verdict = scene.verdict()
    finally:
        scene.close()
    assert_nothing_but_duplicates(verdict)
    assert verdict.totals.failed_attempts >= 1
