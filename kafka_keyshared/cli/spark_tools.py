"""Shared parts of the Spark tools: a session, and the topics' offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_keyshared.cli.advice.logs import LogQueries
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.output import write_note
from kafka_keyshared.cli.run import gather
from kafka_keyshared.cli.settings import client_settings
from kafka_keyshared.client.probe import require_broker
from kafka_keyshared.client.standalone import READ_ONLY, outsider
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.observability.audit.processed import TOPIC
from kafka_keyshared.spark.logs import OffsetSpan, source_records
from kafka_keyshared.spark.session import SparkOptions, cause, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SparkPlaceArguments:
    """The Spark options, as they were typed; ``memory`` is the driver's."""

    master: str = "local[*]"
    memory: str = "2g"
    settings: Sequence[str] = field(default_factory=list)
    executor_memory: str = "2g"

    def options(self) -> SparkOptions:
        """Return the options for Spark; raise :class:`ConfigError` for an invalid setting."""
        conf = {
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.shuffle.partitions": "32",
            **client_settings(self.settings, "--spark-conf"),
        }
        return SparkOptions(
            self.master,
            driver_memory=self.memory,
            executor_memory=self.executor_memory,
            conf=conf,
        )


@contextmanager
def on_spark(options: SparkPlaceArguments) -> Iterator[SparkSession]:
    """Start Spark for one tool, and turn its errors into one line."""
    from kafka_keyshared.errors import KeySharedError

    write_note("starting Spark")
    with start(options.options()) as session:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        write_note(f"Spark's log is {session.log}" + (f"; {session.ui}" if session.ui else ""))
        try:
            yield session.spark
        except (PySparkException, Py4JError, ConnectionError) as error:
            raise KeySharedError(f"Spark failed: {cause(error)}; see {session.log}") from error


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of a cluster, as they were typed."""

    bootstrap: str | None
    topics: Sequence[str]
    group: str | None
    config: Path | None
    settings: Sequence[str]

    def conf(self) -> dict[str, Any]:
        """Return the client's settings; raise :class:`ConfigError` when no broker is named."""
        arguments = RunArguments(
            bootstrap=self.bootstrap, config=self.config, client=list(self.settings)
        )
        layers = gather(arguments)
        if not layers.conf.get("bootstrap.servers"):
            raise ConfigError(
                "no broker is named: give -b host:port, bootstrap in the file, or "
                "KEYSHARED_BOOTSTRAP"
            )
        require_broker(layers.conf)
        return layers.conf


def spans_of(conf: dict[str, Any], topics: Sequence[str], group: str | None) -> list[OffsetSpan]:
    """Return the current spans of the topics; with a group, up to its committed positions.

    Raises :class:`TopicMissingError` for a missing topic.
    """
    own = {**conf, **READ_ONLY, "group.id": group or "keyshared-spark"}
    own.pop("group.instance.id", None)
    consumer = outsider(own, [])
    try:
        logs = LogQueries(consumer, own).look(topics, with_group=group is not None)
    finally:
        consumer.close()
    return [
        OffsetSpan(
            log.partition.topic,
            log.partition.partition,
            log.begin,
            log.end if group is None else max(log.begin, log.committed or 0),
        )
        for log in logs
    ]


def source_of(
    spark: SparkSession,
    conf: dict[str, Any],
    spans: Sequence[OffsetSpan],
    since: int | None,
    until: int | None,
) -> DataFrame:
    """Return the records of these spans that were written between two times (ms since 1970)."""
    from pyspark.sql import functions as f

    source = source_records(spark, conf, spans)
    if since is not None:
        source = source.where(f.col("at") >= since)
    return source if until is None else source.where(f.col("at") < until)


def topic_of(place: str) -> str | None:
    """Return the topic that a place of a log names, None for a folder."""
    return place.removeprefix(TOPIC) if place.startswith(TOPIC) else None
