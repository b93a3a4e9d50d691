"""Location of Java, and the jars of Apache Kafka with their download.

``python -m kafka_keyshared.testing.clusters.jars`` fetches the jars with Maven, once per user, and
prints their directory. ``KEYSHARED_KAFKA_JARS`` names a directory that is used instead, for
instance the ``libs`` directory of a Kafka download.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.testing.clusters.maven import JarSet

KAFKA_VERSION = "4.1.1"
JARS_VARIABLE = "KEYSHARED_KAFKA_JARS"
OLDEST_JAVA = 17
"""Kafka 4 brokers run on Java 17 and later (KIP-1013)."""

HOW_TO_GET_JARS = (
    "run `python -m kafka_keyshared.testing.clusters.jars` (54 MB, needs Maven), or set "
    f"{JARS_VARIABLE} to the libs directory of a Kafka {KAFKA_VERSION} download"
)

KAFKA_JARS = JarSet(
    what=f"Apache Kafka {KAFKA_VERSION}",
    folder=f"kafka-{KAFKA_VERSION}",
    variable=JARS_VARIABLE,
    needed=("kafka_2.*.jar", "kafka-tools-*.jar", "kafka-clients-*.jar"),
    package=__package__,
    pom=f"kafka-{KAFKA_VERSION}.pom.xml",
    how_to_get=HOW_TO_GET_JARS,
)
cache_directory = KAFKA_JARS.cache_directory
find_jars = KAFKA_JARS.find
require_jars = KAFKA_JARS.require
fetch_jars = KAFKA_JARS.fetch
publish = KAFKA_JARS.publish


def java_version(command: str) -> int | None:
    """Return the feature version of a ``java`` command (8, 17, ...), or None if it does not run."""
    try:
        ran = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match[1]) if match and ran.returncode == 0 else None


def java(user: str = "a Kafka broker") -> str:
    """Return the ``java`` command of ``JAVA_HOME``, else of PATH: the first that is new enough.

    ``user`` is the part that needs Java, for the message. Raises :class:`MissingPartError` with the
    versions found and the package to install.
    """
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java")
    if on_path is not None:
        candidates.append(on_path)
    seen: list[str] = []
    for candidate in candidates:
        version = java_version(candidate)
        if version is not None and version >= OLDEST_JAVA:
            return candidate
        seen.append(f"{candidate} is {'no working Java' if version is None else version}")
    raise MissingPartError(
        f"{user} needs Java {OLDEST_JAVA} or later "
        f"({'; '.join(seen) or 'no java on PATH and JAVA_HOME is not set'}): install it (Debian: "
        "apt-get install openjdk-17-jre-headless, macOS: brew install openjdk@17) or set JAVA_HOME"
    )


if __name__ == "__main__":
    sys.exit(KAFKA_JARS.fetch_and_tell())
