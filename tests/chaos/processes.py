"""Starts, signals and watches the incarnations of ``child.py``; reads what they left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.core.routing.ring import ROUTING_VNODES, VnodeRing
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.observability.audit.judge import Judgement, judge
from kafka_keyshared.observability.audit.ledger import (
    MemoryLedger,
    OwnershipChanged,
    Started,
    read_ledger,
    read_ledgers,
)
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.commits import falls, stored_commits
from tests.support.live_cluster import Written, await_coordinator, group_name, letters, write

ROOT = Path(__file__).parents[2]

WORKERS = 8
PARTITIONS = 4
RECORDS = 4_000
KEYS = 61

CONF: dict[str, Any] = {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
}

DEFAULT_LEAST_SESSION = 6_000
"""A broker with default settings (``group.min.session.timeout.ms``) accepts nothing shorter."""

MORTAL_BROKER: dict[str, Any] = {
    "log_level": 2,  # or the log holds little but refused connections
    "reconnect.backoff.max.ms": 500,
    # A killed broker takes unacknowledged commits along: they are to be sent again soon.
    "socket.timeout.ms": 3_000,
}

RANGE = {"partition.assignment.strategy": "range"}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
# KIP-848; its session and heartbeat are the broker's to say.
CONSUMER = {
    "group.protocol": "consumer",
    "session.timeout.ms": None,
    "heartbeat.interval.ms": None,
}


def stream(count: int, keys: int = KEYS) -> list[Written]:
    """Return records of so many keys in turn."""
    return [(b"key-%d" % (number % keys), b"%d" % number) for number in range(count)]


def gated_keys() -> list[bytes]:
    """Return a key for each partition, of different workers: so their handlers run together."""
    ring = VnodeRing([f"worker-{index}" for index in range(WORKERS)], ROUTING_VNODES)
    by_worker = {ring.owner(slot_of(key)): key for key in (b"gated-%d" % n for n in range(100))}
    return list(by_worker.values())[:PARTITIONS]


class Incarnation:
    """One running child; ``program`` is the module beside this one that it runs."""

    def __init__(self, settings: dict[str, Any], program: str = "child") -> None:
        self.name: str = settings["name"]
        self.ledger_path = Path(settings["directory"]) / f"{self.name}.ledger"
        self._stderr = Path(settings["directory"]) / f"{self.name}.stderr"
        self._read = self._ended = 0
        with self._stderr.open("wb") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.chaos.{program}", json.dumps(settings)],
                cwd=ROOT,
                stderr=sink,
            )

    def log(self) -> str:
        """What it has written to stderr so far."""
        return self._stderr.read_text("utf-8", "replace")

    def said(self, words: str, times: int = 1) -> Callable[[], bool]:
        """Return the condition that these words have been written so often."""
        return lambda: self.log().count(words) >= times

    def ended(self) -> int:
        """How many handler calls its ledger says have ended."""
        if self.ledger_path.exists():
            with self.ledger_path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self._ended += whole.count(b'["end"')
        return self._ended

    def owned(self) -> int:
        """How many partitions it holds by its ledger."""
        held: set[tuple[str, int]] = set()
        for event in read_ledger(self.ledger_path).events if self.ledger_path.exists() else ():
            if isinstance(event, OwnershipChanged):
                change = held.add if event.change == "assigned" else held.discard
                change((event.topic, event.partition))
        return len(held)

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it alone."""
        assert self.running, f"it has ended by itself:\n{self.log()}"
        self.process.send_signal(number)

    def wait(self, seconds: float = 60.0) -> int:
        """Wait for its end and return its status; where it hangs goes into the failure."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            threading.Event().wait(1.0)
            raise AssertionError(
                f"{self.name} has not ended in {seconds} s:\n{self.log()}"
            ) from None

    def terminate(self) -> None:
        """Stop it with SIGTERM and see that it says so and ends with 0."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.log()[-4_000:]
        assert "drained; committed" in self.log(), self.log()[-4_000:]

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.process.wait(30)

    def freeze(self) -> int:
        """Stop it with SIGSTOP; returns the monotonic time in ns when every thread stood still."""
        self.signal(signal.SIGSTOP)
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it has ended:\n{self.log()}"
        return time.monotonic_ns()

    def thaw(self) -> int:
        """Let it go on with SIGCONT; returns the monotonic time in ns just before."""
        at = time.monotonic_ns()
        self.signal(signal.SIGCONT)
        return at


