"""SIGTERM in the middle of a rebalance, to the member that gives up and to the one that joins."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.processes import (
    COOPERATIVE,
    PARTITIONS,
    RANGE,
    Incarnation,
    Scene,
    assert_clean,
    gated_keys,
    stream,
)

REVOKE_DEADLINE = 20.0


@pytest.fixture
def scene(real_cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    real_cluster.create_topic(topic, PARTITIONS)
    made = Scene(real_cluster, topic, tmp_path)
    yield made
    made.close()


def start(scene: Scene, name: str, **more: Any) -> Incarnation:
    return scene.start(name, gated="gated", options={"revoke_deadline": REVOKE_DEADLINE}, **more)


def gated_stream(scene: Scene) -> None:
    """Write a record in each partition whose handler waits at the gate, among others."""
    scene.write(stream(400))
    for number, key in enumerate(gated_keys()):
        scene.write([(key, b"")], partition=number)
    scene.write(stream(400))


def held_in_revoke(scene: Scene) -> tuple[Incarnation, Incarnation]:
    """Return a member that waits in its revoke for a running record, and the one that joins."""
    gated_stream(scene)
    giver = start(scene, "giver")
    scene.until(giver.said("at the gate", PARTITIONS), giver)
    joiner = start(scene, "joiner")
    scene.until(giver.said("revoking"), giver, joiner)
    return giver, joiner


@pytest.mark.parametrize("conf", [RANGE, COOPERATIVE], ids=["range", "cooperative"])
def test_sigterm_inside_a_revoke_waits_for_what_runs_and_repeats_nothing(
    scene: Scene, conf: dict[str, str]
) -> None:
    scene.conf = conf
    giver, joiner = held_in_revoke(scene)
    giver.signal(signal.SIGTERM)
    scene.until(giver.said("signalled"), giver, joiner)
    scene.open("handler")
    assert giver.wait(25.0) == 0, giver.log()
    assert "drained; committed" in giver.log()
    scene.drain(joiner)
    verdict = scene.verdict()
    assert_clean(verdict)
    assert verdict.totals.unfinished_attempts == 0


@pytest.mark.parametrize(
    ("conf", "moment"),
    [(RANGE, "waiting"), (COOPERATIVE, "assigned")],
    ids=["waiting-range", "assigned-cooperative"],
)
def test_sigterm_to_the_member_that_joins_repeats_nothing(
    scene: Scene, conf: dict[str, Any], moment: str
) -> None:
    # The LeaveGroup of a member that waits for its JoinGroup stands behind it at the broker, so the
    # group learns of its end by the session timeout.
    scene.conf = conf | {"session.timeout.ms": 3_000}
    gated_stream(scene)
    giver = start(scene, "giver")
    scene.until(giver.said("at the gate", PARTITIONS), giver)
    joiner = start(scene, "joiner", hold_assign=True)
    scene.until(giver.said("revoking"), giver, joiner)
    if moment == "assigned":
        scene.open("handler")
        scene.until(joiner.said("assigning"), giver, joiner)
    joiner.signal(signal.SIGTERM)
    scene.until(joiner.said("signalled"), giver)
    scene.open("assign")
    assert joiner.wait(25.0) == 0, joiner.log()
    scene.open("handler")
    scene.drain(giver)
    assert_clean(scene.verdict())


def test_a_second_sigterm_inside_a_revoke_gives_up_at_once(scene: Scene) -> None:
    giver, joiner = held_in_revoke(scene)
    giver.signal(signal.SIGTERM)
    scene.until(giver.said("signalled"), giver, joiner)
    giver.signal(signal.SIGTERM)
    # Within 1 s on an idle machine; the revoke deadline that it does not wait for is 20 s.
    assert giver.wait(10.0) == 1, giver.log()
    assert "given up, may run again" in giver.log()
    assert "gave up on" in giver.log()
    scene.open("handler")
    scene.drain(joiner)
    assert_clean(scene.verdict())


def kept_waiting(scene: Scene) -> tuple[Incarnation, Incarnation]:
    """Return a member with work done and not committed, and another that the group waits for."""
    scene.write(stream(400))
    keeper = scene.start("keeper", options={"commit_interval": 3_600.0})
    scene.until(lambda: keeper.ended() == 400, keeper)
    joiner = scene.start("joiner", hold_assign=True)
    # It has joined, and while it takes over nothing yet, the keeper's second JoinGroup must wait.
    scene.until(keeper.said("INFO revoked"), keeper, joiner)
    scene.until(joiner.said("assigning"), keeper, joiner)
    for number in range(PARTITIONS):
        scene.write(stream(50), partition=number)
    scene.until(lambda: keeper.ended() >= 500, keeper, joiner)
    return keeper, joiner


def test_sigterm_while_the_group_waits_for_another_member_repeats_nothing(scene: Scene) -> None:
    """A member that keeps some partitions commits them with the generation that is coming.

    Whatever it sends between its JoinGroup and the answer waits behind that at the broker, and is
    then of the generation before: refused, although the partitions are still this member's.
    """
    scene.conf = COOPERATIVE
    keeper, joiner = kept_waiting(scene)
    keeper.signal(signal.SIGTERM)
    scene.until(keeper.said("signalled"), joiner)
    scene.open("assign")
    status = keeper.wait(25.0)
    scene.drain(joiner)
    assert_clean(scene.verdict())
    assert status == 0, keeper.log()


def test_sigterm_while_the_group_waits_for_a_member_that_is_gone_repeats_nothing(
    scene: Scene,
) -> None:
    """The broker is there and answers the last commit when that member's session is over."""
    scene.conf = COOPERATIVE | {"session.timeout.ms": 10_000}
    keeper, joiner = kept_waiting(scene)
    joiner.kill()
    keeper.signal(signal.SIGTERM)
    assert keeper.wait(60.0) == 0, keeper.log()
    assert "drained; committed" in keeper.log()
    scene.open("assign")
    scene.drain(scene.start("next"))
    assert_clean(scene.verdict())
