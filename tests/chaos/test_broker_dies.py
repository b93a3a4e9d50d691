"""A broker that dies and comes back under its members: nothing lost, everything committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_keyshared.testing.clusters.broker import RealCluster
from tests.chaos.processes import (
    COOPERATIVE,
    MORTAL_BROKER,
    PARTITIONS,
    RANGE,
    RECORDS,
    Incarnation,
    Scene,
    assert_nothing_but_duplicates,
    gated_keys,
    stream,
)


@pytest.fixture
def scene(broker_of_my_own: RealCluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    broker_of_my_own.create_topic(topic, PARTITIONS)
    made = Scene(broker_of_my_own, topic, tmp_path, dict(MORTAL_BROKER))
    yield made
    made.close()


def check_the_end(scene: Scene, *members: Incarnation) -> None:
    """Write more, and see that all of it is done and committed; nobody was killed here."""
    scene.write(stream(200))
    scene.drain(*members)
    assert_nothing_but_duplicates(scene.verdict())


def test_a_broker_that_is_killed_under_two_members_loses_nothing(
    scene: Scene, broker_of_my_own: RealCluster
) -> None:
    # Longer than a restart takes. A member that lost its partitions meanwhile would do no harm, but
    # the group would have to wait until its place in it has timed out.
    scene.conf |= {"session.timeout.ms": 15_000}
    scene.write(stream(RECORDS))
    members = [scene.start(name, pause=0.01) for name in ("a", "b")]
    scene.until(lambda: all(each.ended() >= 200 for each in members), *members)
    broker_of_my_own.kill()
    before = [each.ended() for each in members]
    # What was fetched goes on being processed while nobody answers.
    scene.until(
        lambda: all(each.ended() > was for each, was in zip(members, before, strict=True)), *members
    )
    broker_of_my_own.restart()
    check_the_end(scene, *members)


@pytest.mark.parametrize("conf", [RANGE, COOPERATIVE], ids=["range", "cooperative"])
def test_a_broker_that_stops_in_the_middle_of_a_rebalance_loses_nothing(
    scene: Scene, broker_of_my_own: RealCluster, conf: dict[str, str]
) -> None:
    """It goes while a member waits in its revoke, whose commit then finds nobody."""
    scene.conf |= conf
    scene.write(stream(400))
    for number, key in enumerate(gated_keys()):
        scene.write([(key, b"")], partition=number)
    scene.write(stream(400))
    giver = scene.start("giver", options={"revoke_deadline": 20.0})
    scene.until(giver.said("at the gate", PARTITIONS), giver)
    joiner = scene.start("joiner")
    scene.until(giver.said("revoking"), giver, joiner)
    broker_of_my_own.stop()
    scene.open("handler")
    scene.until(giver.said("INFO revoked"), giver, joiner)
    broker_of_my_own.restart()
    check_the_end(scene, giver, joiner)
