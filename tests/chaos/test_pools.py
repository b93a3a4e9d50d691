"""Every kind of pool on a real broker: members come, are killed and stopped, and keys fail.

Threads are what the other tests here run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_keyshared.local.cluster import Cluster
from tests.chaos.pools import Pool
from tests.chaos.processes import (
    PARTITIONS,
    Incarnation,
    Scene,
    assert_nothing_but_duplicates,
)

RETRY = {"attempts": 50, "backoff": 0.02, "jitter": 0.0}
SHARE = 150
AHEAD = 600


@pytest.mark.parametrize("pool", ["asyncio", "process", "batch"])
def test_a_kill_and_a_stop_lose_nothing_and_keep_each_key_in_order(
    real_cluster: Cluster, topic: str, tmp_path: Path, pool: Pool
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    scene = Scene(real_cluster, topic, tmp_path, {"session.timeout.ms": 3_000})

    def start(name: str, fails: str = "") -> Incarnation:
        return scene.start(
            name, pool=pool, fails=fails, slow="key-3", pause=0.001, options={"retry": RETRY}
        )

    def busy(*members: Incarnation) -> None:
        """Keep them busy until each has done its share since this began."""
        enough = {each.name: each.ended() + SHARE for each in members}

        def there() -> bool:
            scene.keep_busy(AHEAD)
            return all(each.ended() >= enough[each.name] for each in members)

        scene.until(there, *members)

    try:
        first, second = start("first", fails="key-7"), start("second", fails="key-7")
        busy(first, second)
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
