"""Java peer of ``bench compare``: its jars, and the program around it.

``python -m kafka_keyshared.lab.bench.jars`` fetches the jars with Maven, once per user, and prints
their directory. ``KEYSHARED_PEER_JARS`` names a directory that is used instead.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.lab.bench.workloads import BenchJob
from kafka_keyshared.testing.clusters.jars import java
from kafka_keyshared.testing.clusters.maven import JarSet

VERSION = "0.5.3.3"
JARS_VARIABLE = "KEYSHARED_PEER_JARS"
PROGRAM = "ParallelConsumerPeer"
PEERS = "kafka_keyshared.lab.bench.peers"

PEER_JARS = JarSet(
    what=f"Confluent's parallel-consumer {VERSION}",
    folder=f"parallel-consumer-{VERSION}",
    variable=JARS_VARIABLE,
    needed=("parallel-consumer-core-*.jar", "kafka-clients-*.jar"),
    package=PEERS,
    pom=f"parallel-consumer-{VERSION}.pom.xml",
    how_to_get=(
        "run `python -m kafka_keyshared.lab.bench.jars` (20 MB, needs Maven), or set "
        f"{JARS_VARIABLE} to a directory that holds them"
    ),
)


def compiler() -> str:
    """Return the command of the compiler that belongs to the Java that runs here, or is on PATH.

    Raises :class:`MissingPartError` if there is none, or no Java.
    """
    beside = Path(java("parallel-consumer")).with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise MissingPartError(
            "parallel-consumer's program has to be compiled, and there is no javac: install a JDK "
            "(Debian: apt-get install openjdk-17-jdk-headless, macOS: brew install openjdk@17)"
        )
    return found


@contextmanager
def compiled() -> Iterator[list[str]]:
    """Compile the program; yield the beginning of its command, valid until the block ends.

    Raises :class:`MissingPartError` for a missing part, or if the compilation fails.
    """
    jars = PEER_JARS.require()
    source = files(PEERS).joinpath(f"{PROGRAM}.java").read_bytes()
    with tempfile.TemporaryDirectory(prefix="keyshared-peer-") as scratch:
        program = Path(scratch) / f"{PROGRAM}.java"
        program.write_bytes(source)
        path = os.pathsep.join([scratch, f"{jars}{os.sep}*"])
        ran = subprocess.run(
            [compiler(), "-cp", path, str(program)], capture_output=True, text=True, check=False
        )
        if ran.returncode != 0:
            raise MissingPartError(
                f"parallel-consumer's program could not be compiled: {ran.stderr.strip()[:500]}"
            )
        yield [java("parallel-consumer"), "-cp", path, PROGRAM]


def arguments(job: BenchJob) -> list[str]:
    """Return the program's arguments for a job."""
    work = job.does
    return [
        *(job.bootstrap, job.topic, job.group, str(job.records), f"{job.limit:g}", job.size),
        *(f"{work.sleep * 1e6:.0f}", str(work.cpu_ns), str(int(work.uneven))),
        job.notebook or "-",
    ]


if __name__ == "__main__":
    sys.exit(PEER_JARS.fetch_and_tell())
