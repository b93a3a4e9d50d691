"""A member that joins and leaves again and again, under load: no record runs twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.processes import (
    CONSUMER,
    COOPERATIVE,
    PARTITIONS,
    RANGE,
    Incarnation,
    Scene,
    assert_clean,
    attempts_of,
)

REVOKE_DEADLINE = 5.0
# Every worker is in the middle of a record at every moment, so that each revoke has to wait.
PAUSE = 0.08
AHEAD = 60
SHARE = 40


def revoke_seconds(incarnation: Incarnation) -> list[float]:
    """How long each of its revokes took, by its own word."""
    assert "past the deadline" not in incarnation.log()
    return [
        float(found) for found in re.findall(r"revoked \S.* in (\d+\.\d+) s", incarnation.log())
    ]


# Under KIP-848 a change waits for the heartbeats of both, 5 s apart by the broker's default.
@pytest.mark.parametrize(
    ("conf", "rounds"),
    [(RANGE, 3), (COOPERATIVE, 3), (CONSUMER, 2)],
    ids=["range", "cooperative-sticky", "kip-848"],
)
def test_a_member_that_comes_and_goes_repeats_nothing(
    real_cluster: Cluster, topic: str, tmp_path: Path, conf: dict[str, Any], rounds: int
) -> None:
    real_cluster.create_topic(topic, PARTITIONS)
    scene = Scene(real_cluster, topic, tmp_path, conf)

    def start(name: str) -> Incarnation:
        return scene.start(name, pause=PAUSE, options={"revoke_deadline": REVOKE_DEADLINE})

    def reached(member: Incarnation, ended: int, partitions: int) -> None:
        """Keep everybody busy until the member has done so much and holds so many partitions."""

        def there() -> bool:
            scene.keep_busy(AHEAD)
            return member.ended() >= ended and member.owned() == partitions

        scene.until(there, stays, member)

    try:
        stays = start("stays")
        reached(stays, SHARE, PARTITIONS)
        for number in range(rounds):
            guest = start(f"guest-{number}")
            reached(guest, SHARE, PARTITIONS // 2)
            guest.terminate()
            reached(stays, stays.ended() + SHARE, PARTITIONS)
        scene.drain(stays)
        assert_clean(scene.verdict())
    finally:
        scene.close()

    waited = revoke_seconds(stays)
    assert len(waited) >= rounds, "each guest took something from the one that stays"
    # Otherwise nothing was running at any of these moments, and the test has shown nothing.
    assert max(waited) > PAUSE / 3, waited
    assert max(waited) < REVOKE_DEADLINE, waited
    assert all(len(attempts_of(ledger)) >= SHARE for ledger in scene.ledgers()[1:])
