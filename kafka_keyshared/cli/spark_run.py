"""``keyshared spark run``: a pod's handler over a backlog, on Spark."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.audit_log import log_folder, require_folder, require_log_topic
from kafka_keyshared.cli.output import OutputFormat, start_logging, write_result
from kafka_keyshared.cli.output_sinks import checked_place, whole_place
from kafka_keyshared.cli.run import build, layer, settle_app
from kafka_keyshared.cli.settings import client_settings, load_object
from kafka_keyshared.cli.spark_wanted import wanted_of
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.config import Layers
from kafka_keyshared.config.local_paths import local_path
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.logs import log_of
from kafka_keyshared.observability.audit.ledger_wrappers import audited
from kafka_keyshared.observability.audit.processed import TOPIC
from kafka_keyshared.platform.signals import heard_at_once
from kafka_keyshared.platform.stack_frames import is_users
from kafka_keyshared.spark.batch_plan import BATCH_OFFSETS, BatchPlan
from kafka_keyshared.spark.checks import require, require_pyspark
from kafka_keyshared.spark.driver.ready import require_ready
from kafka_keyshared.spark.driver.run import (
    SHARED_FOLDER,
    SparkRunOutcome,
    SparkRunRequest,
    run_batches,
)
from kafka_keyshared.spark.driver.stop import Stop
from kafka_keyshared.spark.packaging import modules_below, modules_zip
from kafka_keyshared.spark.session import Session, SparkOptions, cause, start
from kafka_keyshared.spark.task_log import TaskLedger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = log_of("kafka_keyshared.spark")

TELL_EVERY = 5.0
"""Seconds between two progress lines of a batch."""


@dataclass(frozen=True)
class SparkRunArguments:
    """The Spark options from the command line; see :class:`SparkOptions`."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    executor_memory: str = "1g"
    conf: Sequence[str] = ()
    log: Path | None = None
    most: int = BATCH_OFFSETS
    state: str | Path | None = None
    streams: bool = False
    archives: tuple[str, ...] = ()
    submit: str = ""

    def options(self, name: str) -> SparkOptions:
        """Return the options for a start of Spark, with this application name."""
        return SparkOptions(
            master=self.master,
            app_name=name,
            driver_memory=self.driver_memory,
            executor_memory=self.executor_memory,
            conf=client_settings(self.conf),
            log=None if self.log is None else local_path("--spark-log", self.log, "a file"),
            archives=self.archives,
            submit=self.submit,
        )


def spark_run_verb(
    arguments: RunArguments,
    on: SparkRunArguments,
    output: OutputFormat,
    audit_log: str | None = None,
    outputs: str | None = None,
) -> int:
    """Run batches until the backlog is done, or without end for a stream; print the result.

    ``audit_log`` is the destination of processed-log rows, ``outputs`` that of handler outputs. The
    status is 1 if records stay behind: because of blocked keys, or because a pod has joined.
    """
    start_logging()
    for flag, port in (
        ("--http-port", arguments.http_port),
        ("--console-port", arguments.console_port),
    ):
        if port is not None:
            raise ConfigError(
                f"{flag}: a run on Spark has no server of its own; its progress is in the log, and "
                "in Spark's pages"
            )
    state = None if on.state is None else local_path("--state", on.state, SHARED_FOLDER)
    target = load_object(arguments.handler or "", arguments.app_dir)
    layers = Layers({}, [], {}, {})
    if isinstance(target, KeyShared):
        app = target
        layers = settle_app(app, arguments, audit_log, outputs) or layers
    else:
        layers = layer(arguments)
        app = build(layers)
        app.handler(target)
        if audit_log is not None:
            app.handler(audited(target, TaskLedger()))
    wanted = replace(wanted_of(app, on.most, state), audit_log=_opened(audit_log))
    options = on.options(f"keyshared {app.conf['group.id']}")
    try:
        wanted.check()
        require(options.where, options.given)
        require_broker(app.conf)
        if audit_log is not None and audit_log.startswith(TOPIC):
            require_log_topic(audit_log, app.conf)
        if outputs is not None:
            wanted = replace(
                wanted, outputs=whole_place(checked_place(outputs, app.conf, app.topics))
            )
    except ConfigError as error:
        raise layers.with_origins(error) from error
    by_value(target)
    require_ready(wanted, here=options.here)
    with handlers_of(arguments.app_dir, options) as sent:
        started, stop = start(sent), Stop()
        # Also active while Spark closes, because a signal then must not hide the committed result.
        with heard_at_once(stop.ask), started as session:
            where = session.spark.sparkContext.master
            log.info("Spark runs on %s; its pages: %s; its log: %s", where, session.ui, session.log)
            bring_along(session, arguments.app_dir)
            done = _run(session, wanted, stop, streams=on.streams)
    write_result(_shown(done, output), output, "spark run")
    # A streaming run ends only by a stop.
    return 0 if done.ended == "caught_up" or (on.streams and done.ended == "stopped") else 1


