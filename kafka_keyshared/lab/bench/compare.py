"""``keyshared bench compare``: this package and alternatives on the same topic.

Each run is a process of its own with a fresh group. The systems take turns, round by round, and the
best of a system's rounds counts. A system that fails, or is not installed, is named and left out.
The others go on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.lab.bench.common import (
    Progress,
    group_of,
    key_of,
    open_cluster,
    produce_rows,
    require_positive,
    topic_of_our_own,
)
from kafka_keyshared.lab.bench.compare_paced import KNOCK_TIMEOUT, run_by_clock, waits_beside_hot
from kafka_keyshared.lab.bench.compare_rows import circumstances, hot_row, load, per_s, rows_of
from kafka_keyshared.lab.bench.compare_run import MeasuredRun, PeerError, run_system
from kafka_keyshared.lab.bench.fair import FairPlan
from kafka_keyshared.lab.bench.fair_side import OtherKeyWaits
from kafka_keyshared.lab.bench.figures import percentile
from kafka_keyshared.lab.bench.jars import compiled
from kafka_keyshared.lab.bench.paced import NS_PER_MS, STAMP, Pace
from kafka_keyshared.lab.bench.systems import System, every_system, system_of
from kafka_keyshared.lab.bench.workloads import (
    HOT_WORK,
    TRAFFIC,
    UNEVEN,
    WORKS,
    BenchJob,
    Traffic,
    judge,
    keys_of,
    read_notebook,
    value_of,
)
from kafka_keyshared.testing.clusters.cluster import Cluster

WORKING_SHARE = 10
"""A run has a tenth of the records if handlers do any work."""

WARM_SHARE = 0.25
"""The part of a paced run that does not count."""

OF_EACH_KEY = 20
"""Records of each key in checked runs with even keys: one record alone has no order."""

HOT_GRACE = 5.0
"""Extra seconds of runs with a hot key, beyond those in which records come: to begin and to end."""

HOT = FairPlan()
"""The traffic of runs with a hot key, which is that of ``bench fair``."""


class ComparePlan(msgspec.Struct, kw_only=True, frozen=True):
    """Parameters of a comparison. Empty ``systems``, ``traffic`` and ``work`` mean all of them.

    ``records`` are those of a run with the empty handler (0: no throughput). A run ends at the
    latest ``limit`` seconds after its first record, and counts the records done until then.
    ``rate`` is the rate of the latency runs in records per second, which last ``seconds`` (0:
    none). ``check`` are the records of the runs that check order (0: none). ``hot_seconds`` is the
    length of a run in which one key gets more than its handler can do (0: none), as in ``bench
    fair``.
    """

    systems: tuple[str, ...] = ()
    traffic: tuple[str, ...] = ()
    work: tuple[str, ...] = ()
    records: int = 1_000_000
    runs: int = 3
    partitions: int = 8
    keys: int = 10_000
    value_bytes: int = 100
    limit: float = 10.0
    rate: int = 1_000
    seconds: float = 10.0
    check: int = 2_000
    hot_seconds: float = 0.0

    def check_plan(self) -> None:
        """Raise :class:`ConfigError` for values that make no sense."""
        require_positive(self, "runs", "partitions", "keys", "rate")
        for name in self.systems:
            system_of(name)
        for option, given, known in (
            ("--traffic", self.traffic, TRAFFIC),
            ("--work", self.work, tuple(WORKS)),
        ):
            if unknown := [each for each in given if each not in known]:
                raise ConfigError(f"{option} {unknown[0]}: there are {', '.join(known)}")
        if not self.limit > 0 or min(self.records, self.seconds, self.check) < 0:
            raise ConfigError(
                "--limit must be above 0, --records, --seconds and --check not negative"
            )
        if self.hot_seconds and not self.hot_seconds >= 3:
            raise ConfigError(f"--hot-seconds {self.hot_seconds:g}: give 0, or at least 3")
        if self.value_bytes < STAMP.size:
            raise ConfigError(f"--value-bytes {self.value_bytes}: give at least {STAMP.size}")

    def all_systems(self) -> tuple[System, ...]:
        """Return the systems to compare, in the order asked for."""
        return tuple(map(system_of, self.systems)) or every_system()

    def all_traffic(self) -> tuple[Traffic, ...]:
        """Return the kinds of traffic to compare."""
        return tuple(each for each in TRAFFIC if not self.traffic or each in self.traffic)

    def all_work(self) -> tuple[str, ...]:
        """Return the kinds of handler work to compare."""
        return tuple(each for each in WORKS if not self.work or each in self.work)


def measure(plan: ComparePlan, cluster: Cluster, progress: Progress) -> dict[str, Any]:
    """Return the comparison. Raises :class:`KeySharedError` only when there was nothing to run."""
    plan.check_plan()
    with ExitStack() as stack:
        comparison = _Comparison(plan, cluster, progress, stack)
        before = load()
        for traffic in plan.all_traffic():
            comparison.check_order(traffic)
            for work in plan.all_work() if plan.records else ():
                comparison.throughput(traffic, work)
        comparison.latency()
        comparison.hot_key()
        return comparison.result(before)


def measure_at(plan: ComparePlan, bootstrap: str | None, progress: Progress) -> dict[str, Any]:
    """Compare on the cluster at this address, or on the best that can be started here."""
    plan.check_plan()
    with closing(open_cluster(bootstrap)) as cluster:
        return measure(plan, cluster, progress)


class _Comparison:
    """Runs a plan, and keeps the results."""

    def __init__(
        self, plan: ComparePlan, cluster: Cluster, progress: Progress, stack: ExitStack
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._progress = progress
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyshared-")))
        self._java: Sequence[str] = ()
        self._rows: list[dict[str, Any]] = []
        self._latency: list[dict[str, Any]] = []
        self._hot: list[dict[str, Any]] = []
        self._checked: list[dict[str, Any]] = []
        self._failed: list[dict[str, Any]] = []
        self._left_out: list[dict[str, str]] = []
        self._systems = [each for each in plan.all_systems() if self._can_run(each)]
        if any(system.family.java for system in self._systems):
            self._compile(stack)
        if not self._systems:
            raise KeySharedError("none of the systems asked for can run here")

    def _can_run(self, system: System) -> bool:
        why = system.missing()
        if why is not None:
            self._leave_out(system, why)
        return why is None

    def _leave_out(self, system: System, why: str) -> None:
        self._left_out.append({"system": system.name, "why": why})
        self._progress(f"{system.name} is left out: {why}")

    def _compile(self, stack: ExitStack) -> None:
        try:
            self._java = stack.enter_context(compiled())
        except MissingPartError as lacking:
            for system in (each for each in self._systems if each.family.java):
                self._leave_out(system, str(lacking))
            self._systems = [each for each in self._systems if not each.family.java]

    # --- throughput ---

    def throughput(self, traffic: Traffic, work: str) -> None:
        """Run every system in turn, as often as the plan says."""
        scenario = f"{traffic}/{work}"
        records = self._plan.records
        if not WORKS[work].empty:
            records = max(1, records // WORKING_SHARE)
        runs: dict[str, list[MeasuredRun]] = {system.name: [] for system in self._systems}
        broken: set[str] = set()
        with self._topic(keys_of(traffic, records, self._plan.keys)) as topic:
            for number in range(self._plan.runs):
                for system in self._systems:
                    if system.name in broken:
                        continue
                    job = self._job(system, topic, records, work)
                    try:
                        found = run_system(system, job, self._java)
                    except PeerError as failure:
                        broken.add(system.name)
                        self._fail(system, scenario, failure)
                        continue
                    runs[system.name].append(found)
                    self._progress(
                        f"{scenario}, run {number + 1} of {self._plan.runs}: {system.name} "
                        f"{per_s(found):,.0f}/s"
                    )
        self._rows += rows_of(scenario, records, runs)

    def _job(self, system: System, topic: str, records: int, work: str) -> BenchJob:
        return BenchJob(
            family=system.family.name,
            size=system.size,
            bootstrap=self._cluster.bootstrap,
            topic=topic,
            group=group_of(system.family.name),
            records=records,
            limit=self._plan.limit,
            work=work,
        )

    def _fail(self, system: System, scenario: str, failure: KeySharedError) -> None:
        self._failed.append({"system": system.name, "scenario": scenario, "why": str(failure)})
        self._progress(f"{scenario}: {system.name} failed: {failure}")

    @contextmanager
    def _topic(self, keys: Iterator[int]) -> Iterator[str]:
        """Create a topic with these keys' records; the key's number chooses its partition."""
        partitions, size = self._plan.partitions, self._plan.value_bytes
        with topic_of_our_own(self._cluster, partitions, self._progress) as topic:
            rows = (
                (value_of(number, key, size), key_of(key), key % partitions, None)
                for number, key in enumerate(keys)
            )
            produce_rows(self._cluster.bootstrap, topic, rows)
            yield topic

    # --- order ---

    def check_order(self, traffic: Traffic) -> None:
        """Run every system once with handlers that note their calls, and check the notes."""
        records = self._plan.check
        if not records:
            return
        keys = max(1, min(self._plan.keys, records // OF_EACH_KEY))
        with self._topic(keys_of(traffic, records, keys)) as topic:
            for system in self._systems:
                notebook = self._folder / f"{traffic}-{system.name}"
                job = self._job(system, topic, records, UNEVEN)
                job.notebook, job.limit = str(notebook), max(job.limit, 0.005 * records)
                try:
                    run_system(system, job, self._java)
                except PeerError as failure:
                    self._fail(system, f"{traffic}/order", failure)
                    continue
                found = judge(read_notebook(notebook), records)
                told = {"system": system.name, "traffic": traffic, **msgspec.to_builtins(found)}
                self._checked.append(told)
                broken = system.family.key_order and not found.in_order
                if broken or (system.family.at_least_once and found.missing):
                    self._fail(
                        system,
                        f"{traffic}/order",
                        PeerError(
                            f"it does not keep what it claims: {found.missing} records missing, "
                            f"{found.out_of_order} out of order, {found.overlapping} overlapping"
                        ),
                    )

    # --- latency ---

    def latency(self) -> None:
        """Send paced records to every system in turn, as often as the plan says."""
        if not self._plan.seconds:
            return
        best: dict[str, dict[str, Any]] = {}
        for number in range(self._plan.runs):
            for system in self._systems:
                try:
                    found = self._delays(system, f"latency-{number}-{system.name}")
                except KeySharedError as failure:
                    self._fail(system, "latency", failure)
                    continue
                self._progress(
                    f"latency, run {number + 1} of {self._plan.runs}: {system.name} p50 "
                    f"{found['p50_ms']} ms, p99 {found['p99_ms']} ms"
                )
                kept = best.get(system.name)
                if kept is None or found["p50_ms"] < kept["p50_ms"]:
                    best[system.name] = found
        bare = best.get("bare")
        for name, found in best.items():
            added = None if bare is None else round(found["p50_ms"] - bare["p50_ms"], 3)
            self._latency.append({"system": name, **found, "added_p50_ms": added})

    def _delays(self, system: System, name: str) -> dict[str, Any]:
        plan, bootstrap = self._plan, self._cluster.bootstrap
        records = max(4, int(plan.rate * plan.seconds))
        skip = int(records * WARM_SHARE)
        notebook = self._folder / name
        with topic_of_our_own(self._cluster, plan.partitions, self._progress) as topic:
            job = self._job(system, topic, records + plan.partitions, "empty")
            job.notebook, job.paced = str(notebook), True
            job.limit = plan.seconds + KNOCK_TIMEOUT
            pace = Pace(
                bootstrap=bootstrap,
                topic=topic,
                records=records,
                rate=plan.rate,
                skip=skip,
                partitions=plan.partitions,
                keys=plan.keys,
                value_bytes=plan.value_bytes,
            )
            found = run_by_clock(system, job, pace, self._java)
        delays = sorted(start - due for number, due, start, _ in found.notes if number >= skip)
        if len(delays) < records - skip:
            raise PeerError(f"{len(delays)} of {records - skip} records were seen")
        return {
            "rate": plan.rate,
            "p50_ms": round(percentile(delays, 0.5) / NS_PER_MS, 3),
            "p99_ms": round(percentile(delays, 0.99) / NS_PER_MS, 3),
            "peak_mib": found.measured.peak_mib,
            "producer_late_p99_ms": round(found.paced.late_p99_ms, 3),
        }

    # --- a hot key ---

    def hot_key(self) -> None:
        """Overload one key of every system in turn, as often as the plan says."""
        if not self._plan.hot_seconds:
            return
        waits: dict[str, list[OtherKeyWaits]] = {system.name: [] for system in self._systems}
        for number in range(self._plan.runs):
            for system in self._systems:
                try:
                    found = self._waits(system, f"hot-{number}-{system.name}")
                except KeySharedError as failure:
                    self._fail(system, "hot key", failure)
                    continue
                waits[system.name].append(found)
                self._progress(
                    f"hot key, run {number + 1} of {self._plan.runs}: {system.name} other keys "
                    f"p50 {found.others_p50_ms:.1f} ms, p99 {found.others_p99_ms:.1f} ms"
                )
        self._hot = [hot_row(name, found) for name, found in waits.items() if found]

    def _waits(self, system: System, name: str) -> OtherKeyWaits:
        records = int(HOT.rate * self._plan.hot_seconds)
        with topic_of_our_own(self._cluster, HOT.partitions, self._progress) as topic:
            job = self._job(system, topic, records + HOT.partitions, HOT_WORK)
            job.notebook, job.paced = str(self._folder / name), True
            job.limit = self._plan.hot_seconds + HOT_GRACE
            pace = Pace(
                bootstrap=job.bootstrap,
                topic=topic,
                records=records,
                rate=HOT.rate,
                skip=0,
                partitions=HOT.partitions,
                keys=HOT.keys,
                value_bytes=self._plan.value_bytes,
                hot_share=HOT.hot_share,
            )
            return waits_beside_hot(system, job, pace, self._java)

    def result(self, before: float) -> dict[str, Any]:
        """Return all results; ``before`` is the load of the machine at the start."""
        return {
            "kafka": self._cluster.kind,
            **circumstances(before),
            "runs": self._plan.runs,
            "limit": self._plan.limit,
            "rows": self._rows,
            "latency": self._latency,
            "hot_key": self._hot,
            "checked": self._checked,
            "systems": [system.about() for system in self._systems],
            "left_out": self._left_out,
            "failed": self._failed,
        }
