"""What order costs on Spark, and what it gains: two sides that take turns in one run.

plain      a batch against a plain PySpark job that reads the same topic, groups by key and applies
           the same handler in pandas, without order and without commits; both in one warm session
blocks     the same with on_exhausted="block", where batches are bounded by what may stay behind
executors  two executors of one core against one, with a handler that computes; each side a session
           of its own, warmed by a small topic
memory     the most memory of an executor's processes, for a batch and for ten times as much
start      from the start of the command to the first record, cold, beside a script of PySpark
audit      the time and memory of `keyshared spark audit` over a log of so many records
planted    the same verb over a clean log, and over one with a fault of each kind in it

Prints JSON. It fails where something did not happen that was to be measured, and leaves it to the
reader to judge figures by the load that stands beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.spark_run import by_value
from kafka_keyshared.cli.spark_wanted import wanted_of
from kafka_keyshared.lab.bench.processes import watched
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver.run import run_batches
from kafka_keyshared.spark.jars import needed_files
from kafka_keyshared.spark.session import Session, SparkOptions, start
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.benchmarks.auditing import KEYSHARED, measure_audit, measure_planted
from tests.benchmarks.cpu_meter import CpuMeter

PARTITIONS = 4
KEYS = 1_000
WORKERS = 8
OUT = "KEYSHARED_BENCH_OUT"

# Both tell the moment of the first record by the clock that all processes of a machine share.
_HANDLER = """
import os, time

def handle(record):
    try:
        with open({first!r}, "x") as file:
            file.write(str(time.monotonic()))
    except FileExistsError:
        pass
"""
_SCRIPT = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.jars", {jars!r}).getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
found = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", {bootstrap!r})
    .option("subscribe", "started")
    .load()
)
{handler}

def each(frame):
    for value in frame["value"]:
        handle(value)
    return frame[["partition"]]

grouped = found.select("key", "value", "partition").groupBy("key")
grouped.applyInPandas(each, "partition int").count()
"""


def produced(cluster: Cluster, topic: str, records: int, padding: int = 40) -> None:
    """Write orders as JSON, of a thousand keys in turn."""
    cluster.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
    for number in range(records):
        value = json.dumps({"order": number, "amount": number % 997, "customer": "c" * padding})
        producer.produce(topic, value.encode(), b"key-%d" % (number % KEYS))
        if number % 1_000 == 0:
            producer.flush(120)
    if producer.flush(120):
        raise RuntimeError("not everything was written")


def an_app(cluster: Cluster, topic: str, group: str, handler: Any, on_exhausted: Any) -> KeyShared:
    """Return what runs the handler over the topic, from its begin."""
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    app = KeyShared(conf, [topic], workers=WORKERS, on_exhausted=on_exhausted)
    app.handler(handler)
    by_value(handler)
    return app


def check(value: bytes) -> None:
    """Do what a handler of a pipeline does at least."""
    order = json.loads(value)
    if order["amount"] < 0:
        raise ValueError("no such amount")


def parse(record: Record) -> None:
    """Do so with a record."""
    check(record.value() or b"")


def compute(record: Record) -> None:
    """Compute for about a millisecond, and note which executor it was."""
    del record
    total = 0
    for number in range(15_000):
        total += number * number
    place = Path(os.environ[OUT], f"{Path.cwd().parent.name}-{Path.cwd().name}")
    if not place.exists():
        place.touch()


def turns(count: int, sides: dict[str, Callable[[], float]]) -> dict[str, Any]:
    """Run two sides in pairs, either first in turn; return the ratios of the first to the second.

    ``ratio`` is the median over the pairs of the seconds that they took, ``cpu_ratio`` of the
    processor time of all their processes, which says more on a machine that others use.
    """
    pairs = []
    names = list(sides)
    for number in range(count):
        pair: dict[str, Any] = {}
        for name in names if number % 2 == 0 else names[::-1]:
            meter = CpuMeter(os.getpid())
            seconds = sides[name]()
            pair[name] = {"seconds": round(seconds, 2), "cpu": round(meter.seconds(), 2)}
        pairs.append({**pair, "load": round(os.getloadavg()[0], 1)})

    def ratio(what: str) -> float:
        one, other = names
        found = [each[one][what] / each[other][what] for each in pairs]
        return round(float(statistics.median(found)), 2)

    return {"pairs": pairs, "ratio": ratio("seconds"), "cpu_ratio": ratio("cpu")}


