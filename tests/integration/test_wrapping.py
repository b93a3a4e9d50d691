"""Consumers as services have them, before and after: two members, a rebalance, the same records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import Consumer, KeyShared
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import client_conf, committed, group_name, members, write

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ["poll_loop", "deserializing", "own_on_assign"]
PARTITIONS = 4
KEYS = 41


class Service:
    """One process of an example, and the lines that it has written: partition, offset, key."""

    def __init__(self, program: Path, cluster: Cluster, topic: str, group: str, out: Path) -> None:
        self.out = out
        out.touch()
        self._errors = out.with_suffix(".err").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, str(program)],
            env={
                **os.environ,
                "KAFKA": cluster.bootstrap,
                "TOPIC": topic,
                "GROUP": group,
                "OUT": str(out),
            },
            stdout=self._errors,
            stderr=self._errors,
        )

    def lines(self) -> list[tuple[int, int, str]]:
        """Return what has been billed, in the order in which that ended."""
        found = []
        for line in self.out.read_text("utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                partition, offset, key = line.split()[:3]
                found.append((int(partition), int(offset), key))
        return found

    def said(self) -> str:
        """Return what it printed."""
        return self.out.with_suffix(".err").read_text("utf-8")

    def stop(self) -> int:
        """Ask it to stop as an orchestrator does, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def end(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._errors.close()


@contextmanager
def service(
    program: Path, cluster: Cluster, topic: str, group: str, out: Path
) -> Iterator[Service]:
    started = Service(program, cluster, topic, group, out)
    try:
        yield started
    finally:
        started.end()


def orders(first: int, count: int) -> list[tuple[bytes, bytes]]:
    return [
        (b"customer-%d" % (number % KEYS), b'{"total": %d}' % number)
        for number in range(first, first + count)
    ]


def position(cluster: Cluster, group: str, topic: str) -> int:
    """Return the sum of what the group has committed."""
    found = [committed(cluster, group, topic, partition)[0] for partition in range(PARTITIONS)]
    return sum(each for each in found if each > 0)


def assert_in_order(lines: list[tuple[int, int, str]], where: str) -> None:
    """A key's records were billed in the order of their offsets."""
    by_key: dict[tuple[int, str], list[int]] = defaultdict(list)
    for partition, offset, key in lines:
        by_key[partition, key].append(offset)
    for lane, offsets in by_key.items():
        assert offsets == sorted(offsets), f"{where}: {lane} out of order"


@pytest.mark.parametrize("name", NAMES)
def test_the_plain_consumer_bills_every_order(
    real_cluster: Cluster, topic: str, eventually: Eventually, name: str, tmp_path: Path
) -> None:
    """What an example starts from does work, one record after the other."""
    real_cluster.create_topic(topic, PARTITIONS)
    write(real_cluster, topic, orders(0, 60))
    group, program = group_name(), EXAMPLES / "before" / f"{name}.py"
    with service(program, real_cluster, topic, group, tmp_path / "out") as only:
        eventually(lambda: len(only.lines()) == 60, 60.0)
        assert only.stop() == 0, only.said()
    assert_in_order(only.lines(), name)


def test_what_one_loop_raises_ends_the_program_as_it_ended_the_plain_one(
    real_cluster: Cluster, topic: str, eventually: Eventually, tmp_path: Path
) -> None:
    """Status 1 and the traceback; the group is left, and the record that failed is still to do."""
    real_cluster.create_topic(topic, PARTITIONS)
    write(real_cluster, topic, orders(0, 60), partition=0)
    write(real_cluster, topic, [(None, b"{}")], partition=1)
    write(real_cluster, topic, orders(60, 60), partition=2)
    ended = []
    for when in ("before", "after"):
        group, program = group_name(), EXAMPLES / when / "poll_loop.py"
        with service(program, real_cluster, topic, group, tmp_path / when) as only:
            assert only.process.wait(60) == 1, only.said()
        ended.append(only.said().splitlines()[-1])
        assert "in bill" in only.said()
        assert_in_order(only.lines(), when)
        assert committed(real_cluster, group, topic, 1)[0] <= 0, "what failed is not committed"
        assert position(real_cluster, group, topic) <= len(only.lines())
        eventually(lambda group=group: members(real_cluster, group) == 0, 60.0)  # type: ignore[misc]
    assert ended == ["AttributeError: 'NoneType' object has no attribute 'decode'"] * 2


@pytest.mark.parametrize("name", NAMES)
def test_two_wrapped_members_and_a_rebalance_lose_reorder_and_repeat_nothing(
    real_cluster: Cluster, topic: str, eventually: Eventually, name: str, tmp_path: Path
) -> None:
    """The second joins in the middle of the stream and leaves again; the group goes on with one."""
    real_cluster.create_topic(topic, PARTITIONS)
    group, program = group_name(), EXAMPLES / "after" / f"{name}.py"
    written = 0

    def more(count: int) -> None:
        nonlocal written
        write(real_cluster, topic, orders(written, count))
        written += count

    with (
        service(program, real_cluster, topic, group, tmp_path / "first") as first,
        service(program, real_cluster, topic, group, tmp_path / "second") as second,
    ):

        def done() -> int:
            return len(first.lines()) + len(second.lines())

        def both_have_worked() -> bool:
            for each in (first, second):
                assert each.process.poll() is None, each.said()
            if written - done() < 300:
                more(300)
            return min(len(first.lines()), len(second.lines())) >= 200

        more(600)
        eventually(both_have_worked, 90.0)
        assert second.stop() == 0, second.said()
        more(200)
        eventually(lambda: position(real_cluster, group, topic) == written, 60.0)
        assert first.stop() == 0, first.said()
    lines = first.lines() + second.lines()
    places = [(partition, offset) for partition, offset, _ in lines]
    assert len(places) == written, "each order is billed"
    assert len(set(places)) == written, "each order is billed once"
    assert_in_order(first.lines(), "first")
    assert_in_order(second.lines(), "second")


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_commit", "stats_cb"])
def test_a_callback_that_ends_the_program_ends_it_in_order(
    embedded_cluster: Cluster, topic: str, eventually: Eventually, name: str
) -> None:
    """Out of a callback, SystemExit lost records, and the client of one test never closed."""
    embedded_cluster.create_topic(topic, PARTITIONS)
    write(embedded_cluster, topic, orders(0, 300))
    group, done, calls = group_name(), list[int](), list[str]()

    def end(*_args: object) -> None:
        calls.append(name)
        if len(calls) == 1:
            sys.exit("enough")

    conf = client_conf(embedded_cluster, group, statistics_interval_ms=100)
    if name in ("on_commit", "stats_cb"):
        consumer = Consumer({**conf, name: end})
        consumer.subscribe([topic])
    else:
        consumer = Consumer(conf)
        consumer.subscribe([topic], **{name: end})
    app = KeyShared.wrap(consumer, workers=4, commit_interval=0.1)

    @app.handler
    def handle(record: Any) -> None:
        done.append(record.offset())
        if name == "on_revoke" and len(done) == 200:
            app.stop()

    ended: list[BaseException] = []

    def run() -> None:
        try:
            app.run()
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert [str(each) for each in ended] == ["enough"]
    assert app.report is not None
    assert app.report.clean
    assert position(embedded_cluster, group, topic) <= len(done), "nothing lost"
    again = KeyShared(conf, [topic], workers=4)
    again.handler(lambda record: done.append(record.offset()))
    rest = threading.Thread(target=again.run, daemon=True)
    rest.start()
    # The first may have done all of it before it ended.
    eventually(lambda: again.instance is not None and len(done) >= 300, 60.0)
    again.stop()
    rest.join(60)
    assert not rest.is_alive()
    assert len(done) == 300, "and nothing twice"
    consumer.close()


def test_the_users_own_callbacks_hear_of_every_rebalance(
    real_cluster: Cluster, topic: str, eventually: Eventually, tmp_path: Path
) -> None:
    """on_revoke comes when the last order of a partition is done: the counts add up."""
    real_cluster.create_topic(topic, PARTITIONS)
    write(real_cluster, topic, orders(0, 400))
    group, program = group_name(), EXAMPLES / "after" / "own_on_assign.py"
    with service(program, real_cluster, topic, group, tmp_path / "first") as first:
        eventually(lambda: len(first.lines()) == 400, 60.0)
        with service(program, real_cluster, topic, group, tmp_path / "second") as second:
            eventually(lambda: "now mine: [" in second.said(), 60.0)
            assert second.stop() == 0, second.said()
        assert first.stop() == 0, first.said()
    counted = [
        int(line.split(":")[1].split()[0])
        for line in first.said().splitlines()
        if line.startswith("partition ")
    ]
    assert "now mine: [0, 1, 2, 3]" in first.said()
    assert len(counted) >= PARTITIONS
    assert sum(counted) == len(first.lines()) == 400
