"""A Spark cluster on this machine: one master and a worker, as its operators start them."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from kafka_keyshared.local.node import free_ports
from kafka_keyshared.spark.checks import java_of_spark, spark_home

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Java that lives for a test: to compile well costs it more than it can ever get back."""

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
def standalone(place: Path, *, cores: int = 2) -> Iterator[str]:
    """Run a cluster and yield its master's address; its logs and work are in ``place``."""
    port, pages = free_ports(2)
    start = [str(spark_home() / "bin" / "spark-class")]
    here = ["--host", "127.0.0.1"]
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        command = [*start, "org.apache.spark.deploy.master.Master", *here, "--port", str(port)]
        command += ["--webui-port", str(pages)]
        stack.enter_context(_running(command, place / "master.log", SPARK_DAEMON_MEMORY="256m"))
        _await_pages(pages, 0)
        command = [*start, "org.apache.spark.deploy.worker.Worker", *here, "--webui-port", "0"]
        command += ["--cores", str(cores), "--memory", "2g", "--work-dir", str(place / "work")]
        command += [master]
        stack.enter_context(_running(command, place / "worker.log", SPARK_DAEMON_MEMORY="256m"))
        _await_pages(pages, 1)
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
