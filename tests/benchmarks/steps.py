"""Where each nanosecond per record goes: the owner's steps, and the bare loop's, one by one.

    python tests/benchmarks/steps.py [--partitions N]... [--workers thread:8] [--runs 3]

Each side runs in a process of its own, as in ``bench noop``, with a clock around each step: the
processor time of the thread that does it, without that of the steps inside. What the clocks
themselves take is measured beforehand and subtracted. The result is the median of the runs, with
the least and the most.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.lab.bench import side as bench_side
from kafka_keyshared.lab.bench.child import Side, read_task, tell_parent
from kafka_keyshared.lab.bench.common import (
    Progress,
    open_cluster,
    sides_of,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.noop import NoopPlan, fill
from kafka_keyshared.lab.bench.side import SideResult, Task
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.loop_stats import LoopStats
from kafka_keyshared.runtime.shutdown import StopReport
from kafka_keyshared.testing.clusters.cluster import Cluster

ROOT = Path(__file__).resolve().parents[2]

FETCH, COMMITS = "fetch: the client makes the messages", "commits"
LOOP = "the loop: handler, and messages freed"
ENDS = "received ends: which partitions a chunk has, and where the client stands"
CEILINGS, PARTITIONS = "ceilings", "begin of a partition: its first records are to be named"

STEPS = {
    FETCH: "client.kafka:KafkaClient.consume client.kafka:KafkaClient.poll",
    ENDS: """
        runtime.partition_ends:ReceivedPositions.behind client.kafka:KafkaClient.positions""",
    "remember: the columns of keys and values": "core.records.pristine:contents_of",
    "route: hash, table, append": "core.keys.extraction:OwnKeys.route",
    "window: counted, sizes sampled": """
        core.records.window:Window.receive runtime.fetch_quota:Room.values""",
    CEILINGS: """
        core.partitions.offset_ceilings:Ceilings.admit
        core.partitions.offset_ceilings:Ceilings.raise_all
        core.partitions.offset_ceilings:Ceilings.arrived
        core.subscription.subscription:Subscription.unpark
        core.limits.parked_records:Parking.park""",
    # The second is for one that begins where no offset is known, as with auto.offset.reset=error.
    PARTITIONS: """
        core.partitions.careful_starts:CarefulStarts.received
        core.partitions.offset_ceilings:Ceilings._begin_with""",
    "arrivals: when each partition's records came": "core.telemetry.meters:Arrivals.note",
    "lease: what may start, slices and their notes": "core.dispatch.lease_step:LeaseStep.run",
    "hand-over to the workers' inboxes": "runtime.loop:Loop.act",
    "reports: slices end, times and counts; messages freed": (
        "core.dispatch.report_intake:take_reports"
    ),
    "mailbox": "runtime.loop:Loop.serve",
    "the core's events": "core.dispatch.dispatcher:Dispatcher.handle",
    "the loop's turn": "runtime.instance:Instance.step runtime.loop:Loop.admit",
    "shares of a slow window": "runtime.partition_fairness:Shares.look",
    COMMITS: """
        runtime.loop:Loop._look_in_turn core.dispatch.dispatcher:Dispatcher._commit_due
        core.dispatch.dispatcher:Dispatcher._commit_answered client.kafka:KafkaClient.commit
        client.kafka:KafkaClient._on_commit""",
    "heartbeat": """
        core.dispatch.dispatcher:Dispatcher._beat runtime.watchdog:Watchdog.beat
        runtime.loop:Loop.pause_and_resume""",
    "the end: the stop and its commit": "runtime.instance:Instance.stop",
}
"""What is timed of each step: ``module:name`` below the package, and what they call but for others.

Nothing that is called for each record, and little for each slice: a clock takes a microsecond.
"""

ALL, CLOCK = "all threads, processor time", "a record, by the system's clock"
SLICES = "slices"
REST, WORKERS, CLIENT = "the owner besides", "workers, all of them", "the client's threads"


class Spent(msgspec.Struct):
    """What one run took: nanoseconds of processor time by step, and how often each was called."""

    result: SideResult
    own: dict[str, float]
    calls: dict[str, int]


class Account:
    """Nanoseconds of processor time of one thread, by step, each without the steps inside it."""

    def __init__(self, now: Callable[[], int] = time.thread_time_ns) -> None:
        self._now = now
        self.own: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self._inner = 0.0
        # What a clock takes: of the time that it measures, and besides of that of who called.
        self._within = self._around = 0.0
        self._calibrate()

    def clear(self) -> None:
        """Begin anew."""
        self.own.clear()
        self.calls.clear()

    def timed(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a clock around it."""
        now = self._now

        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            outer, self._inner = self._inner, 0.0
            began = now()
            try:
                return function(*args, **named)
            finally:
                whole = now() - began
                own = whole - self._inner - self._within
                self.own[step] = self.own.get(step, 0.0) + own
                self.calls[step] = self.calls.get(step, 0) + 1
                self._inner = outer + whole + self._around

        return call

    def _calibrate(self, calls: int = 20_000) -> None:
        nothing = self.timed("nothing", lambda: None)

        def many() -> None:
            for _ in range(calls):
                nothing()

        self.timed("many", many)()
        self._within = self.own["nothing"] / calls
        self._around = self.own["many"] / calls
        self.clear()

    def overhead(self) -> float:
        """Return what all clocks have taken that were read."""
        return sum(self.calls.values()) * (self._within + self._around)


