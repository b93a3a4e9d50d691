"""A member that stops while its group rebalances: the process must not stand still with it.

What freezes holds the interpreter lock, so it is tried in a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError

from kafka_keyshared import KeyShared
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.live_cluster import client_conf, group_name
from tests.tidy.sources import ROOT

TRIES = 60
"""With ``unsubscribe`` and then ``close`` one of the first twenty stood, mostly the first."""

PAUSE = threading.Event()


def slow(_partitions: list[TopicPartition]) -> None:
    """Take so long that the answer to the group's leave comes in meanwhile."""
    PAUSE.wait(0.03)


def members_that_stop(protocol: str) -> None:
    """Join and stop, again and again, before the first assignment has been called back."""
    with EmbeddedCluster() as cluster:
        for number in range(TRIES):
            cluster.create_topic(f"topic-{number}", 2)
            conf = client_conf(cluster, group_name())
            conf["partition.assignment.strategy"] = protocol
            client = KafkaClient(conf, [f"topic-{number}"], lambda _answer: None)
            client.subscribe(slow, client.released, client.released)
            while not client.consumer.memberid():
                """It joins; nothing is polled, so nothing is called back."""
            PAUSE.wait(0.005)  # it is given partitions meanwhile, or just now
            client.close()
            sys.stdout.write("stopped\n")
            sys.stdout.flush()


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_members_that_stop_while_they_are_given_partitions_come_to_their_end(protocol: str) -> None:
    command = [sys.executable, "-m", "tests.integration.test_leaving", protocol]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=50, check=True).stdout
    except subprocess.TimeoutExpired as late:
        done = late.stdout or b""
    assert len(done.split()) == TRIES


STEPS = {
    "FindCoordinator": {"FindCoordinator": 1},
    "the first JoinGroup, which has no member id": {"JoinGroup": 1},
    "every JoinGroup": {"JoinGroup": 3},
    "SyncGroup": {"SyncGroup": 1},
    "the first Heartbeat": {"Heartbeat": 1},
}
"""Steps of a join, with the requests that a slow broker answers late."""

LATE = 0.7


def sent(cluster: EmbeddedCluster, request: str, at_least: int = 1) -> None:
    """Return once a client has sent such requests."""
    deadline = time.monotonic() + 30.0
    while cluster.requests()[request] < at_least:
        assert time.monotonic() < deadline, f"no {request}"
        PAUSE.wait(0.005)


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("step", STEPS)
def test_a_member_that_stops_at_any_step_of_its_join_leaves_its_group(
    step: str, protocol: str, topic: str
) -> None:
    """The coordinator counts it from its first JoinGroup on, before it has told it its id."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)
        cluster.watch_requests()
        for request, times in STEPS[step].items():
            cluster.delay_next(request, LATE, times=times)
        conf = client_conf(cluster, group_name())
        conf["partition.assignment.strategy"] = protocol
        client = KafkaClient(conf, [topic], lambda _answer: None)
        client.subscribe(
            lambda given: client.assign(dict.fromkeys(given, 0)), client.released, client.released
        )
        (request,) = STEPS[step]
        deadline = time.monotonic() + 30.0
        while not cluster.requests()[request]:
            client.poll(0.01)
            assert time.monotonic() < deadline, f"no {request}"
        assert client.close()
        assert cluster.requests()["LeaveGroup"] == 1


def stopped_by_call(app: KeyShared, joins: Callable[[], None]) -> int:
    """Run an app in a thread and stop it while it joins; return its status."""
    runs = Aside(app.run, name="app")
    joins()
    app.stop()
    assert runs.wait(40.0)
    return runs.result()


def stopped_by_cancel(app: KeyShared, joins: Callable[[], None]) -> int:
    """Run an app on a loop and cancel it while it joins; return its status."""

    async def main() -> int:
        task = asyncio.create_task(app.run_async())
        await asyncio.to_thread(joins)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return int(app.report is None or not app.report.clean or app.report.pending)

    return asyncio.run(main())


@pytest.mark.parametrize("stopped", [stopped_by_call, stopped_by_cancel])
@pytest.mark.parametrize(("late", "status"), [(LATE, 0), (20.0, 1)])
def test_an_app_that_is_stopped_while_it_joins_leaves_its_group_or_says_that_it_has_not(
    stopped: Callable[[KeyShared, Callable[[], None]], int],
    late: float,
    status: int,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafka_keyshared.stop")
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)
        cluster.watch_requests()
        cluster.delay_next("JoinGroup", late)
        app = KeyShared(client_conf(cluster, group_name()), [topic], workers=1, stop_timeout=2.0)
        app.handler(lambda _: None)
        assert stopped(app, lambda: sent(cluster, "JoinGroup")) == status
        assert cluster.requests()["LeaveGroup"] == 1 - status
    (line,) = [each for each in caplog.messages if each.startswith("stopped in")]
    assert ("the group was NOT left: its coordinator did not answer" in line) is bool(status)


def test_a_member_whose_join_is_not_answered_in_time_says_that_it_has_not_left(topic: str) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)
        cluster.watch_requests()
        cluster.delay_next("JoinGroup", 20.0)
        client = KafkaClient(client_conf(cluster, group_name()), [topic], lambda _answer: None)
        client.subscribe(client.released, client.released, client.released)
        sent(cluster, "JoinGroup")
        assert not client.close(patience=0.3)


def test_a_member_whose_brokers_are_back_unnoticed_waits_for_its_join(topic: str) -> None:
    """Whether an outage is over is asked every few seconds; a stop may come in between."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)
        cluster.watch_requests()
        cluster.delay_next("JoinGroup", LATE)
        client = KafkaClient(client_conf(cluster, group_name()), [topic], lambda _answer: None)
        client.subscribe(client.released, client.released, client.released)
        sent(cluster, "JoinGroup")
        client._outages.heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        assert client.close()
        assert cluster.requests()["LeaveGroup"] == 1


def test_a_member_that_never_joined_has_nothing_to_leave(topic: str) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 2)
        assert KafkaClient(client_conf(cluster, group_name()), [topic], lambda _: None).close()


if __name__ == "__main__":
    members_that_stop(sys.argv[1])
