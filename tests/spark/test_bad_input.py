"""What cannot run is told in a line, with status 1 or 2, and without a stack; nothing is committed.

As it is typed; but the Spark, where one is needed at all, is the one that runs already.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.cli import spark_run, spark_tools
from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import (
    PARTITIONS,
    Eventually,
    an_app,
    filled,
    read_all,
    run_pod,
    typed_run,
)
from tests.support.cli import Ended, in_process, own_modules

RECORDS = 30
FINE = "def handle(record): ...\n"
LOCKED = "import threading\nlock = threading.Lock()\ndef handle(record):\n    with lock: ...\n"
ABSENT = "from only_here import handle_it\ndef handle(record): handle_it(record)\n"
DAMAGED = '{"event":"handled","topic":"t"}\nno row\nnor this\n'

Typed = Callable[..., Ended]


def committed(cluster: Cluster, topic: str) -> list[int]:
    """Return where the group stands in each partition that it has committed anything of."""
    own = {"bootstrap.servers": cluster.bootstrap, "group.id": f"g-{topic}"}
    consumer = Consumer(own)
    try:
        asked = [ClientPartition(topic, number) for number in range(PARTITIONS)]
        return [each.offset for each in consumer.committed(asked, timeout=30) if each.offset >= 0]
    finally:
        consumer.close()


@pytest.fixture
def typed(
    real_cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Typed:
    """`keyshared spark run` with a handler of this source, on a topic that has some records."""
    filled(real_cluster, topic, RECORDS)
    place = tmp_path / "app"
    place.mkdir()

    def run(source: str, *arguments: object) -> Ended:
        (place / "app.py").write_text(source)
        more = ("--workers", 2, *(arguments or ("-t", topic)))
        with own_modules(tmp_path):
            return typed_run(capsys, place, real_cluster, topic, *more)

    return run


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch, spark_parts: None) -> None:
    """No Spark is started."""

    def start(_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(spark_run, "start", start)


@pytest.fixture
def on_spark(monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
    """The verbs use the Spark that all tests use."""
    for verbs in (spark_run, spark_tools):
        monkeypatch.setattr(verbs, "start", lambda _: nullcontext(session))


def told(ended: Ended) -> str:
    """Return the one line that says what is wrong; whatever else is there belongs to the log."""
    assert ended.out == ""
    assert not any(each in ended.err for each in ("Traceback", "\tat ", "java.lang"))
    [line] = [each for each in ended.err.splitlines() if each.startswith("keyshared: ")]
    assert ended.err.endswith(f"{line}\n")
    return line


@pytest.mark.usefixtures("no_spark")
def test_topics_that_are_not_there_are_named(
    typed: Typed, real_cluster: Cluster, topic: str
) -> None:
    missing = typed(FINE, "-t", f"{topic}.none")
    assert missing.status == 2
    assert f"topic '{topic}.none' does not exist on the cluster" in told(missing)
    letters = typed(FINE, "-t", topic, "--dlq", "auto")
    assert letters.status == 2
    assert f"dead-letter topic '{topic}.dlq' does not exist: create it" in told(letters)
    assert committed(real_cluster, topic) == []


@pytest.mark.usefixtures("no_spark")
def test_a_handler_that_cannot_be_sent_is_told(
    typed: Typed, real_cluster: Cluster, topic: str
) -> None:
    ended = typed(LOCKED)
    assert ended.status == 2
    assert "the handler cannot be sent to executors: TypeError: cannot pickle" in told(ended)
    assert committed(real_cluster, topic) == []


@pytest.mark.usefixtures("no_spark")
def test_a_group_that_is_at_work_is_left_alone(
    typed: Typed, real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    ran: list[object] = []

    def refused() -> bool:
        if len(ran) < RECORDS:
            return False
        ended = typed(FINE, "-t", topic)
        assert ended.status == 1
        assert f"group 'g-{topic}' has 1 member" in told(ended)
        return True

    assert run_pod(an_app(real_cluster, topic, ran.append), refused, eventually) == 0
    assert sum(committed(real_cluster, topic)) == RECORDS


@pytest.mark.usefixtures("no_spark")
def test_no_broker_and_a_setting_that_java_has_nothing_for(typed: Typed, topic: str) -> None:
    nobody = typed(
        FINE, "-t", topic, "-b", "127.0.0.1:1", "-X", "socket.connection.setup.timeout.ms=1000"
    )
    assert nobody.status == 1
    assert "no broker answered at 127.0.0.1:1" in told(nobody)
    unknown = typed(FINE, "-t", topic, "-X", "sasl.kerberos.keytab=x")
    assert unknown.status == 2
    assert "sasl.kerberos.keytab: Spark's Kafka client has no such setting" in told(unknown)


@pytest.mark.usefixtures("on_spark")
def test_a_module_that_executors_do_not_have_is_named(
    typed: Typed,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "only_here.py").write_text("def handle_it(record): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    ended = typed(ABSENT)
    assert ended.status == 2
    assert (
        "an executor cannot load the handler: ModuleNotFoundError: No module named 'only_here'; "
        "keep the module below --app-dir, install it on the executors"
    ) in told(ended)
    assert committed(real_cluster, topic) == []


@pytest.mark.usefixtures("on_spark")
def test_malformed_records_are_dead_letters_and_end_nothing(
    typed: Typed, real_cluster: Cluster, topic: str
) -> None:
    """Values that are no JSON where keys are in them, or none at all, and headers of any bytes."""
    real_cluster.create_topic(f"{topic}.dlq", 1)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    for value in (b'{"id": "a"}', b"\xff\xfe", b"{", None, b"[]", b'{"id": "b"}'):
        producer.produce(topic, value, b"k", 0, headers=[("n", b"\xff"), ("", None)])
    assert producer.flush(30) == 0
    ended = typed(FINE, "-t", topic, "--dlq", "auto", "--key", "json:/id")
    assert ended.status == 0, ended.err
    done = json.loads(ended.out)
    # JSON without an "id" has no key; what is no JSON has one that cannot be read.
    assert (done["records"], done["handled"], done["dead_lettered"]) == (
        RECORDS + 6,
        RECORDS + 4,
        2,
    )
    letters = read_all(real_cluster, f"{topic}.dlq")
    assert sorted(each.value() for each in letters) == [b"{", b"\xff\xfe"]
    assert all(dict(each.headers())["n"] == b"\xff" for each in letters)
    assert sum(committed(real_cluster, topic)) == RECORDS + 6


@pytest.mark.usefixtures("on_spark")
def test_a_processed_log_that_is_none_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.jsonl").write_text(DAMAGED)
    ended = in_process(capsys, "spark", "audit", tmp_path, "--json")
    assert ended.status == 2
    assert "lines are no rows of a processed log, such as" in told(ended)
    nowhere = in_process(capsys, "spark", "audit", tmp_path / "none", "--json")
    assert nowhere.status == 2
    assert "none: the folder does not exist; give the folder" in told(nowhere)
