"""SIGTERM to a member that is alone: it drains, or names what it gives up on, and leaves."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_keyshared.observability.audit.judge import Judgement
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.chaos.processes import (
    PARTITIONS,
    RECORDS,
    Incarnation,
    Scene,
    assert_clean,
    assert_nothing_but_duplicates,
    stream,
)

RETRY = {"attempts": 3, "backoff": 0.02, "jitter": 0.0}


@pytest.fixture
def scene(real_cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    real_cluster.create_topic(topic, PARTITIONS)
    made = Scene(real_cluster, topic, tmp_path, {"session.timeout.ms": 3_000})
    yield made
    made.close()


def test_sigterm_with_a_failing_key_and_a_slow_one_repeats_nothing(scene: Scene) -> None:
    scene.write(stream(RECORDS))
    for number in range(2):
        # On a busy machine the first may have done most of it before anybody looks.
        scene.keep_busy()
        first = scene.start(
            f"first-{number}", fails="key-7", slow="key-3", options={"retry": RETRY}
        )

        def enough(first: Incarnation = first) -> bool:
            return first.ended() >= 600 and "is blocked" in first.log()

        scene.until(enough, first)
        first.terminate()
    mended = scene.start("mended")
    scene.drain(mended)

    verdict = scene.verdict()
    assert_clean(verdict)
    assert verdict.totals.failed_attempts >= 3


def finish_mended(scene: Scene, hanging: Incarnation) -> Judgement:
    """Let another incarnation do what is left; see that the first named what it gave up on.

    What was given up runs again. That is no duplicate of the hanging one: its attempt never ended.
    Others may have ended between the last commit and the exit.
    """
    named = given_up(hanging)
    assert hanging_place(scene) in named, hanging.log()
    mended = scene.start("mended")
    scene.drain(mended)
    verdict = scene.verdict()
    assert_nothing_but_duplicates(verdict)
    assert verdict.duplicates.count <= len(named) - 1, "\n".join(verdict.lines())
    assert 1 <= verdict.totals.unfinished_attempts <= len(named)
    return verdict


def given_up(child: Incarnation) -> list[str]:
    """Return what the final line says was given up on."""
    (found,) = re.findall(r"gave up on (\d+) running: (.*?); ", child.log())
    named: list[str] = found[1].split(", ")
    assert len(named) == int(found[0])
    return named


def hanging_place(scene: Scene) -> str:
    event = next(event for event in scene.written.events if getattr(event, "key", 0) == b"hang")
    return f"{scene.topic}-{event.partition}@{event.offset}"  # type: ignore[union-attr]


def test_a_second_sigterm_gives_up_what_hangs_and_exits_1(scene: Scene) -> None:
    scene.write([*stream(200), (b"hang", b"!")])
    child = scene.start("hanging", hangs="hang")
    scene.until(lambda: "hanging now" in child.log() and child.ended() >= 100, child)
    child.signal(signal.SIGTERM)
    # The first signal must have been taken before the second: two that are pending become one.
    scene.until(child.said("signalled"), child)
    child.signal(signal.SIGTERM)
    # Within 1 s on an idle machine; the stop timeout that it does not wait for is 25 s.
    assert child.wait(10.0) == 1
    assert "; committed; " in child.log()
    finish_mended(scene, child)


def test_a_stop_past_its_timeout_exits_1_and_names_what_runs(scene: Scene) -> None:
    scene.write([*stream(200), (b"hang", b"!")])
    child = scene.start("hanging", hangs="hang", options={"stop_timeout": 1.0})
    scene.until(lambda: "hanging now" in child.log() and child.ended() >= 100, child)
    child.signal(signal.SIGTERM)
    assert child.wait(30.0) == 1
    assert f"gave up on 1 running: {hanging_place(scene)}; committed" in child.log()
    finish_mended(scene, child)


def test_a_signal_that_outlasts_the_wait_for_mail_stops_nothing(scene: Scene) -> None:
    """Before Python 3.13, ``SimpleQueue.get`` waits for ever when a signal uses up its timeout.

    Nothing else wakes the owner here: its only record hangs.
    """
    scene.write([(b"hang", b"!")])
    child = scene.start("hanging", hangs="hang", signal_seconds=0.05, options={"stop_timeout": 1.0})
    scene.until(child.said("hanging now"), child)
    child.signal(signal.SIGTERM)
    assert child.wait(15.0) == 1
    assert "gave up on 1 running" in child.log()