def seconds_only(found: dict[str, Any]) -> dict[str, Any]:
    """Leave processor time out, where sides start a Java: one that nobody waits for is not seen."""
    for pair in found["pairs"]:
        for side in pair.values():
            if isinstance(side, dict):
                side.pop("cpu")
    return {name: value for name, value in found.items() if name != "cpu_ratio"}


def timed(session: Session, app: KeyShared, records: int) -> float:
    """Run all there is as batches; return the seconds."""
    began = time.monotonic()
    done = run_batches(session.spark, wanted_of(app))
    if (done.records, done.ended) != (records, "caught_up"):
        raise RuntimeError(f"{done.told()}")
    return time.monotonic() - began


def by_hand(session: Session, cluster: Cluster, topic: str, records: int) -> float:
    """Run what somebody would write without this package; return the seconds."""
    began = time.monotonic()
    frame = (
        session.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .option("subscribe", topic)
        .load()
    )

    def each(rows: Any) -> Any:
        import pandas as pd

        for value in rows["value"]:
            check(value)
        return pd.DataFrame({"records": [len(rows)]})

    made = frame.select("key", "value").groupBy("key").applyInPandas(each, "records long")
    found = made.agg({"records": "sum"}).first()
    if found is None or found[0] != records:
        raise RuntimeError(f"{found}")
    return time.monotonic() - began


def beside_plain(
    session: Session, cluster: Cluster, records: int, count: int, on_exhausted: str = "drop"
) -> dict[str, Any]:
    """Measure a batch against a plain job; one more of each goes first, and does not count."""
    topic = f"plain-{on_exhausted}"
    produced(cluster, topic, records)
    groups = iter(f"{topic}-{number}" for number in range(count + 1))
    by_value(check)

    def ours() -> float:
        return timed(session, an_app(cluster, topic, next(groups), parse, on_exhausted), records)

    def plain() -> float:
        return by_hand(session, cluster, topic, records)

    ours(), plain()
    return turns(count, {"keyshared": ours, "plain": plain})


def measure_plain(
    cluster: Cluster, records: int, count: int, on_exhausted: str = "drop"
) -> dict[str, Any]:
    """A batch against what somebody would write without this package."""
    conf = {"spark.sql.shuffle.partitions": str(WORKERS)}
    with start(SparkOptions("local[2]", conf=conf)) as session:
        return beside_plain(session, cluster, records, count, on_exhausted)


