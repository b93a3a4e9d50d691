"""What order costs on Spark, and what it gains: each a ratio of two sides, turn by turn in one run.

    python tests/benchmarks/on_spark.py plain|executors|audit|memory|start [--records N] [--turns N]

``plain``: a batch against a plain PySpark job that reads the same topic, groups by key and applies
the same handler in pandas, without order and without commits. ``executors``: two executors of one
core each against one, with a handler that computes. ``audit``: the time and memory of ``keyshared
spark audit`` over a log of so many records. ``memory``: the memory of what runs Python, for ten
times the batch. ``start``: from the command to the first record. Prints JSON; it asserts what has
to have happened, and leaves it to the reader to judge figures by the load that is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kafka_keyshared import KeyShared
from kafka_keyshared.cli.spark_run import wanted_of
from kafka_keyshared.local.broker import RealCluster
from kafka_keyshared.local.cluster import Cluster
from kafka_keyshared.model import Record
from kafka_keyshared.spark.driver.run import run_batches
from kafka_keyshared.spark.session import Session, SparkOptions, start
from tests.support.planted_log import clean_log

KEYSHARED = [sys.executable, "-m", "kafka_keyshared.cli"]
PARTITIONS = 4
KEYS = 1_000
WORKERS = 8


def produced(cluster: Cluster, topic: str, records: int) -> None:
    """Write orders as JSON, of a thousand keys in turn."""
    cluster.create_topic(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
    for number in range(records):
        value = json.dumps({"order": number, "amount": number % 997, "customer": "c" * 40})
        producer.produce(topic, value.encode(), b"key-%d" % (number % KEYS))
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not everything was written")


def an_app(cluster: Cluster, topic: str, group: str, handler: Any, **more: Any) -> KeyShared:
    """Return what runs the handler over the topic, from its begin."""
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    app = KeyShared(conf, [topic], workers=WORKERS, poison="drop", **more)
    app.handler(handler)
    return app


def parse(record: Record) -> None:
    """Do what a handler of a pipeline does at least."""
    order = json.loads(record.value() or b"")
    if order["amount"] < 0:
        raise ValueError("no such amount")


def compute(record: Record) -> None:
    """Compute for about a millisecond, and note which executor it was."""
    total = 0
    for number in range(15_000):
        total += number * number
    place = Path(os.environ["KEYSHARED_BENCH_OUT"], f"{Path.cwd().parent.name}-{Path.cwd().name}")
    if not place.exists():
        place.touch()


def turns(count: int, sides: dict[str, Callable[[], float]]) -> dict[str, Any]:
    """Time the sides turn by turn; return the seconds of each, and the ratio of the medians."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(count):
        for name, side in sides.items():
            times[name].append(side())
    ours, theirs = (statistics.median(each) for each in times.values())
    seconds = {name: [round(each, 2) for each in found] for name, found in times.items()}
    return {"seconds": seconds, "ratio": round(ours / theirs, 3)}


def timed(session: Session, app: KeyShared, records: int) -> float:
    """Run all there is as batches; return the seconds."""
    began = time.monotonic()
    done = run_batches(session.spark, wanted_of(app))
    if (done.records, done.ended) != (records, "caught_up"):
        raise RuntimeError(f"{done.told()}")
    return time.monotonic() - began


