"""Start and shutdown of a Spark session.

The session has our jars and its own log file. A start takes 5 to 16 s, most of it Java's. A process
has one session at a time.
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
from kafka_keyshared.spark.checks import java_of_spark, python_of_executors, require
from kafka_keyshared.spark.jars import needed_files
from kafka_keyshared.spark.packaging import package_zip, probe, python_in
from kafka_keyshared.spark.submit import joined, settings_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

PY_FILES = "spark.submit.pyFiles"
PYTHON = "spark.pyspark.python"
GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Environment variable that is set in a process started by spark-submit."""

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""
# Java ends by itself when its standard input is closed. After this many seconds it is killed.
_END_TIMEOUT = 20.0


@dataclass(frozen=True)
class SparkOptions:
    """How Spark is started.

    ``master`` is the same as for spark-submit. ``driver_memory`` and ``executor_memory`` are sizes
    as Java writes them (``1g``). ``conf`` overrides every setting of this module. ``log`` is the
    file to which Spark's own log is appended, from ``log_level`` on. Without it a new temporary
    file is used. ``py_files`` and ``archives`` reach every executor. An archive that ends in
    ``#environment`` is the environment that executors run in (see ``shipping``). ``submit`` has
    arguments of spark-submit, which override all the others.
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
    submit: str = ""

    @property
    def given(self) -> dict[str, str]:
        """The settings that the user gave; raises :class:`ConfigError` for bad ones."""
        return {**self.conf, **settings_of(self.submit)}

    @property
    def where(self) -> str:
        """The effective master."""
        return self.given.get("spark.master", self.master)

    @property
    def here(self) -> bool:
        """Whether everything runs on this machine, as children of this process."""
        return self.where.startswith("local")

    @property
    def apart(self) -> bool:
        """Whether executors are separate processes, which need the modules sent to them."""
        return not self.here or self.where.startswith("local-cluster")

    def settings(self) -> dict[str, str]:
        """Return every Spark setting that follows from the options.

        Raises :class:`MissingPartError` when the jars are missing, and :class:`ConfigError` for
        arguments that cannot be passed on.
        """
        found = {
            "spark.master": self.where,
            "spark.app.name": self.app_name,
            "spark.driver.memory": self.driver_memory,
            "spark.executor.memory": self.executor_memory,
            "spark.jars": ",".join(str(file) for file in needed_files()),
            # Any free port, so that two runs on one machine do not collide.
            "spark.ui.port": "0",
            # Spark's progress bar would overwrite our own line.
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            # Adaptive execution may merge partitions of a running plan, and each partition is one
            # worker.
            "spark.sql.adaptive.enabled": "false",
        }
        if self.here:
            found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
        if self.py_files:
            found["spark.submit.pyFiles"] = ",".join(str(file) for file in self.py_files)
        if self.archives:
            found["spark.archives"] = ",".join(self.archives)
        for name, value in self.given.items():
            found[name] = joined(name, found.get(name, ""), value)
        sent = python_in(found.get("spark.archives", "").split(","))
        if (python := sent or python_of_executors(self.where, self.given)) is not None:
            found.setdefault(PYTHON, python)
        return found


class Session:
    """A running Spark session; a context manager that ends it, Java included.

    ``spark`` is the session itself. ``log`` is the file with Spark's own log. ``ui`` is the address
    of its web UI, or None when that is disabled. Made by :func:`start`.
    """

    def __init__(
        self, spark: SparkSession, gateway: Any, log: Path, scratch: contextlib.ExitStack
    ) -> None:
        self.spark = spark
        self.log = log
        self._scratch = scratch
        self.ui: str | None = spark.sparkContext.uiWebUrl
        self._gateway = gateway

    def close(self) -> None:
        """Stop Spark and wait until its Java has ended; a second call does nothing.

        A Java process that died before is no error here, because the last call to it has raised.
        """
        from py4j.protocol import Py4JError

        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return
        with self._scratch:
            try:
                with contextlib.suppress(ConnectionError, Py4JError):
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
    """Start Spark and return once it accepts work; on a cluster, once executors have done some.

    In a process that spark-submit started, its Spark is used, and its settings override ours.
    Raises :class:`MissingPartError` when something does not fit or Java does not start. Raises
    :class:`ConfigError` for settings that Spark refuses and executors that lack something. Both
    name the log if Spark has written one.
    """
    require(options.where, options.given)
    settings = options.settings()
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        raise ConfigError("this process has a Spark session already; close it first")
    log = options.log or _new_log()
    log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_own_path())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="keyshared-spark-")))
        if options.apart:
            files = joined(PY_FILES, settings.get(PY_FILES, ""), str(package_zip(scratch)))
            settings = {**settings, PY_FILES: files}
        stack.enter_context(_environment(options, settings))
        gateway = _launch(options, settings, scratch, log)
        context: SparkContext | None = None
        try:
            context = _context(gateway, settings)
            if not options.here:
                probe(context)
        except Exception as refused:
            why = cause(refused)  # before Java ends, because only Java knows the cause
            if context is not None:
                context.stop()
            _end(gateway)
            raise ConfigError(
                f"Spark did not start with master {options.where}: {why}; look into {log}"
            ) from refused
        return Session(SparkSession(context), gateway, log, stack.pop_all())


def _launch(options: SparkOptions, settings: dict[str, str], scratch: Path, log: Path) -> Any:
    """Start Java, or find the one that spark-submit has started; return its gateway.

    Java gets its own session, out of reach of signals to this process's group. It still ends with
    this process, because it reads a pipe whose other end only this process holds.
    """
    from pyspark import SparkConf, java_gateway

    launch: Callable[..., Any] = java_gateway.launch_gateway  # pyspark has no types for it
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    _quiet(conf, scratch, options.log_level)
    with log.open("ab") as sink:
        try:
            return launch(
                conf,
                # A signal to the driver's process group must not end Java under a running batch.
                {"stdout": sink, "stderr": subprocess.STDOUT, "start_new_session": True},
            )
        except Exception as failed:
            raise MissingPartError(
                f"Spark did not start with master {options.where}: {last_words(log)}; look into "
                f"{log}"
            ) from failed


def _context(gateway: Any, settings: dict[str, str]) -> SparkContext:
    """Start Spark in a running Java process."""
    from pyspark import SparkConf, SparkContext

    conf = SparkConf(_jvm=gateway.jvm)
    for name, value in settings.items():
        # Our Java has our settings already. Settings that spark-submit gave its own Java must stay.
        conf.setIfMissing(name, value)
    return SparkContext(conf=conf, gateway=gateway)


@contextlib.contextmanager
def _own_path() -> Iterator[None]:
    """Remove the entries that pyspark adds to ``sys.path`` for its copies of files, on exit."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = [place for place in sys.path if place in before or "/userFiles-" not in place]