def patch(account: Account) -> None:
    """Put a clock around each step of the package, in this process."""
    for step, places in STEPS.items():
        for place in places.split():
            module, _, name = place.partition(":")
            owner: Any = importlib.import_module(f"kafka_keyshared.{module}")
            *path, last = name.split(".")
            for part in path:
                owner = getattr(owner, part)
            setattr(owner, last, account.timed(step, getattr(owner, last)))


class Between:
    """Processor time of a thread, of workers beside it, and of their whole process, in a span.

    The process is read first at the beginning and last at the end, so what is left for the other
    threads is never less than they took.
    """

    def __init__(self) -> None:
        self._began = self._ended = 0, 0, 0
        # The clock of each, and what it said when the worker came: it may come after the beginning.
        self._workers: list[tuple[int, int]] = []
        self.begun = False

    def add_worker(self) -> None:
        """Count the calling thread as a worker; it has to live until the end."""
        clock = time.pthread_getcpuclockid(threading.get_ident())
        self._workers.append((clock, time.clock_gettime_ns(clock)))

    def begin(self) -> None:
        """Begin here."""
        process = time.process_time_ns()
        self._began = time.thread_time_ns(), self._of_workers(), process
        self.begun = True

    def end(self) -> None:
        """End here, until it ends later."""
        workers = self._of_workers()
        self._ended = time.thread_time_ns(), workers, time.process_time_ns()

    def took(self) -> tuple[int, int, int]:
        """Return the nanoseconds of the thread, of the workers, and of all other threads."""
        mine, workers, every = (
            after - at for at, after in zip(self._began, self._ended, strict=True)
        )
        return mine, workers, every - mine - workers

    def _of_workers(self) -> int:
        return sum(time.clock_gettime_ns(clock) - came for clock, came in self._workers)


def spend(task: Task) -> Spent:
    """Run the package with clocks; what counts is from the first record on."""
    account, between = Account(), Between()
    patch(account)
    loop_stats: Any = LoopStats
    pool: Any = ThreadPool
    instance: Any = Instance
    took_in, submit, run_given = LoopStats.took_in, ThreadPool.submit, ThreadPool.run_given
    stop = Instance.stop
    slices = itertools.count()

    def first_begins(stats: LoopStats, count: int, now: float) -> None:
        if stats.first_record_at is None:
            account.clear()
            between.begin()
        took_in(stats, count, now)

    def submit_and_count(*args: Any) -> None:
        next(slices)
        submit(*args)

    def run_as_worker(*args: Any) -> bool:
        between.add_worker()
        return run_given(*args)

    def stop_ends(*args: Any) -> StopReport:
        report = stop(*args)
        between.end()
        return report

    loop_stats.took_in, pool.submit, pool.run_given = first_begins, submit_and_count, run_as_worker
    instance.stop = stop_ends
    result = bench_side.run_keyshared(task)
    owner, workers, others = between.took()
    own = {step: account.own.get(step, 0.0) for step in STEPS}
    own[REST] = owner - sum(account.own.values()) - account.overhead()
    own[WORKERS], own[CLIENT] = workers, others
    return Spent(result, own, {**account.calls, SLICES: next(slices)})


def spend_bare(task: Task) -> Spent:
    """Run the bare loop with clocks around what it asks of the client."""
    account, between = Account(), Between()
    own = dict.fromkeys((FETCH, COMMITS), 0.0)
    overhead = 0.0

    class Timed(Consumer):
        consume = account.timed(FETCH, Consumer.consume)
        position = account.timed(COMMITS, Consumer.position)
        commit = account.timed(COMMITS, Consumer.commit)

    def noted(_done: int) -> None:
        nonlocal own, overhead
        if not between.begun:
            account.clear()
            between.begin()
        between.end()
        own, overhead = {**own, **account.own}, account.overhead()

    module: Any = bench_side
    module.Consumer = Timed
    result = bench_side.run_bare(task, noted)
    loop, _, others = between.took()
    own[LOOP] = loop - sum(own.values()) - overhead
    return Spent(result, {**own, CLIENT: others}, account.calls)


