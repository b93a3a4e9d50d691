"""Where Java and the jars of Apache Kafka are, and how they get there.

``python -m kafka_keyshared.local.jars`` fetches the jars with Maven, once per user, and prints
where they are. ``KEYSHARED_KAFKA_JARS`` names a directory that is used instead, for instance the
``libs`` directory of a Kafka download.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError

KAFKA_VERSION = "4.1.1"
JARS_VARIABLE = "KEYSHARED_KAFKA_JARS"
OLDEST_JAVA = 17
"""Kafka 4 brokers run on Java 17 and later (KIP-1013)."""

HOW_TO_GET_JARS = (
    f"run `python -m kafka_keyshared.local.jars` (54 MB, needs Maven), or set {JARS_VARIABLE} to "
    f"the libs directory of a Kafka {KAFKA_VERSION} download"
)

_NEEDED = ("kafka_2.*.jar", "kafka-tools-*.jar", "kafka-clients-*.jar")
_FETCH_TIMEOUT = 900.0


def cache_directory() -> Path:
    """Where fetched jars are kept: under ``XDG_CACHE_HOME``, else ``~/.cache``."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "kafka-keyshared" / f"kafka-{KAFKA_VERSION}"


def _complete(directory: Path) -> bool:
    return all(any(directory.glob(pattern)) for pattern in _NEEDED)


def find_jars() -> Path | None:
    """The directory with the jars of a broker, or None when there is none yet.

    Raises :class:`ConfigError` when ``KEYSHARED_KAFKA_JARS`` names a directory without them:
    falling back to other jars would hide the mistake.
    """
    named = os.environ.get(JARS_VARIABLE)
    if named:
        if _complete(Path(named)):
            return Path(named)
        raise ConfigError(
            f"{JARS_VARIABLE}={named}: no {' and '.join(_NEEDED)} there; correct it or unset it"
        )
    return cache_directory() if _complete(cache_directory()) else None


def require_jars() -> Path:
    """As :func:`find_jars`, but raises :class:`MissingPartError` when there are none."""
    directory = find_jars()
    if directory is None:
        raise MissingPartError(
            f"the jars of Apache Kafka {KAFKA_VERSION} are not in {cache_directory()}: "
            f"{HOW_TO_GET_JARS}"
        )
    return directory


def fetch_jars() -> Path:
    """The directory with the jars; when there is none yet, Maven fills it first.

    Several processes may do this at once: each fills its own directory, the first to finish
    wins. Raises :class:`MissingPartError` when Maven is missing or fails.
    """
    found = find_jars()
    if found is not None:
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise MissingPartError(
            f"the jars of Apache Kafka {KAFKA_VERSION} are not in {cache_directory()} and Maven "
            "(mvn) is not on PATH to fetch them: install Maven (Debian: apt-get install maven, "
            f"macOS: brew install maven), or {HOW_TO_GET_JARS}"
        )
    target = cache_directory()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=target.parent) as scratch:
        filled = Path(scratch) / "jars"
        _run_maven(maven, Path(scratch), filled)
        publish(filled, target)
    return target


def _run_maven(maven: str, scratch: Path, filled: Path) -> None:
    # A copy, because the installed package may be read-only and Maven writes next to its pom.
    pom = scratch / "pom.xml"
    pom.write_bytes(files(__package__).joinpath(f"kafka-{KAFKA_VERSION}.pom.xml").read_bytes())
    command = [maven, "--batch-mode", "--quiet", "--file", str(pom)]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={filled}"]
    try:
        ran = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_FETCH_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise MissingPartError(
            f"Maven did not fetch the jars of Kafka within {_FETCH_TIMEOUT:.0f} s; look at the "
            "network and try again"
        ) from late
    if ran.returncode != 0 or not _complete(filled):
        lines = [line for line in ran.stdout.splitlines() if "ERROR" in line] or ["no output"]
        said = "\n".join(lines[:5])
        raise MissingPartError(
            f"Maven ended with status {ran.returncode} and the jars of Apache Kafka "
            f"{KAFKA_VERSION} are not complete; look at the network and Maven's settings.\n{said}"
        )


def publish(filled: Path, target: Path) -> None:
    """Rename ``filled`` to ``target``; when a complete ``target`` is already there it stays."""
    if target.is_dir() and not _complete(target):
        # Left by somebody who emptied part of the cache; a rename onto it would fail for ever.
        shutil.rmtree(target, ignore_errors=True)
    with suppress(OSError):
        filled.rename(target)
    if not _complete(target):
        raise MissingPartError(
            f"the fetched jars could not be moved to {target}; see whether the disk is full or "
            f"the directory belongs to somebody else, or set {JARS_VARIABLE}"
        )


def java_version(command: str) -> int | None:
    """The feature version of a ``java`` command (8, 17, 21, ...), or None when it does not run."""
    try:
        ran = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match[1]) if match and ran.returncode == 0 else None


def java() -> str:
    """The ``java`` command of ``JAVA_HOME``, else of PATH: the first that is new enough.

    Raises :class:`MissingPartError` that says what was found and what to install.
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
        f"a Kafka broker needs Java {OLDEST_JAVA} or later "
        f"({'; '.join(seen) or 'no java on PATH and JAVA_HOME is not set'}): install it (Debian: "
        "apt-get install openjdk-17-jre-headless, macOS: brew install openjdk@17) or set JAVA_HOME"
    )


def main() -> int:
    """Fetch the jars if need be and print where they are."""
    try:
        sys.stdout.write(f"{fetch_jars()}\n")
    except KeySharedError as failure:
        sys.stderr.write(f"{failure}\n")
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
