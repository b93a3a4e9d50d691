"""Dead letters on Spark: grouped, chosen, and replayed in key order; malformed ones are told."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer

from kafka_keyshared.cli import spark_dlq
from kafka_keyshared.dlq.avro import MARKER
from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.bare_client import write_transactions
from tests.support.batches import read_all
from tests.support.cli import Ended, in_process
from tests.support.letters import source_headers

KEYS = 6
LETTERS = 60
BAD_OFFSETS = (12, 13, 24)
"""Of keys 0, 1 and 0."""


def write(cluster: Cluster, topic: str) -> None:
    """Letters of two source partitions in no order, what is no letter, and what was rolled back."""
    cluster.create_topic(topic, 2)
    cluster.create_topic(f"{topic}.dlq", 2)
    write_transactions(cluster, f"{topic}.dlq", 5, [False])
    places = [(partition, offset) for partition in range(2) for offset in range(LETTERS // 2)]
    random.Random(7).shuffle(places)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number, (partition, offset) in enumerate(places):
        bad = offset in BAD_OFFSETS
        told = [
            ("keyshared.error.type", b"ValueError" if bad else b"TimeoutError"),
            ("keyshared.error.message", b"%d is bad" % offset if bad else b"no answer"),
            ("keyshared.source.group", b"billing"),
            # What somebody else has written there is no number that any column could have.
            ("keyshared.attempts", b"9" * 30),
        ]
        producer.produce(
            f"{topic}.dlq",
            b"%d:%d" % (partition, offset),
            b"key-%d" % (offset % KEYS),
            number % 2,
            headers=[*source_headers(topic, partition, offset), *told, ("own", None)],
        )
    damaged: list[Any] = [
        [],
        [("keyshared.source.topic", b"t"), ("keyshared.source.partition", b"x")],
        [("keyshared.source.topic", b"\xff"), ("keyshared.error.message", b"\xff")],
    ]
    for headers in damaged:
        producer.produce(f"{topic}.dlq", b"\xff", b"\xff\xfe", 0, headers=headers)
    content: list[Any] = [("keyshared.content", b"avro")]
    producer.produce(f"{topic}.dlq", MARKER + b"no such letter", None, 0, headers=content)
    assert producer.flush(60) == 0


@pytest.fixture
def on(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb uses the Spark that all tests use."""

    @contextmanager
    def on_spark(_: Any) -> Iterator[Any]:
        yield session.spark

    monkeypatch.setattr(spark_dlq, "on_spark", on_spark)


def by_lane(cluster: Cluster, topic: str) -> dict[tuple[str, int], list[int]]:
    """Source offsets of what was replayed, by key and source partition, as the topic has them."""
    found = defaultdict(list)
    for each in sorted(read_all(cluster, topic), key=lambda each: each.offset()):
        partition, offset = map(int, each.value().split(b":"))
        found[each.key().decode(), partition].append(offset)
    return dict(found)


