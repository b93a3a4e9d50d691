"""Executors and drivers that are killed in the midst of a batch, and what it costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.spark.placement import RecordPlacement
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import (
    Eventually,
    an_app,
    by_key,
    filled,
    noted,
    noting,
    produce,
    read_all,
    run_pod,
)
from tests.support.processed_rows import read_rows
from tests.support.spark_cluster import SHORT_LIVED

WORKERS = 4
WITHIN = 450.0
"""Seconds for each step, where the machine has a lot of other work."""

LAST = 700
"""In the midst of the second batch; the driver is killed meanwhile."""

HANDLER = """
import os
import threading
from pathlib import Path

OUT = Path(os.environ["OUT"])

def stays(name):
    # Whoever comes first never comes back from it.
    try:
        with (OUT / name).open("x") as file:
            file.write(str(os.getppid()))
    except FileExistsError:
        return
    threading.Event().wait()

def handle(record):
    from pyspark import TaskContext

    number = int(record.value())
    if number == int(os.environ["KILL_EXECUTOR_AT"]):
        stays("dies")
    if number == int(os.environ["KILL_DRIVER_AT"]):
        stays("last")
    with (OUT / "noted" / f"{TaskContext.get().taskAttemptId()}.txt").open("a") as file:
        place = f"{record.partition()} {record.offset()}"
        file.write(f"{record.key()!r} {number} {place}\\n")
    if number % 50 == 3:
        raise ValueError("poison")
"""


def worker_of(app: KeyShared, key: bytes) -> int:
    places = RecordPlacement(app.subscription)
    [place] = places.of([key], [0], [0])
    return places.numbers.index(place)


@contextmanager
def driver(out: Path, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``keyshared spark run`` on two executors; what it says goes to a file."""
    command = ["spark", "run", f"{out / 'handlers.py'}:handle", "--mode", "stream", *arguments]
    command += ["--master", "local-cluster[2,1,1024]", "--executor-memory", "512m"]
    ours = {"JDK_JAVA_OPTIONS": SHORT_LIVED, "OUT": str(out), **environment}
    with (out / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_keyshared.cli", *command],
            env={**os.environ, **ours},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def executor_of(daemon: int) -> int:
    """Return the Java whose child the daemon of its Python workers is."""
    parent = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    assert Path(f"/proc/{parent}/comm").read_text().strip() == "java"
    return parent


def java_of(driver: int) -> list[int]:
    """Return the Java processes that a driver has started."""
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    return [int(each) for each in children if Path(f"/proc/{each}/comm").read_text() == "java\n"]


def lives(process: int) -> bool:
    """Say whether a process runs; one that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.timeout(1_500)
def test_kills_lose_nothing_and_repeat_no_more_than_the_batch(
    spark_parts: None, real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    """One Spark: an executor dies in the first batch, the driver in the second; then come pods."""
    out, pods, log = tmp_path / "out", tmp_path / "pods", tmp_path / "log"
    for each in (out, out / "noted", pods):
        each.mkdir()
    (out / "handlers.py").write_text(HANDLER)
    filled(real_cluster, topic, 600)
    app = an_app(real_cluster, topic, noting(pods), workers=WORKERS)
    # Of the task that is the first of its executor: what one has ended is lost with it, and the
    # batch fails then.
    own = [n for n in range(300) if worker_of(app, b"k%d" % (n % 20)) == 0]
    dies = next(n for n in reversed(own) if n % 50 != 49)
    given = ("-b", real_cluster.bootstrap, "-t", topic, "-g", f"g-{topic}", "--from-beginning")
    more = ["--workers", str(WORKERS), "--dlq", f"{topic}.dlq", "--dlq-create", "--attempts", "1"]
    more += ["--audit-log", str(log), "-X", "session.timeout.ms=6000"]
    # Spark's own scripts are careless with short names such as LAST.
    told = {"KILL_EXECUTOR_AT": str(dies), "KILL_DRIVER_AT": str(LAST)}
    poison = {n for n in range(600) if n % 50 == 3}

    def said(words: str) -> bool:
        assert process.poll() is None, (out / "said").read_text()
        return words in (out / "said").read_text()

    def at(name: str) -> bool:
        assert process.poll() is None, (out / "said").read_text()
        return (out / name).exists() and (out / name).read_text() != ""

    with driver(out, *given, *more, **told) as process:
        eventually(lambda: at("dies"), WITHIN)
        os.kill(executor_of(int((out / "dies").read_text())), signal.SIGKILL)
        eventually(lambda: said("batch 1 committed: 600 records"), WITHIN)
        first = noted(out / "noted")
        keys = by_key(out / "noted")
        letters = read_all(real_cluster, f"{topic}.dlq")
        produce(real_cluster, topic, range(600, 900))
        eventually(lambda: at("last"), WITHIN)
        java = java_of(process.pid)
    assert java
    eventually(lambda: not any(map(lives, java)), 60)
    assert run_pod(app, lambda: len(noted(pods)) >= 300, eventually) == 0
    assert sorted(each[1] for each in noted(pods)) == list(range(600, 900)), "batch 1 is committed"

    assert {each[1] for each in first} == set(range(600)), "nothing is lost"
    again = [n for n, times in Counter(each[1] for each in first).items() if times > 1]
    assert again, "no task was run twice, so this has shown nothing"
    whole = {f"b'k{key}'": [n for n in range(key, 600, 20) if n % 50 != 49] for key in range(20)}
    for (_, key), numbers in keys.items():
        assert numbers == whole[key][: len(numbers)], "each attempt has its keys from the begin on"
    assert sorted(int(each.value()) for each in letters) == sorted(poison)
    assert len({source_of(each.headers()) for each in letters}) == len(poison)

    events: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)
    for file in log.glob("*.jsonl"):
        whole_lines = file.read_bytes().rpartition(b"\n")[0] + b"\n"
        for row in read_rows(whole_lines):
            events[row.outcome or row.event][row.partition, row.offset] += 1
    places = {n: (partition, offset) for _, n, partition, offset in first}
    assert set(events["dead_lettered"].values()) == {1}
    assert set(events["dead_lettered"]) == {places[n] for n in poison}
    assert {places[n] for n in again} - set(events["dead_lettered"]) <= {
        place for place, times in events["ok"].items() if times > 1
    }, "calls that were made twice are there twice, and an audit says so"
