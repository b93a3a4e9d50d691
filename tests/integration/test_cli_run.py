"""`keyshared demo load`, `keyshared run` and check.py on a real broker, as the README tells it."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.lab.demo.data import CANCELLED, RECORDS
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.support.cli import Running, as_user, in_process
from tests.support.live_cluster import read_all
from tests.support.processed_rows import read_rows

ROOT = Path(__file__).resolve().parents[2]
FLIGHTS = ROOT / "examples" / "flights"


def test_the_flights_example_from_loading_to_the_check(
    real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    broker = ("-b", real_cluster.bootstrap)
    loaded = as_user("demo", "load", *broker, "-t", topic, "--json")
    assert loaded.status == 0, loaded.err
    assert json.loads(loaded.out) == {"topic": topic, "records": RECORDS, "created": True}
    names = ("-t", topic, "-g", topic, "--dlq", f"{topic}.dlq")
    settings = ("--config", FLIGHTS / "keyshared.toml")
    out = {"FLIGHTS_OUT": str(tmp_path)}
    with Running("run", f"{FLIGHTS}/app.py:Flights", *settings, *broker, *names, env=out) as run:
        line = run.wait_for("caught up")
        assert f"settled {RECORDS:,} " in line
        assert f"dead letters {CANCELLED:,};" in line
        assert line.rstrip().endswith("16 partitions, lag 0")
        assert run.end(signal.SIGTERM) == 0, run.err
        assert "8 threads" in run.err
        assert "drained; committed; 0 records received and left undone" in run.err
        assert run.process.stdout is not None
        assert run.process.stdout.read() == ""
        # A line now and then, not one per record.
        assert run.err.count("kafka_keyshared.status") < 100
    checked = as_user(tmp_path, command=[sys.executable, str(FLIGHTS / "check.py")])
    assert checked.status == 0, checked.out
    assert checked.out == "match: 4,037 aircraft, 328,521 departures\n"
    _assert_all_committed(real_cluster, topic)


def _assert_all_committed(cluster: Cluster, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    partitions = [ClientPartition(topic, number) for number in range(16)]
    ends = [consumer.get_watermark_offsets(each, timeout=30) for each in partitions]
    committed = consumer.committed(partitions, timeout=30)
    consumer.close()
    assert [each.offset for each in committed] == [bounds[1] for bounds in ends if bounds]
    assert sum(each.offset for each in committed) == RECORDS


def test_ctrl_c_ends_a_run_cleanly_and_the_next_one_goes_on(
    real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    real_cluster.create_topic(topic, 2)
    arguments = ("run", "app:handle", "--app-dir", tmp_path, "-b", real_cluster.bootstrap)
    names = ("-t", topic, "-g", topic, "-X", "auto.offset.reset=earliest")
    for round_number in (1, 2):
        _produce(real_cluster, topic, 500)
        with Running(*arguments, *names) as run:
            # What the first run settled and committed does not come again.
            assert "settled 500 " in run.wait_for("caught up"), round_number
            assert run.end(signal.SIGINT) == 0, run.err


FAILING = """\
def handle(record):
    print("seen", record.offset())
    if record.offset() % 3 == 0:
        raise KeyError("customer_id")
