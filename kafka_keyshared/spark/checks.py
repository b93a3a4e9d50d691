"""Compatibility checks of Java, Spark, Scala, jars and Python before a start.

Spark itself reports a mismatch late, in a Java stack trace. On a cluster that takes a minute, or it
shows as a method that does not exist. These checks start no Spark. They read file names and ask
``java`` for its version.
"""

from __future__ import annotations

import enum
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kafka_keyshared.errors import ConfigError, KeySharedError, MissingPartError
from kafka_keyshared.spark.jars import JARS_VARIABLE, SPARK_JARS, SPARK_VERSION
from kafka_keyshared.testing.clusters.jars import OLDEST_JAVA, java, java_version

HOW_TO_GET_PYSPARK = "install the extra: pip install 'kafka-keyshared[spark]'"
FETCH = "run `keyshared spark jars --fetch`"
TOO_NEW_JAVA = 23
"""First Java version on which ``Subject.getSubject``, which Spark's Hadoop calls, throws.

The source is Spark's release notes.
"""

_JAR = re.compile(r"(?P<what>.+?)(?:_(?P<scala>2\.\d+))?-(?P<version>\d+\.\d.*)\.jar")
_PYTHON_TIMEOUT = 60.0


class SparkMismatch(enum.StrEnum):
    """The part that does not fit; the value is the name of the doctor's finding."""

    SPARK = "spark-unfit"
    JAVA = "spark-java-unfit"
    JARS = "spark-jars-unfit"
    PYTHON = "spark-python-unfit"


class Misfit(NamedTuple):
    """A mismatch because of which Spark would not start, or would fail later."""

    part: SparkMismatch
    why: str
    cure: str


class Jar(NamedTuple):
    """The parts of a jar's name: the library, the Scala version it was built for, its version."""

    what: str
    scala: str | None
    version: str


def jar(file: Path) -> Jar | None:
    """Parse the name of a file; None when it does not name a jar with a version."""
    match = _JAR.fullmatch(file.name)
    return Jar(match["what"], match["scala"], match["version"]) if match else None


def series(text: str) -> str:
    """Return the first two numbers of a version; versions that share them are compatible."""
    return ".".join(text.split(".")[:2])


def require_pyspark() -> None:
    """Raise :class:`MissingPartError` when the extra is not installed."""
    for name in ("pyspark", "pyarrow", "pandas"):
        if find_spec(name) is None:
            raise MissingPartError(f"{name} is not installed: {HOW_TO_GET_PYSPARK}")


