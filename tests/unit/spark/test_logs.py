"""What Spark reads of a processed log is what is written."""

from __future__ import annotations

from kafka_keyshared.observability.audit.processed import COLUMNS
from kafka_keyshared.spark.logs import ROW


def test_spark_reads_the_columns_that_are_written() -> None:
    assert tuple(part.split()[0] for part in ROW.split(", ")) == COLUMNS
