"""Carries out a scenario on a real cluster, and gathers what its judge wants to know."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.audit.ledger import read_ledgers
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import admin_client
from tests.chaos.pools import workers_of
from tests.chaos.processes import MORTAL_BROKER, Incarnation, Scene
from tests.chaos.soak_child import DRAIN
from tests.chaos.soak_evidence import NS, Evidence, Fault, Life
from tests.chaos.soak_judge import STOP_TIMEOUT
from tests.chaos.soak_live import Watch, Writer, new_partitions
from tests.chaos.soak_schedule import ATTEMPTS, BLOCKED, MAIN, Scenario, Step
from tests.support.commits import stored_commits

AHEAD = {MAIN: 9_000, BLOCKED: 600}
"""So many records wait at any moment; more than any member's window."""

BIG_VALUES = 1_500
TICK = 0.05
LOOK_EVERY = 1.0
WEIGH_EVERY = 5.0
DRAIN_SECONDS = 150.0
STOP_WAIT = 90.0
DRY = 0.1

OPTIONS: dict[str, Any] = {
    "window_bytes": 16 << 20,
    "commit_interval": 0.5,
    "stop_timeout": STOP_TIMEOUT,
    "retry": {"attempts": ATTEMPTS, "backoff": 0.05, "jitter": 0.2},
}