def _opened(place: str | None) -> str | None:
    """Return the destination of a processed log, with an existing folder as a full path.

    Raises :class:`ConfigError` for one that cannot be written.
    """
    if place is None or place.startswith(TOPIC):
        return place
    folder = log_folder(place).resolve()
    require_folder(folder)
    return str(folder)


@contextmanager
def handlers_of(app_dir: Path, options: SparkOptions) -> Iterator[SparkOptions]:
    """Add the imported modules below ``app_dir``, if executors are separate processes."""
    modules = modules_below(app_dir) if options.apart else []
    if not modules:
        yield options
        return
    with TemporaryDirectory(prefix="keyshared-handlers-") as scratch:
        file = modules_zip(Path(scratch), modules)
        yield replace(options, py_files=(*options.py_files, file))


def by_value(target: Any) -> None:
    """Pickle the handler's module by value, because no executor has its file."""
    require_pyspark()
    from pyspark import cloudpickle

    handler = getattr(target, "_handler", target)
    module = sys.modules.get(getattr(handler, "__module__", ""))
    file = getattr(module, "__file__", None)
    if module is not None and file is not None and is_users(file):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def bring_along(session: Session, app_dir: Path) -> None:
    """Let executors import modules beside the handler's, if ``app_dir`` is the same path there."""
    environment = session.spark.sparkContext.environment
    known = [environment.get("PYTHONPATH", ""), str(app_dir.resolve())]
    environment["PYTHONPATH"] = ":".join(filter(None, known))


def _run(
    session: Session, wanted: SparkRunRequest, stop: Stop, *, streams: bool
) -> SparkRunOutcome:
    try:
        with _telling(session.spark) as telling:
            return run_batches(session.spark, wanted, telling.watch, stop, streams=streams)
    except KeySharedError:
        raise
    except Exception as error:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not isinstance(error, PySparkException | Py4JError | ConnectionError):
            raise
        why = cause(error)
        if why.startswith(("ModuleNotFoundError: ", "ImportError: ")):
            raise ConfigError(
                f"an executor cannot load the handler: {why}; keep the module below --app-dir, "
                "install it on the executors, or send an archive of an environment that has it "
                "(--archives FILE#environment). The batch is not committed"
            ) from error
        raise KeySharedError(
            f"Spark has failed, and the batch is not committed: {why}; see {session.log}"
        ) from error


def _shown(done: SparkRunOutcome, output: OutputFormat) -> Mapping[str, Any]:
    told = done.told()
    if output is OutputFormat.TABLE:
        told["seconds"] = round(done.seconds, 1)
        told["positions"] = ", ".join(f"{name} {at}" for name, at in done.positions.items())
    return told


class SparkProgressLog:
    """Logs the progress of a run."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._batch = ""
        self._began = time.monotonic()
        self._records = 0

    def watch(self, what: str, plan: BatchPlan, done: SparkRunOutcome) -> None:
        """Log that a batch has begun, or its result."""
        if what == "begun":
            self._batch = (
                f"batch {done.batches + 1}: {plan.offsets:,} offsets of "
                f"{len(plan.shares)} partitions"
            )
            self._began, self._records = time.monotonic(), done.records
            log.info("%s", self._batch)
            return
        self._batch = ""
        seconds = max(1e-3, time.monotonic() - self._began)
        log.info(
            "batch %d committed: %s records in %.1f s (%s a second), %s dead letters so far, %s "
            "offsets left",
            done.batches,
            f"{done.records - self._records:,}",
            seconds,
            f"{(done.records - self._records) / seconds:,.0f}",
            f"{done.dead_lettered:,}",
            f"{done.left:,}",
        )

    def tick(self) -> None:
        """Log how many tasks of the batch have ended."""
        if not self._batch:
            return
        stages = [self._tracker.getStageInfo(each) for each in self._tracker.getActiveStageIds()]
        tasks = [(each.numCompletedTasks, each.numTasks) for each in stages if each is not None]
        if tasks:
            ended, all_ = map(sum, zip(*tasks, strict=True))
            log.info("%s, %.0f s: %d of %d tasks", self._batch, self._since(), ended, all_)

    def _since(self) -> float:
        return time.monotonic() - self._began


@contextmanager
def _telling(spark: SparkSession) -> Iterator[SparkProgressLog]:
    telling, over = SparkProgressLog(spark), threading.Event()

    def live() -> None:
        while not over.wait(TELL_EVERY):
            try:
                telling.tick()
            except Exception as error:  # noqa: BLE001 - whatever ends the run, its thread tells
                log.debug("the progress is unknown: %s", error)
                return

    thread = threading.Thread(target=live, name="keyshared-spark-progress", daemon=True)
    thread.start()
    try:
        yield telling
    finally:
        over.set()
        thread.join()