def spark_home() -> Path:
    """Return the Spark that pyspark starts: ``SPARK_HOME``, else the one bundled with pyspark."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    found = find_spec("pyspark")
    places = found.submodule_search_locations if found is not None else None
    if not places:
        raise MissingPartError(f"pyspark is not installed: {HOW_TO_GET_PYSPARK}")
    return Path(places[0])


def java_of_spark() -> str:
    """Return the ``java`` command for starting Spark.

    Raises :class:`MissingPartError` when there is no Java that Spark runs on.
    """
    command = java("Spark")
    feature = java_version(command)
    if feature is not None and feature >= TOO_NEW_JAVA:
        raise MissingPartError(
            f"Spark {SPARK_VERSION} needs Java {OLDEST_JAVA} to {TOO_NEW_JAVA - 1} ({command} is "
            f"{feature}): set JAVA_HOME to one of them (Debian: apt-get install "
            "openjdk-17-jre-headless, macOS: brew install openjdk@17)"
        )
    return command


def misfits(master: str = "local[*]", conf: Mapping[str, str] | None = None) -> Iterator[Misfit]:
    """Yield every mismatch, in the order in which a start needs the parts."""
    yield from _of_spark()
    yield from _of_java()
    yield from _of_jars()
    yield from _of_python(master, conf or {})


def require(master: str, conf: Mapping[str, str]) -> None:
    """Raise :class:`MissingPartError` in one line with all mismatches."""
    found = list(misfits(master, conf))
    if found:
        raise MissingPartError("; ".join(f"{each.why}: {each.cure}" for each in found))


def seen() -> str:
    """Return the versions in use as one line, for a setup whose parts all fit."""
    command = java_of_spark()
    return (
        f"Spark {version('pyspark')}, Java {java_version(command)} ({command}), jars in "
        f"{SPARK_JARS.require()}"
    )


def _split(error: KeySharedError, part: SparkMismatch) -> Misfit:
    why, _, cure = str(error).partition(": ")
    return Misfit(part, why, cure)


def _of_spark() -> Iterator[Misfit]:
    try:
        require_pyspark()
        installed = version("pyspark")
    except MissingPartError as missing:
        yield _split(missing, SparkMismatch.SPARK)
        return
    except PackageNotFoundError:
        yield Misfit(
            SparkMismatch.SPARK, "pyspark is there without its metadata", HOW_TO_GET_PYSPARK
        )
        return
    if series(installed) != series(SPARK_VERSION):
        wanted = series(SPARK_VERSION)
        yield Misfit(
            SparkMismatch.SPARK,
            f"pyspark {installed} is installed, and this package goes with Spark {wanted}",
            f"pip install 'pyspark=={wanted}.*'",
        )
        return
    core = _core()
    if core is None or core.version != installed:
        which = "no Spark" if core is None else f"Spark {core.version}"
        yield Misfit(
            SparkMismatch.SPARK,
            f"pyspark {installed} would start {spark_home()}, which is {which}",
            f"unset SPARK_HOME, or set it to a Spark {installed}",
        )


def _core() -> Jar | None:
    found = sorted((spark_home() / "jars").glob("spark-core_*.jar"))
    return jar(found[0]) if found else None


def _of_java() -> Iterator[Misfit]:
    try:
        java_of_spark()
    except MissingPartError as missing:
        yield _split(missing, SparkMismatch.JAVA)


def _of_jars() -> Iterator[Misfit]:
    try:
        directory = SPARK_JARS.find()
    except ConfigError as refused:
        yield Misfit(SparkMismatch.JARS, str(refused), FETCH)
        return
    if directory is None:
        why = f"the jars of {SPARK_JARS.what} are not in {SPARK_JARS.cache_directory()}"
        cure = f"{FETCH}, or set {JARS_VARIABLE} to a directory that holds them"
        yield Misfit(SparkMismatch.JARS, why, cure)
        return
    cure = f"keep one of each, for Spark {SPARK_VERSION}; or unset {JARS_VARIABLE} and {FETCH}"
    core = _core() if find_spec("pyspark") is not None or "SPARK_HOME" in os.environ else None
    for pattern in SPARK_JARS.needed:
        files = sorted(directory.glob(pattern))
        if len(files) > 1:
            names = " and ".join(file.name for file in files)
            yield Misfit(SparkMismatch.JARS, f"{names} are both in {directory}", cure)
        for file in files:
            yield from _of_jar(file, core, cure)


def _of_jar(file: Path, core: Jar | None, cure: str) -> Iterator[Misfit]:
    one = jar(file)
    if one is None or one.scala is None:
        return
    if series(one.version) != series(SPARK_VERSION):
        why = f"{file} is for Spark {one.version}, and this is {SPARK_VERSION}"
        yield Misfit(SparkMismatch.JARS, why, cure)
    elif core is not None and one.scala != core.scala:
        why = f"{file} is for Scala {one.scala}, and this Spark is of {core.scala}"
        yield Misfit(SparkMismatch.JARS, why, cure)


def python_of_executors(master: str, conf: Mapping[str, str]) -> str | None:
    """Return the Python command that executors start; None for the cluster's own choice."""
    named = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if named is None and master.startswith("local"):
        return sys.executable
    return named


def _of_python(master: str, conf: Mapping[str, str]) -> Iterator[Misfit]:
    command = python_of_executors(master, conf)
    # A relative path lies in an archive or on another machine. Executors report it (see shipping).
    if command is None or command == sys.executable or not Path(command).is_absolute():
        return
    cure = "set spark.pyspark.python (or PYSPARK_PYTHON) to a Python of this version, or unset it"
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        ran = subprocess.run(
            [command, "-c", asked],
            capture_output=True,
            text=True,
            timeout=_PYTHON_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        if master.startswith("local"):  # on a cluster the command need not exist on this machine
            why = f"the Python of executors, {command}, does not run: {failed}"
            yield Misfit(SparkMismatch.PYTHON, why, cure)
        return
    theirs = ran.stdout.strip()
    if theirs != ours:
        why = f"the Python of executors, {command}, is {theirs or 'none'}, and this one is {ours}"
        yield Misfit(SparkMismatch.PYTHON, why, cure)