def run_spending(task: Task) -> Spent:
    """Return what a side takes, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.steps", "side"],
        input=msgspec.json.encode(task),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        raise KeySharedError(f"the {task.side} side ended with status {done.returncode}")
    return msgspec.json.decode(done.stdout, type=Spent)


def measure(
    plans: Sequence[NoopPlan], cluster: Cluster, progress: Progress
) -> list[dict[Side, list[Spent]]]:
    """Return for each plan what both sides took in each run; plans and sides take turns."""
    found: list[dict[Side, list[Spent]]] = [{"bare": [], "keyshared": []} for _ in plans]
    with ExitStack() as stack:
        topics = [
            stack.enter_context(topic_of_our_own(cluster, plan.partitions, progress))
            for plan in plans
        ]
        for plan, topic in zip(plans, topics, strict=True):
            fill(cluster.bootstrap, topic, plan)
        for number in range(plans[0].repeat):
            for plan, topic, into in zip(plans, topics, found, strict=True):
                for side in sides_of(number):
                    spent = run_spending(plan.task(side, cluster.bootstrap, topic))
                    into[side].append(spent)
                    progress(
                        f"{plan.partitions} partitions, {plan.workers}, {side}: "
                        f"{spent.result.seconds / plan.records * 1e9:,.0f} ns a record"
                    )
    return found


def figures(plan: NoopPlan, spents: Sequence[Spent]) -> dict[str, list[float]]:
    """Return nanoseconds per record of each run, by step, all of them, and by the system's clock.

    Threads run beside one another and wait for one another, so the sum is not what the clock says.
    """
    steps = dict.fromkeys(step for each in spents for step in each.own)
    found = {step: [each.own[step] for each in spents] for step in steps}
    found[ALL] = [sum(each.own.values()) for each in spents]
    found[CLOCK] = [each.result.seconds * 1e9 for each in spents]
    return {step: [ns / plan.records for ns in each] for step, each in found.items()}


def calls(plan: NoopPlan, spents: Sequence[Spent]) -> dict[str, float]:
    """Return how often each step is called for 10,000 records, in the median."""
    steps = dict.fromkeys(step for each in spents for step in each.calls)
    return {
        step: round(
            statistics.median(each.calls.get(step, 0) * 10_000 / plan.records for each in spents), 2
        )
        for step in steps
    }


def table(plans: Sequence[NoopPlan], found: Sequence[Mapping[Side, Sequence[Spent]]]) -> str:
    """Return nanoseconds per record by step, in Markdown: medians, the least and the most."""
    head = ["step", *(f"{plan.partitions} partitions, {plan.workers}" for plan in plans)]
    lines = [head, ["---"] * len(head)]
    sides: tuple[Side, ...] = ("bare", "keyshared")
    for side in sides:
        columns = [figures(plan, each[side]) for plan, each in zip(plans, found, strict=True)]
        lines += [
            [f"{side}: {step}", *(_shown(column[step]) for column in columns)]
            for step in columns[0]
        ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shown(ns: Sequence[float]) -> str:
    return f"{statistics.median(ns):,.1f} ({min(ns):,.1f} to {max(ns):,.1f})"


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table; return the exit status."""
    parser = argparse.ArgumentParser(description="Take a record's way apart, step by step.")
    parser.add_argument("what", nargs="?", choices=("measure", "side"), default="measure")
    parser.add_argument("--partitions", type=int, action="append", help="repeatable; 8")
    parser.add_argument("--workers", default="thread:8")
    parser.add_argument("--records", type=int, default=NoopPlan().records)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("-b", "--bootstrap", help="measure on this cluster, not on one of our own")
    options = parser.parse_args(arguments)
    if options.what == "side":
        task = read_task(Task)
        tell_parent(spend_bare(task) if task.side == "bare" else spend(task))
        return 0
    with closing(open_cluster(options.bootstrap)) as cluster:
        plans = [
            NoopPlan(
                records=options.records,
                partitions=partitions,
                workers=options.workers,
                repeat=options.runs,
            ).that_fits(cluster)
            for partitions in options.partitions or (NoopPlan().partitions,)
        ]
        found = measure(plans, cluster, _note)
    sys.stdout.write(table(plans, found))
    for plan, each in zip(plans, found, strict=True):
        by_partition = calls(plan, each["keyshared"])
        _note(f"calls for 10,000 records, {plan.partitions} partitions: {json.dumps(by_partition)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