def measure_plain(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """A batch against what somebody would write without this package."""
    produced(cluster, "plain", records)
    groups = iter(f"plain-{number}" for number in range(count + 1))
    with start(SparkOptions("local[2]", conf={"spark.sql.shuffle.partitions": "8"})) as session:

        def by_hand() -> float:
            began = time.monotonic()
            frame = (
                session.spark.read.format("kafka")
                .option("kafka.bootstrap.servers", cluster.bootstrap)
                .option("subscribe", "plain")
                .load()
            )

            def each(rows: Any) -> Any:
                import pandas as pd

                for value in rows["value"]:
                    order = json.loads(value)
                    if order["amount"] < 0:
                        raise ValueError("no such amount")
                return pd.DataFrame({"records": [len(rows)]})

            made = frame.select("key", "value").groupBy("key").applyInPandas(each, "records long")
            found = made.agg({"records": "sum"}).first()
            if found is None or found[0] != records:
                raise RuntimeError(f"{found}")
            return time.monotonic() - began

        def ours() -> float:
            return timed(session, an_app(cluster, "plain", next(groups), parse), records)

        ours()  # so that neither of them is the first
        return turns(count, {"keyshared": ours, "plain": by_hand})


def measure_executors(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """One executor against two, and whether each of the two has done something."""
    produced(cluster, "computed", records)
    number = iter(range(2 * count))
    seen: dict[int, int] = {}

    def on(executors: int) -> Callable[[], float]:
        def side() -> float:
            with tempfile.TemporaryDirectory() as out:
                os.environ["KEYSHARED_BENCH_OUT"] = out
                conf = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
                master = f"local-cluster[{executors},1,1024]"
                options = SparkOptions(master, executor_memory="512m", conf=conf)
                with start(options) as session:
                    app = an_app(cluster, "computed", f"computed-{next(number)}", compute)
                    seconds = timed(session, app, records)
                seen[executors] = len(list(Path(out).iterdir()))
            if seen[executors] != executors:
                raise RuntimeError(f"{seen[executors]} of {executors} executors did something")
            return seconds

        return side

    found = turns(count, {"one": on(1), "two": on(2)})
    return {**found, "cores": os.cpu_count(), "executors_that_worked": seen[2]}


def measure_audit(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """The verb over a log in Parquet: its seconds and the memory of its processes, at most."""
    del cluster
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        with start(SparkOptions("local[2]", driver_memory="2g")) as session:
            clean_log(session.spark, records).write.parquet(str(log))
        found = []
        for _ in range(count):
            began = time.monotonic()
            command = [*KEYSHARED, "spark", "audit", str(log), "--json", "--driver-memory", "2g"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            with process, peak_of(process.pid) as peak:
                told = json.loads(process.communicate()[0])
            if told["totals"]["produced"] != records or process.returncode:
                raise RuntimeError(f"{told}")
            found.append({"seconds": round(time.monotonic() - began, 1), "mib": peak[0] >> 20})
        return {"runs": found}


def measure_memory(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """The memory of the processes that run Python, once for a tenth and once for all."""
    del count
    peaks = {}
    for size in (records // 10, records):
        produced(cluster, f"memory-{size}", size)
        with start(SparkOptions("local[2]")) as session, peak_of(os.getpid(), "pyspark") as peak:
            app = an_app(cluster, f"memory-{size}", f"memory-{size}", parse)
            timed(session, app, size)
        peaks[size] = peak[1]
    small, large = peaks.values()
    return {
        "mib_of_the_largest": {size: round(peak / 2**20, 1) for size, peak in peaks.items()},
        "ratio": round(large / small, 3),
    }


def measure_start(cluster: Cluster, records: int, count: int) -> dict[str, Any]:
    """From the start of the command to the first call of the handler."""
    produced(cluster, "started", records)
    seconds = []
    with tempfile.TemporaryDirectory() as place:
        handlers, first = Path(place) / "handlers.py", Path(place) / "first"
        handlers.write_text(
            "import os, time\ndef handle(record):\n"
            f"    if not os.path.exists({str(first)!r}):\n"
            f"        open({str(first)!r}, 'w').write(str(time.monotonic()))\n"
        )
        for number in range(count):
            began = time.monotonic()
            command = [*KEYSHARED, "spark", "run", f"{handlers}:handle", "-b", cluster.bootstrap]
            command += ["-t", "started", "-g", f"started-{number}", "--from-beginning"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(round(float(first.read_text()) - began, 2))
            first.unlink()
    return {"seconds": seconds, "median": statistics.median(seconds)}


@contextmanager
def peak_of(pid: int, having: str = "") -> Iterator[list[int]]:
    """Watch a process and its descendants: the most bytes of all at once, and of one of them.

    ``having`` is what the command line of those has that count.
    """
    peak, over = [0, 0], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            sizes = [size for size, command in descendants(pid) if having in command]
            peak[0] = max(peak[0], sum(sizes))
            peak[1] = max(peak[1], *sizes, 0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


def descendants(pid: int) -> list[tuple[int, str]]:
    """Return resident bytes and command line of a process and of all that come from it."""
    shown = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,rss=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 3) for line in shown.stdout.splitlines()]
    family, before = {str(pid)}, 0
    while len(family) > before:
        before = len(family)
        family |= {row[0] for row in rows if row[1] in family}
    return [(int(row[2]) << 10, row[3]) for row in rows if row[0] in family and len(row) > 3]


CASES: dict[str, tuple[Callable[[Cluster, int, int], dict[str, Any]], int]] = {
    "plain": (measure_plain, 500_000),
    "executors": (measure_executors, 20_000),
    "audit": (measure_audit, 5_000_000),
    "memory": (measure_memory, 1_000_000),
    "start": (measure_start, 1_000),
}


def main() -> int:
    """Take one measurement and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--records", type=int)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    measure, usual = CASES[asked.case]
    before = os.getloadavg()[0]
    with RealCluster() as cluster:
        found = measure(cluster, asked.records or usual, asked.turns)
    load = [round(before, 1), round(os.getloadavg()[0], 1)]
    told = {"case": asked.case, "records": asked.records or usual, **found, "load": load}
    sys.stdout.write(f"{json.dumps(told)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
