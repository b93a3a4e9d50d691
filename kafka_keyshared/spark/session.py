"""One way to start Spark, and one to end it: with our jars, quiet, and with its log in a file.

A start takes 5 to 16 s, most of it Java's; a process has one session at a time.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kafka_keyshared.errors import ConfigError, MissingPartError
from kafka_keyshared.spark.checks import java_of_spark, require
from kafka_keyshared.spark.jars import needed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""
# Java ends by itself when its standard input is closed; one that does not is killed.
_END_TIMEOUT = 20.0


@dataclass(frozen=True)
class SparkOptions:
    """How Spark is started.

    ``master`` is what spark-submit takes. ``driver_memory`` and ``executor_memory`` are sizes as
    Java writes them (``1g``). ``conf`` goes over everything that this module sets. ``log`` is the
    file that Spark's own log is appended to, from ``log_level`` on; without it a new one among the
    temporary files. ``py_files`` and ``archives`` reach every executor (see ``shipping``).
    """

    master: str = "local[*]"
    app_name: str = "keyshared"
    driver_memory: str = "1g"
    executor_memory: str = "1g"
    conf: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    log_level: str = "warn"
    py_files: tuple[Path, ...] = ()
    archives: tuple[str, ...] = ()

    @property
    def here(self) -> bool:
        """Whether everything runs on this machine, as children of this process."""
        return self.master.startswith("local")

    def settings(self) -> dict[str, str]:
        """Every setting of Spark that the options mean.

        Raises :class:`MissingPartError` when the jars are not there.
        """
        found = {
            "spark.master": self.master,
            "spark.app.name": self.app_name,
            "spark.driver.memory": self.driver_memory,
            "spark.executor.memory": self.executor_memory,
            "spark.jars": ",".join(str(file) for file in needed_files()),
            # Any free port: two runs on one machine are no matter.
            "spark.ui.port": "0",
            # Its bar would be drawn over our own line.
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            # It may merge partitions of a plan that runs, and one of ours is a worker.
            "spark.sql.adaptive.enabled": "false",
        }
        if self.here:
            found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
            found["spark.pyspark.python"] = sys.executable
        if self.py_files:
            found["spark.submit.pyFiles"] = ",".join(str(file) for file in self.py_files)
        if self.archives:
            found["spark.archives"] = ",".join(self.archives)
        return {**found, **self.conf}


class Session:
    """A running Spark; a context manager that ends it, Java included.

    ``spark`` is the session itself, ``log`` the file with Spark's own log, ``ui`` the address of
    its pages, or None where they are switched off. Made by :func:`start`.
    """

    def __init__(self, spark: SparkSession, gateway: Any, log: Path) -> None:
        self.spark = spark
        self.log = log
        self.ui: str | None = spark.sparkContext.uiWebUrl
        self._gateway = gateway

    def close(self) -> None:
        """Stop Spark and wait until its Java has ended; a second call does nothing."""
        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return
        try:
            self.spark.stop()
        finally:
            _end(gateway)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start(options: SparkOptions) -> Session:
    """Start Spark and return once it takes work.

    Raises :class:`MissingPartError` when pyspark or the jars are not there or Java does not come
    up, and :class:`ConfigError` for settings that Spark refuses; both name the log.
    """
    require(options.master, options.conf)
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ConfigError("this process has a Spark session already; close it first")
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(options.settings().items()))
    launch: Callable[..., Any] = java_gateway.launch_gateway  # pyspark gives it no types
    log = options.log or _new_log()
    log.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="keyshared-spark-") as scratch, log.open("ab") as sink:
        _quiet(conf, Path(scratch), options.log_level)
        with _environment(options):
            try:
                gateway = launch(conf, {"stdout": sink, "stderr": subprocess.STDOUT})
            except Exception as failed:
                raise MissingPartError(
                    f"Spark's Java ended before it was ready: {last_words(log)}; look into {log}"
                ) from failed
        try:
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as refused:
            _end(gateway)
            raise ConfigError(
                f"Spark did not start with master {options.master}: {cause(refused)}; look into "
                f"{log}"
            ) from refused
    if options.here and "PYSPARK_PYTHON" not in os.environ:
        # Else it is any python3 of the PATH: no setting is asked where a session is made in Python.
        context.pythonExec = sys.executable
    return Session(SparkSession(context), gateway, log)


def _new_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="keyshared-spark-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _quiet(conf: Any, scratch: Path, level: str) -> None:
    """Have Java write its log to its standard error, which is the log file, from ``level`` on."""
    properties = scratch / "log4j2.properties"
    properties.write_text(_LOG4J.format(level=level))
    ours = f"-Dlog4j2.configurationFile={properties.as_uri()}"
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    conf.set("spark.driver.extraJavaOptions", f"{ours} {theirs}".strip())


@contextlib.contextmanager
def _environment(options: SparkOptions) -> Iterator[None]:
    """What Java inherits: the home of the Java that fits; on one machine pages for this one alone.

    Spark's script takes the ``java`` of ``JAVA_HOME`` whatever its version.
    """
    more = {"JAVA_HOME": str(Path(java_of_spark()).resolve().parents[1])}
    if options.here and "SPARK_LOCAL_IP" not in os.environ:
        more["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _end(gateway: Any) -> None:
    """End the Java behind the gateway and forget it, so that the next session starts its own."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    process = getattr(gateway, "proc", None)
    with contextlib.suppress(OSError, Py4JError):
        gateway.shutdown()
    for name in ("_gateway", "_jvm"):  # pyspark keeps them for good, and has no name for this
        setattr(SparkContext, name, None)
    if process is None:
        return
    process.stdin.close()
    try:
        process.wait(_END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def cause(error: BaseException) -> str:
    """What an error of Spark says in a line: the innermost reason, without Java's stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else _innermost(java)
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line or type(error).__name__


def _innermost(java: Any) -> str:
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.getMessage() or java.toString())


def last_words(log: Path) -> str:
    """Return the last line of the log that says what is wrong; Java's stacks are passed over."""
    lines = log.read_text(errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not re.match(r"\s+at ", line)]
    wrong = [line for line in told if re.search(r"error|exception|fail", line, re.IGNORECASE)]
    return (wrong or told or ["it said nothing"])[-1]