class Soak:
    """One soak. ``fault`` is planted in every member; ``say`` is told what happens.

    ``ahead`` says how many records of each topic wait at any moment, ``drain_seconds`` how long
    what is left at the end may take.
    """

    def __init__(
        self,
        scenario: Scenario,
        cluster: RealCluster,
        directory: Path,
        *,
        fault: str | None = None,
        say: Callable[[str], None] = lambda _line: None,
        ahead: dict[str, int] | None = None,
        drain_seconds: float = DRAIN_SECONDS,
    ) -> None:
        self._scenario = scenario
        self._cluster = cluster
        self._fault = fault
        self._say = say
        self._ahead = ahead or AHEAD
        self._drain_seconds = drain_seconds
        self._scene = Scene(cluster, MAIN, directory, {**MORTAL_BROKER, **scenario.conf()})
        self._watch = Watch(directory)
        self._writer: Writer | None = None
        self._running: dict[str, Incarnation] = {}
        self._lives: dict[str, Life] = {}
        self._frozen: set[str] = set()
        self._faults: list[Fault] = []
        self._later: list[tuple[int, Callable[[], None]]] = []
        self._helpers = ThreadPoolExecutor(2)
        self._work: list[Future[None]] = []
        self._carried_out: list[tuple[int, Step]] = []
        self._up: set[str] = set()
        self._start = 0
        self._dry = 0.0

    def run(self) -> Evidence:
        """Carry everything out; whatever was started has ended when this returns."""
        cluster, scenario = self._cluster, self._scenario
        cluster.create_topic(MAIN, scenario.partitions)
        cluster.create_topic(BLOCKED, 2)
        cluster.create_topic(f"{MAIN}.dlq", 2)
        self._writer = Writer(cluster, scenario)
        try:
            self._top_up()
            self._writer.wait()
            self._start = time.monotonic_ns()
            for name in scenario.first:
                self._join(name)
            self._carry_out()
            drain, drained = self._drain()
            end = time.monotonic_ns()
            self._stop_all()
            return self._evidence(drain, end, drained)
        finally:
            self._end_all()

    # --- the steps ---

    def _carry_out(self) -> None:
        steps = list(self._scenario.steps)
        late = 0.0  # a broker may take its time to come back; all that follows then waits
        while self._now() < self._scenario.seconds + late:
            while steps and steps[0].at + late <= self._now() and self._ready():
                step = steps.pop(0)
                late = max(late, self._now() - step.at - 2 * TICK)
                self._say(f"{self._now():.1f} s: {step}")
                self._carried_out.append((time.monotonic_ns(), step))
                self._do(step)
            self._tick(writing=True)

    def _ready(self) -> bool:
        """Whether the last fault is over and every member has got as far as reading.

        One that is still starting gives up without a broker, and knows nothing of a signal yet.
        """
        return not (self._later or self._work) and self._up >= set(self._running)

    def _do(self, step: Step) -> None:
        what = step.what
        life = self._lives.get(step.who)
        if life is not None and step.who not in self._running:
            return  # it has ended by itself, and the judge will say so
        if what == "start":
            self._join(step.who)
        elif what == "stop":
            self._ask_to_stop(step.who)
        elif what == "kill":
            self._faults.append(Fault(what, step.who, time.monotonic_ns(), time.monotonic_ns()))
            self._lives[step.who].killed = True
            self._running[step.who].kill()
        elif what in ("nap", "coma"):
            self._stand_still(step)
        elif what == "grow":
            self._grow(step.amount)
        elif what == "big values":
            assert self._writer is not None
            self._writer.big_values(BIG_VALUES)
        else:
            self._outage(step)

    def _join(self, name: str) -> None:
        plan = self._scenario.plans[name]
        workers = workers_of(plan.pool, plan.workers)
        options = {**OPTIONS, "workers": workers, "window_records": plan.window}
        if plan.topic == MAIN:
            options["dlq"] = True
        self._lives[name] = Life(name, plan.topic, plan.workers, time.monotonic_ns())
        self._running[name] = self._scene.start(
            name,
            program="soak_child",
            topic=plan.topic,
            pause=plan.pause,
            pool=plan.pool,
            options=options,
            fault=self._fault,
        )

    def _ask_to_stop(self, name: str) -> None:
        self._lives[name].asked = time.monotonic_ns()
        self._running[name].signal(signal.SIGTERM)

    def _stand_still(self, step: Step) -> None:
        member = self._running[step.who]
        fault = Fault(step.what, step.who, member.freeze())
        self._faults.append(fault)
        self._frozen.add(step.who)

        def wake() -> None:
            fault.end = member.thaw()
            self._frozen.discard(step.who)

        self._after(step.seconds, wake)

    def _grow(self, partitions: int) -> None:
        new_partitions(self._cluster, MAIN, partitions)
        assert self._writer is not None
        self._writer.grow(partitions)

    def _outage(self, step: Step) -> None:
        fault = Fault(step.what, step.who, time.monotonic_ns())
        self._faults.append(fault)
        if step.what == "freeze broker":
            pid = self._cluster.pids[int(step.who) - 1]
            os.kill(pid, signal.SIGSTOP)

            def wake() -> None:
                os.kill(pid, signal.SIGCONT)
                fault.end = time.monotonic_ns()

            self._after(step.seconds, wake)
            return
        broker = int(step.who) if step.what == "kill broker" else None
        if broker is not None and self._scenario.brokers > 1:
            fault.partitions = self._led_by(broker)
        self._cluster.kill(broker)
        if step.what == "stop in outage":
            self._ask_to_stop(step.who)

        def restart() -> None:
            self._cluster.restart(broker)
            fault.end = time.monotonic_ns()

        self._after(step.seconds, lambda: self._work.append(self._helpers.submit(restart)))

    def _led_by(self, broker: int) -> frozenset[TopicPartition]:
        topics = admin_client(self._cluster.bootstrap).list_topics(timeout=10).topics
        return frozenset(
            TopicPartition(name, number)
            for name in (MAIN, BLOCKED)
            for number, partition in topics[name].partitions.items()
            if partition.leader == broker
        )

    # --- what goes on all the time ---

    def _now(self) -> float:
        return (time.monotonic_ns() - self._start) / NS

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._later.append((time.monotonic_ns() + int(seconds * NS), action))

    _looked = _weighed = 0.0

    def _tick(self, *, writing: bool) -> None:
        threading.Event().wait(TICK)
        due = [each for each in self._later if each[0] <= time.monotonic_ns()]
        for each in due:
            self._later.remove(each)
            each[1]()
        for future in [each for each in self._work if each.done()]:
            self._work.remove(future)
            future.result()
        assert self._writer is not None
        self._writer.serve()
        now = self._now()
        if now - self._looked >= LOOK_EVERY:
            passed, self._looked = now - self._looked, now
            self._watch.look()
            for name, member in self._running.items():
                if name not in self._up and member.said("INFO started: ")():
                    self._up.add(name)
            left = self._writer.count(MAIN) - self._watch.count(MAIN)
            if writing:
                self._dry += passed if left < DRY * self._ahead[MAIN] else 0.0
                self._top_up()
        if now - self._weighed >= WEIGH_EVERY:
            self._weighed = now
            self._weigh()
        self._bury()

    def _top_up(self) -> None:
        assert self._writer is not None
        for topic, ahead in self._ahead.items():
            self._writer.write(
                topic, ahead - (self._writer.count(topic) - self._watch.count(topic))
            )

    def _bury(self) -> None:
        for name, member in list(self._running.items()):
            status = member.process.poll()
            if status is not None:
                del self._running[name]
                life = self._lives[name]
                life.end, life.status = time.monotonic_ns(), status
                life.last_words = "\n".join(member.log().splitlines()[-3:])

    def _weigh(self) -> None:
        pids = {member.process.pid: name for name, member in self._running.items()}
        if not pids:
            return
        asked = ["ps", "-o", "pid=,rss=", "-p", ",".join(map(str, pids))]
        found = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        now = time.monotonic_ns()
        for line in found.stdout.splitlines():
            pid, kib = line.split()
            if int(kib) > 0:  # it has just ended
                self._lives[pids[int(pid)]].memory.append((now, int(kib) / 1024))

    # --- the end ---

    def _drain(self) -> tuple[int, bool]:
        """Let everything be done that was written; say when that began, and whether it was."""
        assert self._writer is not None
        began = time.monotonic_ns()
        self._say(f"{self._now():.1f} s: nothing more is written")
        # All faults are to be over, and one member of each topic there.
        while self._later or self._work:
            self._tick(writing=False)
        self._writer.wait()
        self._scene.open(DRAIN)
        owed = self._writer.owed()
        deadline = self._now() + self._drain_seconds
        done = False
        while not done and self._now() < deadline and self._running:
            self._tick(writing=False)
            done = self._watch.has_all(owed) and self._all_committed()
        return began, done

    _asked = 0.0

    def _all_committed(self) -> bool:
        """Whether the positions in the topic where nothing blocks are at the end."""
        if self._now() - self._asked < LOOK_EVERY:
            return False
        self._asked = self._now()
        assert self._writer is not None
        return sum(max(0, each) for each in self._scene.committed()) >= self._writer.count(MAIN)

    def _stop_all(self) -> None:
        self._say(f"{self._now():.1f} s: the last members are stopped, one after another")
        for name in list(self._running):
            if self._lives[name].asked is None:
                self._ask_to_stop(name)
            deadline = self._now() + STOP_WAIT
            while name in self._running and self._now() < deadline:
                self._tick(writing=False)

    def _end_all(self) -> None:
        """Leave nothing behind, whatever happened."""
        for member in self._running.values():
            if member.running:
                member.process.kill()
                member.process.wait(30)
        self._helpers.shutdown(cancel_futures=True)
        for pid in self._cluster.pids:
            os.kill(pid, signal.SIGCONT)

    def _evidence(self, drain: int, end: int, drained: bool) -> Evidence:
        assert self._writer is not None
        for life in self._lives.values():
            life.end = time.monotonic_ns() if life.name in self._running else life.end
        letters = self._scene.letters(f"{MAIN}.dlq")
        return Evidence(
            self._scenario,
            self._writer.ledger,
            read_ledgers(self._scene.directory),
            self._writer.written,
            list(self._lives.values()),
            self._faults,
            self._start,
            drain,
            end,
            drained,
            letters,
            stored_commits(self._cluster, self._scene.group),
            self._dry,
            {each.name: each.log() for each in self._scene.all},
            self._carried_out,
        )
