"""A stop ends in time, whatever the broker does and whatever hangs, and says what it left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.runtime.run_guard import GRACE
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.chaos.processes import MORTAL_BROKER, PARTITIONS, Incarnation, Scene, stream
from tests.support.live_cluster import group_name

STOP_TIMEOUT = 3.0
SLACK = 6.0
"""Seconds that a busy machine may add to what a program says of itself."""

END = 30.0
"""Seconds until it has to be gone. What used to be waited for is the session timeout, 45 s."""

CONF: dict[str, Any] = {**MORTAL_BROKER, "session.timeout.ms": 45_000, "socket.timeout.ms": 60_000}


def scene_of(cluster: Cluster, topic: str, directory: Path) -> Scene:
    cluster.create_topic(topic, PARTITIONS)
    made = Scene(cluster, topic, directory, dict(CONF))
    made.write(stream(4_000))
    return made


@pytest.fixture
def mortal(broker_of_my_own: RealCluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene whose broker the test takes away."""
    made = scene_of(broker_of_my_own, topic, tmp_path)
    yield made
    made.close()


@pytest.fixture
def steady(real_cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene whose broker stays."""
    made = scene_of(real_cluster, topic, tmp_path)
    yield made
    made.close()


@pytest.fixture
def light(topic: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene on a broker that is there at once, and whose faults disturb no other test."""
    with EmbeddedCluster() as cluster:
        made = scene_of(cluster, topic, tmp_path)
        yield made
        made.close()


def start(scene: Scene, kind: str, hangs: str = "", **more: Any) -> Incarnation:
    """Start a program in a group of its own."""
    scene.group = group_name()
    options = {"stop_timeout": STOP_TIMEOUT, **more}
    return scene.start(
        f"{kind}-{hangs}", program="ending_child", kind=kind, hangs=hangs, options=options
    )


def final_line(child: Incarnation) -> str:
    """Return what it said at its end; it said so once, and went by itself."""
    lines: list[str] = re.findall(r"stopped in .*", child.log())
    assert len(lines) == 1, child.log()
    return lines[0]


def seconds_of(line: str) -> float:
    """Return how long a stop took by its own account."""
    found = re.match(r"stopped in ([0-9.]+) s: ", line)
    assert found, line
    return float(found[1])


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_stop_without_a_broker_ends_in_time_and_says_what_was_not_heard(
    mortal: Scene, broker_of_my_own: RealCluster, fault: signal.Signals
) -> None:
    programs = [start(mortal, kind) for kind in ("run", "wrapped", "split", "pull")]
    programs.append(start(mortal, "run", "handler"))
    for each in programs:
        mortal.until(each.said("worked"), *programs)
    if fault is signal.SIGKILL:
        broker_of_my_own.kill()
    else:
        for pid in broker_of_my_own.pids:
            os.kill(pid, fault)
    # What is done from now on is committed to nobody, and that commit is pending at the stop.
    done = {each: each.log().count("worked") for each in programs[:-1]}
    for each, times in done.items():
        mortal.until(each.said("worked", times + 5), *programs)
    for each in programs:
        each.signal(signal.SIGTERM)
    for each in programs:
        assert each.wait(END) == 1, each.log()
        line = final_line(each)
        assert seconds_of(line) < STOP_TIMEOUT + GRACE + SLACK, line
        assert "came back with 1" in each.log()
    unheard = "drained; last commit NOT acknowledged; the group was NOT left: no end of "
    for each in done:
        assert re.search(unheard + r"(leave|close) \(", final_line(each))
    assert "gave up on 4 running" in final_line(programs[-1])


@pytest.mark.parametrize("hangs", ["close", "on_revoke"])
def test_a_stop_ends_beside_what_does_not_come_back_and_names_it(steady: Scene, hangs: str) -> None:
    """It hangs while the group is left, when everything is drained and committed."""
    child = start(steady, "run", hangs)
    steady.until(child.said("worked"), child)
    child.signal(signal.SIGTERM)
    assert child.wait(END) == 1, child.log()
    line = final_line(child)
    assert "drained; committed; the group was NOT left: no end of " in line
    assert f"no end of {hangs} (ending_child.py:" in line
    assert STOP_TIMEOUT <= seconds_of(line) < STOP_TIMEOUT + GRACE + SLACK


@pytest.mark.parametrize("hangs", ["close", "on_revoke"])
def test_a_second_signal_ends_a_stop_that_hangs_at_once(steady: Scene, hangs: str) -> None:
    child = start(steady, "run", hangs, stop_timeout=600.0)
    steady.until(child.said("worked"), child)
    child.signal(signal.SIGTERM)
    steady.until(child.said(f"hanging in {hangs}"), child)
    child.signal(signal.SIGTERM)
    assert child.wait(END) == 1, child.log()
    assert "drained; committed; the group was NOT left" in final_line(child)


def test_a_stop_ends_while_a_callback_of_the_users_hangs_in_the_middle_of_the_work(
    steady: Scene,
) -> None:
    """Another member joins, and ``on_revoke`` does not come back from that."""
    child = start(steady, "run", "on_revoke")
    steady.until(child.said("worked"), child)
    joiner = steady.start("joiner", program="ending_child", kind="run")
    steady.until(child.said("hanging in on_revoke"), child, joiner)
    child.signal(signal.SIGTERM)
    assert child.wait(END) == 1, child.log()
    line = final_line(child)
    assert "last commit NOT acknowledged; the group was NOT left: no end of on_revoke (" in line
    assert seconds_of(line) < STOP_TIMEOUT + GRACE + SLACK


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
@pytest.mark.parametrize(
    ("hangs", "more"),
    [
        ("on_assign", {}),
        ("on_lost", {}),
        ("on_commit", {}),
        ("error_cb", {}),
        ("stats_cb", {"statistics.interval.ms": 100}),
    ],
    ids=["on_assign", "on_lost", "on_commit", "error_cb", "stats_cb"],
)
def test_a_stop_ends_beside_a_hanging_callback_and_names_its_place(
    light: Scene, hangs: str, more: dict[str, Any], number: signal.Signals
) -> None:
    light.group = group_name()
    child = light.start(
        hangs,
        program="ending_child",
        kind="run",
        hangs=hangs,
        more=more,
        options={"stop_timeout": STOP_TIMEOUT},
    )
    if hangs == "error_cb":
        light.until(child.said("worked"), child)
        assert isinstance(light.cluster, EmbeddedCluster)
        light.cluster.broker_down()  # of which the client tells
    light.until(child.said(f"hanging in {hangs}"), child)
    child.signal(number)
    assert child.wait(END) == 1, child.log()
    line = final_line(child)
    assert f"the group was NOT left: no end of {hangs} (ending_child.py:" in line
    assert STOP_TIMEOUT <= seconds_of(line) < STOP_TIMEOUT + GRACE + SLACK


def test_a_stop_with_a_broker_there_leaves_the_group_at_once(steady: Scene) -> None:
    child = start(steady, "run", stop_timeout=600.0)
    steady.until(child.said("worked"), child)
    child.signal(signal.SIGTERM)
    assert child.wait(END) == 0, child.log()
    line = final_line(child)
    assert "drained; committed; " in line
    # Had it not left, the group would wait for it until the session timeout.
    after = steady.start("after", program="ending_child", kind="run")
    steady.until(after.said("worked"), after, seconds=END)