"""


def test_on_a_terminal_a_live_line_stays_below_the_log(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(FAILING)
    embedded_cluster.create_topic(topic, 1)
    _produce(embedded_cluster, topic, 9, partitions=1)
    arguments = ("run", "app:handle", "--app-dir", tmp_path, "-b", embedded_cluster.bootstrap)
    names = ("-t", topic, "-g", topic, "-X", "auto.offset.reset=earliest")
    with Running.on_terminal(*arguments, *names) as run:
        run.wait_for("3 keys blocked; 1 partition, lag 9")
        assert run.end(signal.SIGINT) == 0
        shown = run.whole()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert shown.count("\x1b[2K") > 4, "the line is drawn over itself"
    assert f"KeyError at {tmp_path}/app.py:4: 'customer_id'" in plain
    assert "Traceback (most recent call last):\n" in plain
    assert "\nseen 8\n" in plain, "what the handler prints has lines of its own"
    assert "stopped in" in plain


def test_where_standard_output_is_a_file_what_a_handler_prints_goes_there(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(FAILING)
    embedded_cluster.create_topic(topic, 1)
    _produce(embedded_cluster, topic, 1, partitions=1)
    arguments = ("run", "app:handle", "--app-dir", tmp_path, "-b", embedded_cluster.bootstrap)
    names = ("-t", topic, "-g", topic, "-X", "auto.offset.reset=earliest")
    out = tmp_path / "out"
    with out.open("w") as file, Running.on_terminal(*arguments, *names, stdout=file) as run:
        run.wait_for("1 key blocked; 1 partition")
        assert run.end(signal.SIGINT) == 0
        assert "seen" not in run.whole()
    assert set(out.read_text().split("\n")) == {"seen 0", ""}


def test_a_run_serves_its_metrics_where_it_says(
    real_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    real_cluster.create_topic(topic, 2)
    _produce(real_cluster, topic, 500)
    done = (
        f'keyshared_records_processed_total{{group="{topic}",outcome="ok",topic="{topic}"}} 500.0'
    )
    with Running(
        *("run", "app:handle", "--app-dir", tmp_path, "-b", real_cluster.bootstrap),
        *("-t", topic, "-g", topic, "-X", "auto.offset.reset=earliest", "--http-port", "0"),
    ) as run:
        line = run.wait_for("metrics and health checks at ")
        run.wait_for("caught up")
        url = line.partition(" at ")[2].split()[0]

        def told() -> bool:
            with urllib.request.urlopen(f"{url}/metrics", timeout=30) as answer:
                return done in answer.read().decode()

        eventually(told, 30.0)
        assert run.end(signal.SIGTERM) == 0, run.err


def _produce(cluster: Cluster, topic: str, count: int, partitions: int = 2) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(count):
        producer.produce(topic, b"value", b"key-%d" % (number % 20), number % partitions)
    assert producer.flush(30) == 0


def test_a_topic_of_another_name_that_exists_is_loaded_into(
    real_cluster: Cluster,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kafka_keyshared.lab.demo import data, load

    few = list(zip(range(300), data.records(), strict=False))
    monkeypatch.setattr(load, "records", lambda: iter([record for _, record in few]))
    real_cluster.create_topic(topic, 3)
    ended = in_process(
        capsys,
        "demo",
        "load",
        "-b",
        real_cluster.bootstrap,
        "-t",
        topic,
        "-X",
        "acks=all",
        "--json",
    )
    assert ended.status == 0, ended.err
    assert json.loads(ended.out) == {"topic": topic, "records": 300, "created": False}
    consumer = Consumer({"bootstrap.servers": real_cluster.bootstrap, "group.id": topic})
    ends = [
        consumer.get_watermark_offsets(ClientPartition(topic, number), timeout=30)
        for number in range(3)
    ]
    consumer.close()
    assert sum(bounds[1] for bounds in ends if bounds) == 300


def test_a_topic_name_that_the_broker_refuses_is_named(
    real_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = in_process(capsys, "demo", "load", "-b", real_cluster.bootstrap, "-t", "no good/name")
    assert ended.status == 2
    assert "topic 'no good/name' could not be created" in ended.err
    assert ended.out == ""


def test_an_outage_is_told_in_a_few_lines_and_when_it_is_over(topic: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("def handle(record):\n    record.value().decode()\n")
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        cluster.create_topic(f"{topic}.dlq", 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        for number in range(20):
            producer.produce(topic, b"\xff" if number == 7 else b"v", b"key-%d" % number)
        assert producer.flush(30) == 0
        arguments = ("run", "app:handle", "--app-dir", tmp_path, "-b", cluster.bootstrap)
        names = ("-t", topic, "-g", topic, "--dlq", "auto", "--from-beginning", "--attempts", "1")
        with Running(*arguments, *names) as run:
            run.wait_for("caught up")
            cluster.broker_down()
            run.wait_for("no broker answers (")
            cluster.broker_up()
            run.wait_for("a broker answers again, after ")
            assert run.end(signal.SIGTERM) == 0, run.err
    assert "rdkafka#" not in run.err, "no line of the client's own"
    told = [line for line in run.err.splitlines() if "kafka_keyshared.kafka" in line]
    assert len(told) <= 4, run.err


AUDITED = """\
def handle(record):
    if record.offset() % 10 == 3:
        raise KeyError("customer_id")
"""


@pytest.mark.parametrize("place", ["folder", "topic"])
def test_an_audit_log_has_a_row_for_each_call_and_each_record_that_was_given_up(
    embedded_cluster: Cluster, topic: str, tmp_path: Path, place: str
) -> None:
    (tmp_path / "app.py").write_text(AUDITED)
    for name in (topic, f"{topic}.dlq", f"{topic}.log"):
        embedded_cluster.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for number in range(100):
        producer.produce(topic, b"v", b"key", headers=[("who", b"abc"[number % 3 :][:1])])
    assert producer.flush(30) == 0
    arguments = ("run", "app:handle", "--app-dir", tmp_path, "-b", embedded_cluster.bootstrap)
    names = ("-t", topic, "-g", topic, "--from-beginning", "--attempts", "2")
    policy = ("--dlq", "auto") if place == "topic" else ("--on-exhausted", "drop")
    log = f"topic:{topic}.log" if place == "topic" else str(tmp_path / "log")
    with Running(*arguments, *names, *policy, "--key", "header:who", "--audit-log", log) as run:
        run.wait_for("caught up")
        assert run.end(signal.SIGINT) == 0, run.err
    if place == "topic":
        found = read_all(embedded_cluster, f"{topic}.log", 120)
        lines = b"".join((message.value() or b"") + b"\n" for message in found)
    else:
        (file,) = (tmp_path / "log").iterdir()
        lines = file.read_bytes()
    rows = read_rows(lines)
    handled = [row for row in rows if row.event == "handled"]
    assert {(row.offset, row.attempt) for row in handled if row.outcome == "failed"} == {
        (offset, attempt) for offset in range(3, 100, 10) for attempt in (1, 2)
    }
    assert sorted(row.offset for row in handled if row.outcome == "ok") == [
        offset for offset in range(100) if offset % 10 != 3
    ]
    given_up = [row for row in rows if row.event not in ("handled", "produced")]
    assert {row.event for row in given_up} == {"dead_lettered" if place == "topic" else "dropped"}
    assert sorted(row.offset for row in given_up) == list(range(3, 100, 10))
    assert {row.worker for row in handled} <= {f"worker-{number}" for number in range(16)}
    assert {row.key for row in handled} == {b"a", b"b", b"c"}, "the key is that of --key"


def test_an_audit_log_that_cannot_be_written_is_refused_before_anything_is_read(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    (tmp_path / "file").write_text("")
    embedded_cluster.create_topic(topic, 1)
    for place, why in (
        (str(tmp_path / "file"), "give a writable folder"),
        ("topic:", "give topic:NAME, or a folder"),
    ):
        ended = as_user(
            *("run", "app:handle", "--app-dir", tmp_path, "-b", embedded_cluster.bootstrap),
            *("-t", topic, "-g", topic, "--audit-log", place),
        )
        assert ended.status == 2, ended.err
        assert ended.err.strip().splitlines()[-1].startswith(f"keyshared: --audit-log {place}")
        assert why in ended.err
