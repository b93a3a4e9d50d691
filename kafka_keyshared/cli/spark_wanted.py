"""Conversion of an app to a Spark run.

The command line and programs that call ``run_batches`` themselves both use :func:`wanted_of`. No
setting of an app is ignored silently: it is honoured, refused by its name, or named in a warning.
"""

from __future__ import annotations

from pathlib import Path

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config import Options
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.logs import log_of
from kafka_keyshared.spark.batch_plan import BATCH_OFFSETS
from kafka_keyshared.spark.driver.run import SparkRunRequest

log = log_of("kafka_keyshared.spark")

SERVERS = ("http_port", "console_port", "group_view_topic")
STOPS = ("commit_interval", "stop_timeout", "revoke_deadline")


def wanted_of(
    app: KeyShared, most: int = BATCH_OFFSETS, state: Path | None = None
) -> SparkRunRequest:
    """Return the Spark run of an app; log a warning for each setting without effect there.

    ``most`` is the maximum number of offsets of a partition in a batch. ``state`` is the folder for
    the state of a handler class. Raises :class:`ConfigError` for an app that Spark cannot run.
    """
    _refuse(app)
    for line in without_effect(app):
        log.warning("%s", line)
    options = app.options
    return SparkRunRequest(
        app.conf,
        app.topics,
        app.subscription,
        app.worker_specs(traced=False),
        options.dlq_topic,
        options.dlq_create,
        options.dlq_format,
        most,
        state,
        check_invariants=options.check_invariants,
    )


def _refuse(app: KeyShared) -> None:
    """Raise :class:`ConfigError` for handlers that are not called with one record at a time."""
    name = getattr(app.called, "__qualname__", repr(app.called))
    if app.batches is not None:
        raise ConfigError(
            f"batch handler {name}: Spark calls a handler with one record at a time; run this app "
            "with `keyshared run`, or give it an @app.handler for single records"
        )
    if not app.options.serial:
        raise ConfigError(
            f"workers={app.options.workers!r}: Spark's tasks call a handler; give a number of "
            "workers and a handler"
        )
    if app.called is None:
        raise ConfigError(
            "the app has no handler for Spark to call: put @app.handler on a function or a class"
        )


def without_effect(app: KeyShared) -> list[str]:
    """Return a line for each group of the app's settings without effect on Spark."""
    options, plain = app.options, Options()
    lines: list[str] = []

    def note(names: list[str], why: str) -> None:
        if names:
            lines.append(f"{', '.join(names)}: no effect on Spark: {why}")

    def changed(names: tuple[str, ...]) -> list[str]:
        return [each for each in names if getattr(options, each) != getattr(plain, each)]

    note(changed(SERVERS), "a Spark run has no server; use Spark's pages")
    note(changed(("tracing",)), "a Spark run makes no spans")
    note(
        changed(("shards", "detach_after", "on_evict", "unblocking_interval", "new_workers_wait")),
        "a task is one worker, and the workers of a batch do not change",
    )
    limits = [f"ack_timeout={options.time_limit:g} s"] if options.time_limit else []
    note(
        limits + changed(("on_stuck",)),
        "a task waits for its handler without a limit; set timeouts in the handler",
    )
    note(
        changed(STOPS),
        "positions are committed after each batch, and a stop or a rebalance waits for the batch",
    )
    note(
        changed(("dlq_limit",)) and ["dlq_limit across workers"],
        "each task counts the dead letters of its own worker, in its own batch",
    )
    note(
        list(app.callbacks),
        "the driver has the partitions, and calls no callback of a rebalance",
    )
    return lines
