"""SIGKILL, SIGTERM and dying brokers: nothing is lost, and what may repeat is bounded."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_keyshared.audit.judge import Judgement
from kafka_keyshared.local.broker import RealCluster
from kafka_keyshared.local.cluster import Cluster
from tests.chaos.processes import Scene
from tests.support.live import write

PARTITIONS = 4
RECORDS = 4_000
KEYS = 61


def stream(count: int, keys: int = KEYS) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (number % keys), b"%d" % number) for number in range(count)]


@pytest.fixture
def scene(real_cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    real_cluster.create_topic(topic, PARTITIONS)
    made = Scene(real_cluster, topic, tmp_path)
    yield made
    made.close()


def assert_nothing_but_duplicates(verdict: Judgement) -> None:
    counts = verdict.counts()
    counts.pop("duplicates")
    assert not any(counts.values()), "\n".join(verdict.lines())
    assert verdict.duplicates_after_commit.count == 0, verdict.duplicates_after_commit.examples


def test_several_sigkills_lose_nothing_and_repeat_only_what_was_not_committed(
    scene: Scene,
) -> None:
    write(scene.cluster, scene.topic, stream(RECORDS), scene.written)
    for number, ended in enumerate((150, 500, 300)):
        killed = scene.start(f"killed-{number}")
        scene.until(lambda killed=killed, ended=ended: killed.ended() >= ended, killed)
        killed.kill()
    last = scene.start("last")
    scene.until(scene.all_committed, last)
    last.signal(signal.SIGTERM)
    assert last.wait() == 0

    verdict = scene.verdict()
    assert_nothing_but_duplicates(verdict)
    assert verdict.totals.incarnations >= 4
    assert verdict.totals.unfinished_attempts <= 3 * 8, "one running record per worker and kill"


def test_sigterm_with_a_failing_key_and_a_slow_one_repeats_nothing(scene: Scene) -> None:
    write(scene.cluster, scene.topic, stream(RECORDS), scene.written)
    retry = {"attempts": 3, "backoff": 0.02, "jitter": 0.0}
    for number in range(2):
        first = scene.start(
            f"first-{number}", fails="key-7", slow="key-3", options={"retry": retry}
        )
        scene.until(lambda first=first: first.ended() >= 600 and "is blocked" in first.log(), first)
        first.signal(signal.SIGTERM)
        assert first.wait() == 0, first.log()
        assert "drained; committed" in first.log()
    mended = scene.start("mended")
    scene.until(scene.all_committed, mended)
    mended.signal(signal.SIGTERM)
    assert mended.wait() == 0

    verdict = scene.verdict()
    assert verdict.clean, "\n".join(verdict.lines())
    assert verdict.totals.failed_attempts >= 3


def finish_mended(scene: Scene) -> Judgement:
    mended = scene.start("mended")
    scene.until(scene.all_committed, mended)
    mended.signal(signal.SIGTERM)
    assert mended.wait() == 0
    verdict = scene.verdict()
    # The hanging attempt never ended, so that its record runs again is no duplicate.
    assert verdict.clean, "\n".join(verdict.lines())
    assert verdict.totals.unfinished_attempts == 1
    return verdict


def test_a_second_sigterm_gives_up_what_hangs_and_exits_1(scene: Scene) -> None:
    write(scene.cluster, scene.topic, [*stream(200), (b"hang", b"!")], scene.written)
    child = scene.start("hanging", hangs="hang")
    scene.until(lambda: "hanging now" in child.log() and child.ended() >= 100, child)
    child.signal(signal.SIGTERM)
    # The first signal must have been taken before the second: two that are pending become one.
    threading.Event().wait(0.5)
    began = time.monotonic()
    child.signal(signal.SIGTERM)
    assert child.wait(20) == 1
    # Within 1 s on an idle machine; the stop timeout that it did not wait for is 25 s.
    assert time.monotonic() - began < 10
    assert "gave up on 1 running" in child.log()
    assert "committed" in child.log().splitlines()[-2]
    finish_mended(scene)


def test_a_stop_past_its_timeout_exits_1_and_names_what_runs(scene: Scene) -> None:
    write(scene.cluster, scene.topic, [*stream(200), (b"hang", b"!")], scene.written)
    child = scene.start("hanging", hangs="hang", options={"stop_timeout": 1.0})
    scene.until(lambda: "hanging now" in child.log() and child.ended() >= 100, child)
    child.signal(signal.SIGTERM)
    assert child.wait(30) == 1
    hanging = next(event for event in scene.written.events if getattr(event, "key", 0) == b"hang")
    where = f"{scene.topic}-{hanging.partition}@{hanging.offset}"  # type: ignore[union-attr]
    assert f"gave up on 1 running: {where}; committed" in child.log()
    finish_mended(scene)


def test_a_broker_that_dies_and_comes_back_loses_nothing(
    broker_of_my_own: RealCluster, topic: str, tmp_path: Path
) -> None:
    broker_of_my_own.create_topic(topic, PARTITIONS)
    scene = Scene(broker_of_my_own, topic, tmp_path)
    try:
        write(scene.cluster, topic, stream(RECORDS), scene.written)
        child = scene.start("survivor", pause=0.01)
        scene.until(lambda: child.ended() >= 300, child)
        broker_of_my_own.kill()
        before = child.ended()
        # What was fetched goes on being processed while nobody answers.
        scene.until(lambda: child.ended() > before, child)
        broker_of_my_own.restart()
        write(scene.cluster, topic, stream(200), scene.written)
        scene.until(scene.all_committed, child, 90.0)
        child.signal(signal.SIGTERM)
        assert child.wait() == 0, child.log()[-4_000:]
        assert_nothing_but_duplicates(scene.verdict())
    finally:
        scene.close()


def test_the_oracle_finds_commits_that_come_too_early(scene: Scene) -> None:
    """Committed 500 beyond what is settled, then killed: the restart skips records."""
    write(scene.cluster, scene.topic, stream(RECORDS), scene.written)
    hasty = scene.start("hasty", hasty=True, options={"commit_interval": 0.05})
    scene.until(lambda: hasty.ended() >= 200, hasty)
    scene.until(lambda: any(position > 0 for position in scene.committed()), hasty)
    hasty.kill()
    last = scene.start("last")
    scene.until(scene.all_committed, last)
    last.signal(signal.SIGTERM)
    assert last.wait() == 0
    verdict = scene.verdict()
    assert verdict.commits_past_unsettled.count > 0
    assert verdict.lost.count > 0