@pytest.mark.timeout(600)
def test_what_is_chosen_on_spark_is_replayed_in_key_order(
    on: None,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(real_cluster, topic)
    where = ("-b", real_cluster.bootstrap, "-t", topic)

    def dlq(*arguments: str | Path) -> Ended:
        ended = in_process(capsys, "spark", "dlq", *where, "--json", *arguments)
        assert ended.status == 0, ended.err
        return ended

    everything = json.loads(dlq("--export", tmp_path / "all", "--out", tmp_path / "report").out)
    assert (everything["letters"], everything["foreign"], everything["unreadable"]) == (60, 3, 1)
    assert [
        (each["error_type"], each["pattern"], each["letters"], each["keys"])
        for each in everything["errors"]
    ] == [("TimeoutError", "no answer", 54, KEYS), ("ValueError", "# is bad", 6, 2)]
    assert {each["key"]["text"]: each["letters"] for each in everything["keys"]} == {
        f"key-{number}": 10 for number in range(KEYS)
    }
    (of_topic,) = everything["topics"]
    assert (of_topic["source_topic"], of_topic["source_group"]) == (topic, "billing")
    assert sum(each["letters"] for each in everything["timeline"]) == LETTERS
    assert [each["error"].split(":")[0] for each in everything["samples"]] == [
        *["TimeoutError"] * 2,
        *["ValueError"] * 2,
    ]
    assert len(everything["not_letters"]) == 2
    assert json.loads((tmp_path / "report" / "dlq.json").read_text()) == everything
    assert "<svg" in (tmp_path / "report" / "dlq.svg").read_text()
    lines = [
        json.loads(line)
        for file in (tmp_path / "all").glob("*.txt")
        for line in file.read_text().splitlines()
    ]
    assert len(lines) == LETTERS + 4
    assert {each["headers"][0]["name"] for each in lines if each["form"] == "headers"} == {"own"}

    selection = tmp_path / "selection.jsonl"
    chosen = dlq(
        *("--error", "^ValueError", "--whole-keys", "--select", selection),
        *("--export", tmp_path / "chosen", "--format", "parquet"),
    )
    found = json.loads(chosen.out)
    assert (found["letters"], found["same_keys"]) == (20, 14)
    assert "14 of them were added because of their keys" in chosen.err
    assert f"--selection {selection}" in chosen.err
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "chosen")
    assert set(table["key"].to_pylist()) == {b"key-0", b"key-1"}
    assert sorted(table["value"].to_pylist())[0] == b"0:0"

    replay = ("dlq", "replay", *where, "--selection", selection, "--json", "--execute")
    replayed = in_process(capsys, *replay)
    assert replayed.status == 0, replayed.err
    assert json.loads(replayed.out)["replayed"] == 20
    assert "not there" not in replayed.err
    assert by_lane(real_cluster, topic) == {
        (f"key-{key}", partition): list(range(key, LETTERS // 2, KEYS))
        for key in range(2)
        for partition in range(2)
    }

    out = ("--select", tmp_path / "rest", "--export", tmp_path / "left")
    left = json.loads(dlq("--outstanding", *out).out)
    assert (left["letters"], left["foreign"], left["unreadable"]) == (LETTERS - 20, 3, 1)
    assert [each["error_type"] for each in left["errors"]] == ["TimeoutError"]
    assert {each["key"]["text"] for each in left["keys"]} == {f"key-{n}" for n in range(2, KEYS)}
    assert len((tmp_path / "rest").read_text().splitlines()) == LETTERS - 20
    exported = [file.read_text() for file in (tmp_path / "left").glob("*.txt")]
    assert sum(len(each.splitlines()) for each in exported) == LETTERS - 20 + 4


@pytest.mark.timeout(600)
def test_what_cannot_be_done_is_told_in_a_line(
    on: None,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def dlq(*arguments: str | Path) -> Ended:
        ended = in_process(capsys, "spark", "dlq", "-b", real_cluster.bootstrap, *arguments)
        assert "Traceback" not in ended.err
        return ended

    there = tmp_path / "there"
    there.mkdir()
    real_cluster.create_topic(topic, 1)
    for arguments, status, said in (
        ((), 2, "no dead-letter topic is named"),
        (("-t", topic), 2, f"there is no topic '{topic}.dlq'"),
        (("--dlq", topic), 1, "is empty: there are no dead letters"),
        (("--dlq", topic, "--format", "csv"), 2, "--format csv: give json or parquet"),
        (("--dlq", topic, "--export", there), 2, "name a new one"),
        (("--dlq", topic, "--select", there / "no" / "file"), 2, "there is no folder"),
        (("--dlq", topic, "--error", "("), 2, "not a regular expression"),
        (("--dlq", topic, "--since", "yesterday"), 2, "--since"),
    ):
        ended = dlq(*arguments)
        assert (ended.status, said in ended.err) == (status, True), (arguments, ended.err)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    producer.produce(topic, b"no letter")
    assert producer.flush(60) == 0
    nothing = dlq("--dlq", topic, "--select", tmp_path / "selection")
    assert (nothing.status, nothing.out) == (1, "")
    assert "no dead letter is selected" in nothing.err
    assert not list(tmp_path.glob("selection*"))
