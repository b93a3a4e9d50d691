"""A Spark cluster on this machine: a master and its workers, as its operators start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from kafka_keyshared.spark.checks import java_of_spark, spark_home
from kafka_keyshared.testing.clusters.node import free_ports

CLASSES = Path(sys.prefix) / "spark-classes.jsa"
"""Spark's classes, read and verified once and for all (``python -m tests.setup.spark_classes``)."""


def _short_lived() -> str:
    """Return the options of a Java that lives for a test.

    To compile well costs it more than it can ever get back, and half of its start is the loading of
    classes. An archive of them that is of another Spark or Java is passed over by Java itself.
    """
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    if not CLASSES.is_file() or " " in str(CLASSES):
        return options
    return f"{options} -XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off"


SHORT_LIVED = _short_lived()

_UP_WITHIN = 120.0


def environment(**more: str) -> dict[str, str]:
    """What Spark's own scripts are started with: the Java that fits, this machine alone."""
    home = str(Path(java_of_spark()).resolve().parents[1])
    spark = {"JAVA_HOME": home, "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": SHORT_LIVED}
    return {**os.environ, **spark, **more}


@contextmanager
def _running(command: Sequence[str], log: Path, **more: str) -> Iterator[None]:
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=subprocess.STDOUT, env=environment(**more)
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def standalone(
    place: Path, *, cores: int = 2, hosts: Sequence[str] = ("127.0.0.1",)
) -> Iterator[str]:
    """Run a cluster and yield its master's address; its logs and work are in ``place``.

    It has a worker for each name in ``hosts``. They are all this machine: Spark goes by the name.
    """
    port, pages = free_ports(2)
    start = [str(spark_home() / "bin" / "spark-class")]
    here = ["--host", "127.0.0.1"]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        command = [*start, "org.apache.spark.deploy.master.Master", *here, "--port", str(port)]
        command += ["--webui-port", str(pages)]
        stack.enter_context(_running(command, place / "master.log", SPARK_DAEMON_MEMORY="256m"))
        _await_pages(pages, 0)
        for host in hosts:
            command = [*start, "org.apache.spark.deploy.worker.Worker", "--host", host]
            command += ["--webui-port", "0", "--cores", str(cores), "--memory", "2g"]
            command += ["--work-dir", str(place / f"work-{host}"), master]
            log = place / f"worker-{host}.log"
            stack.enter_context(_running(command, log, SPARK_DAEMON_MEMORY="256m"))
        _await_pages(pages, len(hosts))
        yield master


def _await_pages(port: int, workers: int) -> None:
    """Wait until the master answers and knows so many workers."""
    deadline, pause = time.monotonic() + _UP_WITHIN, threading.Event()
    while True:
        with (
            suppress(URLError, OSError),
            urlopen(f"http://127.0.0.1:{port}/json/", timeout=10) as answer,
        ):
            if int(json.load(answer)["aliveworkers"]) >= workers:
                return
        assert time.monotonic() < deadline, f"the master knows no {workers} workers"
        pause.wait(0.1)
