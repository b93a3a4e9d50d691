"""Spark as we start it: it reads Kafka, keeps quiet and says where to look."""

from __future__ import annotations

import os
import sys
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.session import Session, SparkOptions, start
from kafka_keyshared.testing.clusters.cluster import Cluster


def test_it_reads_a_topic_and_tells_where_its_pages_are(
    session: Session, real_cluster: Cluster, topic: str
) -> None:
    real_cluster.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    for number in range(20):
        producer.produce(topic, key=f"k{number % 3}", value=str(number), partition=number % 2)
    producer.flush()
    frame = (
        session.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", real_cluster.bootstrap)
        .option("subscribe", topic)
        .load()
    )
    rows = frame.selectExpr("cast(value as string)", "partition", "offset").collect()
    assert sorted((row[1], row[2], int(row[0])) for row in rows) == sorted(
        (number % 2, number // 2, number) for number in range(20)
    )
    assert session.ui is not None
    assert session.ui.startswith("http://127.0.0.1:")
    with urlopen(f"{session.ui}/api/v1/version") as answer:
        assert answer.status == 200
    assert session.log.is_file()


def test_a_process_has_one_at_a_time(session: Session) -> None:
    with pytest.raises(ConfigError, match="has a Spark session already"):
        start(SparkOptions("local[1]"))


def test_tasks_run_on_the_python_of_the_driver(session: Session) -> None:
    pythons = session.spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable)
    assert pythons.collect() == [os.environ.get("PYSPARK_PYTHON", sys.executable)]