class Scene:
    """A topic, a group and the incarnations of one test. ``conf`` is for every client of it."""

    def __init__(
        self, cluster: Cluster, topic: str, directory: Path, conf: dict[str, Any] | None = None
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.group = group_name()
        self.directory = directory
        self.conf = conf or {}
        self.written = MemoryLedger("producer")
        self.all: list[Incarnation] = []

    def start(self, name: str, *, program: str = "child", **behaviour: Any) -> Incarnation:
        """Start an incarnation."""
        conf = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": self.group,
            **CONF,
            **self.conf,
        }
        if not isinstance(self.cluster, RealCluster) and conf["session.timeout.ms"]:
            conf["session.timeout.ms"] = max(DEFAULT_LEAST_SESSION, conf["session.timeout.ms"])
        settings = {
            "conf": {key: value for key, value in conf.items() if value is not None},
            "topic": self.topic,
            "directory": str(self.directory),
            "name": name,
            **behaviour,
        }
        self.all.append(Incarnation(settings, program))
        return self.all[-1]

    def write(self, records: Iterable[Written], partition: int = -1) -> None:
        """Write records, and into the producer's ledger that they are there."""
        write(self.cluster, self.topic, records, self.written, partition=partition)

    def keep_busy(self, ahead: int = 1_000) -> None:
        """Write more when less than this much work is left."""
        if len(self.written.events) - sum(each.ended() for each in self.all) < ahead:
            self.write(stream(ahead))

    def open(self, gate: str) -> None:
        """Let everybody through the gate of that name, from now on."""
        (self.directory / gate).touch()

    def committed(self) -> list[int]:
        """The group's position in each partition, -1001 where there is none."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group})
        try:
            numbers = consumer.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            # A broker that had no turn for seconds is nobody's coordinator for a moment.
            await_coordinator(consumer, self.topic)
            asked = [ClientPartition(self.topic, number) for number in sorted(numbers)]
            return [found.offset for found in consumer.committed(asked, timeout=10)]
        finally:
            consumer.close()

    def until(
        self, condition: Callable[[], bool], *alive: Incarnation, seconds: float = 60.0
    ) -> None:
        """Wait until it is so; fail with the logs when it is not, or when one of them ends."""
        pause = threading.Event()
        deadline = time.monotonic() + seconds
        while not condition():
            for each in alive:
                ended = each.process.poll()
                assert ended is None, f"{each.name} ended with {ended}:\n{each.log()[-4_000:]}"
            assert time.monotonic() < deadline, f"not so in {seconds} s:\n" + "\n".join(
                f"--- {each.name}\n{each.log()[-3_000:]}" for each in alive
            )
            pause.wait(0.05)

    def all_committed(self) -> bool:
        """Whether the group's positions are at the end of what was written."""
        return sum(max(0, position) for position in self.committed()) >= len(self.written.events)

    def drain(self, *running: Incarnation, seconds: float = 90.0) -> None:
        """Wait until everything is committed, then stop the last members cleanly."""
        self.until(self.all_committed, *running, seconds=seconds)
        for each in running:
            each.terminate()

    def ledgers(self) -> list[MemoryLedger]:
        """Return what everybody left behind, the producer included."""
        return [self.written, *read_ledgers(self.directory)]

    def letters(self, dlq: str) -> MemoryLedger:
        """Read back every dead letter that is in that topic."""
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": self.group})
        try:
            count = 0
            for number in consumer.list_topics(dlq, timeout=10).topics[dlq].partitions:
                bounds = consumer.get_watermark_offsets(ClientPartition(dlq, number), timeout=10)
                assert bounds is not None
                count += bounds[1] - bounds[0]
        finally:
            consumer.close()
        return letters(self.cluster, dlq, count)

    def verdict(self, *more: MemoryLedger) -> Judgement:
        """Judge what all incarnations left behind; the broker's own list of commits never falls."""
        fell = falls(stored_commits(self.cluster, self.group))
        assert not fell, fell
        return self.judged(*self.ledgers(), *more)

    def judged(self, *ledgers: MemoryLedger) -> Judgement:
        """Judge these ledgers, having seen to it that there was something to judge."""
        verdict = judge(ledgers)
        assert verdict.totals.produced > 0
        assert verdict.totals.attempts > 0
        return verdict

    def close(self) -> None:
        """End whatever still runs."""
        for incarnation in self.all:
            if incarnation.running:
                incarnation.kill()


def attempts_of(ledger: MemoryLedger) -> list[Started]:
    """Return the handler calls of an incarnation, in the order of its ledger."""
    return [event for event in ledger.events if isinstance(event, Started)]


def assert_clean(verdict: Judgement) -> None:
    """Fail with the verdict in words unless every count is 0."""
    assert verdict.clean, "\n".join(verdict.lines())
    assert verdict.duplicates_after_commit.count == 0


def assert_nothing_but_duplicates(verdict: Judgement) -> None:
    """Nothing lost, reordered or overlapping; what ran again was not covered by a commit."""
    counts = verdict.counts()
    counts.pop("duplicates")
    assert not any(counts.values()), "\n".join(verdict.lines())
    assert verdict.duplicates_after_commit.count == 0, verdict.duplicates_after_commit.examples