def _new_log() -> Path:
    descriptor, name = tempfile.mkstemp(prefix="keyshared-spark-", suffix=".log")
    os.close(descriptor)
    return Path(name)


def _quiet(conf: Any, scratch: Path, level: str) -> None:
    """Make Java log to its standard error, which is the log file, from ``level`` on."""
    properties = scratch / "log4j2.properties"
    properties.write_text(_LOG4J.format(level=level))
    ours = f"-Dlog4j2.configurationFile={properties.as_uri()}"
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    conf.set("spark.driver.extraJavaOptions", f"{ours} {theirs}".strip())


@contextlib.contextmanager
def _environment(options: SparkOptions, settings: Mapping[str, str]) -> Iterator[None]:
    """Set the environment that Java and pyspark read, as long as the session lives.

    Spark's script uses the ``java`` of ``JAVA_HOME`` without a version check. Pyspark has no
    setting for the Python of executors; only spark-submit does. With a local master, the web UI is
    reachable from this machine only.
    """
    more = {"JAVA_HOME": str(Path(java_of_spark()).resolve().parents[1])}
    if PYTHON in settings and GATEWAY not in os.environ:
        more["PYSPARK_PYTHON"] = settings[PYTHON]
    if options.here and "SPARK_LOCAL_IP" not in os.environ:
        more["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _end(gateway: Any) -> None:
    """End the Java behind the gateway and forget it, so that the next session starts its own."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    process = getattr(gateway, "proc", None)
    with contextlib.suppress(OSError, Py4JError):
        gateway.shutdown()
    for name in ("_gateway", "_jvm"):  # pyspark never resets them, and has no API for it
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
    """Return the innermost reason of a Spark error in one line, without a stack.

    If Python raised the error in a task, the reason is Python's last message.
    """
    text = _innermost(error)
    if "Traceback (most recent call last)" in text:
        raised = re.findall(r"^ *([A-Za-z_][\w.]*: \S.*)$", text, re.MULTILINE)
        text = raised[-1] if raised else text
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line or type(error).__name__


def _innermost(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return f"Spark's Java has ended ({type(error).__name__})"
    if java is None:
        return str(error)
    try:
        while java.getCause() is not None:
            java = java.getCause()
        return str(java.getMessage() or java.toString())
    except Exception as gone:  # noqa: BLE001 - any error means that Java is gone
        return f"Spark's Java has ended ({type(gone).__name__})"


def last_words(log: Path) -> str:
    """Return the last line of the log that names an error; Java stack lines are skipped."""
    lines = log.read_text(errors="replace").splitlines()
    told = [line.strip() for line in lines if line.strip() and not re.match(r"\s+at ", line)]
    wrong = [line for line in told if re.search(r"error|exception|fail", line, re.IGNORECASE)]
    last = (wrong or told or ["it said nothing"])[-1]
    return re.sub(r'^Exception in thread "\S+" [\w.$]+: ', "", last)