def measure_blocks(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """The same where keys may block, so that there are many batches."""
    return measure_plain(cluster, records, count, "block")


def measure_executors(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """One executor against two, and whether each of the two has done something."""
    produced(cluster, "warm", KEYS)
    produced(cluster, "computed", records)
    number = iter(range(2 * count))

    def on(executors: int) -> Callable[[], float]:
        def side() -> float:
            with tempfile.TemporaryDirectory() as out:
                conf = {
                    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                    f"spark.executorEnv.{OUT}": out,
                }
                master = f"local-cluster[{executors},1,1024]"
                options = SparkOptions(master, executor_memory="512m", conf=conf)
                with start(options) as session:
                    group = f"computed-{next(number)}"
                    timed(session, an_app(cluster, "warm", group, compute, "drop"), KEYS)
                    for each in Path(out).iterdir():
                        each.unlink()
                    app = an_app(cluster, "computed", group, compute, "drop")
                    seconds = timed(session, app, records)
                worked = len(list(Path(out).iterdir()))
            if worked != executors:
                raise RuntimeError(f"{worked} of {executors} executors did something")
            return seconds

        return side

    found = turns(count, {"one": on(1), "two": on(2)})
    return {**seconds_only(found), "cores": os.cpu_count()}


def measure_memory(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """The memory of an executor of two cores, its Java and its Python, for a tenth and for all.

    Its Java has all its heap from the begin, less than the records take, and cannot grow by more.
    """
    del count
    peaks: dict[int, dict[str, float]] = {}
    for size in (records // 10, records):
        topic = f"memory-{size}"
        produced(cluster, topic, size, padding=1_000)
        conf = {"spark.executor.extraJavaOptions": "-Xms512m -XX:+AlwaysPreTouch"}
        options = SparkOptions("local-cluster[1,2,1024]", executor_memory="512m", conf=conf)
        with start(options) as session, watched(os.getpid()) as peak:
            timed(session, an_app(cluster, topic, topic, parse, "drop"), size)
        java, python = "CoarseGrainedExecutorBackend", "pyspark.daemon"
        peaks[size] = {
            "executor_mib": (peak.total(java) + peak.total(python)) / 2**20,
            "largest_python_mib": peak.largest(python) / 2**20,
        }
    small, large = peaks.values()
    return {
        "peaks": {size: {n: round(v, 1) for n, v in each.items()} for size, each in peaks.items()},
        "ratio": {name: round(large[name] / small[name], 3) for name in small},
    }


def measure_start(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """From the start of the command to the first call of the handler."""
    produced(cluster, "started", records)
    number = iter(range(count))
    with tempfile.TemporaryDirectory() as place:
        handlers, first, script = (Path(place) / each for each in ("h.py", "first", "script.py"))
        handlers.write_text(_HANDLER.format(first=str(first)))
        jars = ",".join(str(file) for file in needed_files())
        filled = {"jars": jars, "bootstrap": cluster.bootstrap, "handler": handlers.read_text()}
        script.write_text(_SCRIPT.format(**filled))

        def until_first(command: Sequence[str]) -> float:
            began = time.monotonic()
            own = {**os.environ, "PYSPARK_PYTHON": sys.executable}
            ran = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
            if ran.returncode:
                raise RuntimeError(f"{command}: {ran.stdout[-500:]}{ran.stderr[-2000:]}")
            seconds = float(first.read_text()) - began
            first.unlink()
            return seconds

        def ours() -> float:
            command = [*KEYSHARED, "spark", "run", f"{handlers}:handle", "-b", cluster.bootstrap]
            group = f"started-{next(number)}"
            return until_first([*command, "-t", "started", "-g", group, "--from-beginning"])

        def plain() -> float:
            return until_first([sys.executable, str(script)])

        found = turns(count, {"keyshared": ours, "plain": plain})
    seconds = [pair["keyshared"]["seconds"] for pair in found["pairs"]]
    return {**seconds_only(found), "median": statistics.median(seconds)}


CASES: dict[str, tuple[Callable[[Cluster, int, int], dict[str, Any]], int, int]] = {
    "plain": (measure_plain, 1_000_000, 5),
    "blocks": (measure_blocks, 500_000, 3),
    "executors": (measure_executors, 40_000, 3),
    "memory": (measure_memory, 1_000_000, 1),
    "start": (measure_start, 1_000, 5),
    "audit": (measure_audit, 5_000_000, 1),
    "planted": (measure_planted, 1_000_000, 1),
}


def main() -> int:
    """Take one measurement and print it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m tests.benchmarks.on_spark", description=__doc__, formatter_class=form
    )
    parser.add_argument("case", choices=CASES)
    usual = ", ".join(f"{name} {size:,}" for name, (_, size, _) in CASES.items())
    parser.add_argument("--records", type=int, help=f"how many; else {usual}")
    often = ", ".join(f"{name} {count}" for name, (_, _, count) in CASES.items())
    parser.add_argument("--turns", type=int, help=f"how many pairs or runs; else {often}")
    asked = parser.parse_args()
    measure, records, count = CASES[asked.case]
    records, count = asked.records or records, asked.turns or count
    load = round(os.getloadavg()[0], 1)
    with RealCluster() as cluster:
        found = measure(cluster, records, count)
    told = {"case": asked.case, "records": records, "load_before": load, **found}
    sys.stdout.write(f"{json.dumps(told)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
