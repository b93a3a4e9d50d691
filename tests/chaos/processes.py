"""Starts, signals and watches the incarnations of ``child.py``; reads what they left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.audit.judge import Judgement, judge
from kafka_keyshared.audit.ledger import MemoryLedger, read_ledgers
from kafka_keyshared.local.cluster import Cluster
from tests.support.live import group_name

CHILD = Path(__file__).with_name("child.py")
ROOT = CHILD.parents[2]


class Incarnation:
    """One running child."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.ledger_path = Path(settings["directory"]) / f"{settings['name']}.ledger"
        self._stderr = Path(settings["directory"]) / f"{settings['name']}.stderr"
        with self._stderr.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), json.dumps(settings)], cwd=ROOT, stderr=sink
            )

    def log(self) -> str:
        """What it has written to stderr so far."""
        return self._stderr.read_text("utf-8", "replace")

    def ended(self) -> int:
        """How many handler calls its ledger says have ended."""
        return self.ledger_path.read_bytes().count(b'["end"') if self.ledger_path.exists() else 0

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it alone."""
        assert self.process.poll() is None, f"it has ended by itself:\n{self.log()}"
        self.process.send_signal(number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end and return its status."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(30)


class Scene:
    """A topic, a group and the incarnations of one test."""

    def __init__(self, cluster: Cluster, topic: str, directory: Path) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = group_name()
        self.directory = directory
        self.written = MemoryLedger("producer")
        self._running: list[Incarnation] = []

    def start(self, name: str, **behaviour: Any) -> Incarnation:
        """Start an incarnation."""
        settings = {
            "bootstrap": self.cluster.bootstrap,
            "topic": self.topic,
            "group": self.group,
            "directory": str(self.directory),
            "name": name,
            **behaviour,
        }
        self._running.append(Incarnation(settings))
        return self._running[-1]

    def committed(self) -> list[int]:
        """The group's position in each partition, -1001 where there is none."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group})
        try:
            numbers = consumer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            asked = [ClientPartition(self.topic, number) for number in sorted(numbers)]
            return [found.offset for found in consumer.committed(asked, timeout=10)]
        finally:
            consumer.close()

    def until(self, condition: Any, incarnation: Incarnation, seconds: float = 60.0) -> None:
        """Wait until it is so; fail with the incarnation's log when it is not, or when it ends."""
        pause = threading.Event()
        deadline = time.monotonic() + seconds
        while not condition():
            ended = incarnation.process.poll()
            assert ended is None, f"it ended with {ended}:\n{incarnation.log()[-4_000:]}"
            assert time.monotonic() < deadline, (
                f"not so in {seconds} s:\n{incarnation.log()[-4_000:]}"
            )
            pause.wait(0.05)

    def all_committed(self) -> bool:
        """Whether the group's positions are at the end of what was written."""
        total = sum(1 for _ in self.written.events)
        return sum(max(0, position) for position in self.committed()) >= total

    def verdict(self) -> Judgement:
        """Judge what all incarnations left behind."""
        verdict = judge([self.written, *read_ledgers(self.directory)])
        assert verdict.totals.produced > 0
        assert verdict.totals.attempts > 0
        return verdict

    def close(self) -> None:
        """End whatever still runs."""
        for incarnation in self._running:
            if incarnation.process.poll() is None:
                incarnation.kill()
