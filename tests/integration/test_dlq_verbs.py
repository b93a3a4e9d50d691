"""Dead letters from end to end: an app gives records up, a person looks, mends and replays."""

from __future__ import annotations

import json
import signal
import threading
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import fastavro
import pytest
from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.dlq.replay import BATCH
from kafka_keyshared.model import Record
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.bare_client import write_transactions
from tests.support.cli import Ended, Running, in_process
from tests.support.letters import ends, source_headers, write_letters
from tests.support.live_cluster import Member, client_conf, group_name, read_all, write

KEYS = 7
RECORDS = 210


def by_lane(messages: list[Message]) -> dict[tuple[bytes, int], list[int]]:
    """Source offsets of replayed records in the order of the topic, by key and source partition."""
    found: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    for message in sorted(messages, key=lambda each: (each.partition(), each.offset())):
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        partition, _, offset = value.partition(b":")
        found[key, int(partition)].append(int(offset))
    return found


class Verbs:
    """Runs ``keyshared dlq`` on the dead letters of a topic; replays keep a file for a test."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self.state = folder / "progress"

    def __call__(self, verb: str, cluster: Cluster, topic: str, *more: object) -> Ended:
        arguments = ("-b", cluster.bootstrap, "-t", topic, *more)
        return in_process(self._capsys, "dlq", verb, *arguments)

    def replay(self, cluster: Cluster, topic: str, *more: object) -> Ended:
        return self("replay", cluster, topic, "--state", self.state, "--json", *more)


@pytest.fixture
def verbs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Verbs:
    return Verbs(capsys, tmp_path)


def test_a_verb_takes_brokers_topics_and_dead_letter_topic_from_an_app(
    embedded_cluster: Cluster,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    embedded_cluster.create_topic(f"{topic}.dlq", 1)
    write_letters(embedded_cluster, topic, [(0, 0)], 1, partitions=[0])
    monkeypatch.chdir(tmp_path)
    settings = {"bootstrap.servers": embedded_cluster.bootstrap, "group.id": "g"}
    (tmp_path / "an_app.py").write_text(
        "from kafka_keyshared import KeyShared\n"
        f"app = KeyShared({settings!r}, [{topic!r}], dlq=True)\n"
    )
    found = in_process(capsys, "dlq", "ls", "--app", "an_app.py:app", "--json")
    assert found.status == 0
    assert json.loads(found.out)["letters"] == 1


@pytest.mark.parametrize("form", ["headers", "avro"])
def test_from_the_failure_to_the_replay(
    any_cluster: Cluster,
    topic: str,
    form: str,
    eventually: Eventually,
    verbs: Verbs,
) -> None:
    any_cluster.create_topic(topic, 3)
    any_cluster.create_topic(f"{topic}.dlq", 2)
    mended = threading.Event()
    lock = threading.Lock()
    handled: dict[bytes, list[int]] = defaultdict(list)
    headers: list[Any] = []

    def handler(record: Record) -> None:
        if not mended.is_set():
            raise ConnectionError("the bank is away")
        with lock:
            handled[record.key()].append(json.loads(record.value())["n"])
            headers.append(record.headers())

    group = group_name()
    member = Member(
        client_conf(any_cluster, group),
        [topic],
        handler,
        dlq=True,
        dlq_format=form,
        retry={"attempts": 1},
    ).start()
    records = [(b"key-%d" % (n % KEYS), b'{"n": %d, "card": "4929-0"}' % n) for n in range(RECORDS)]
    write(any_cluster, topic, records, headers=[("h", b"1"), ("h", None), ("raw", b"\xff")])
    eventually(lambda: member.done() == RECORDS, 60.0)

    listed = verbs("ls", any_cluster, topic, "--json", "--limit", 5)
    assert listed.status == 0, listed.err
    found = json.loads(listed.out)
    assert (found["letters"], found["foreign"], found["unreadable"]) == (RECORDS, 0, 0)
    assert (found["outstanding"], found["replayed"]) == (RECORDS, 0)
    (error,) = found["errors"]
    assert error["source_group"] == found["newest"][0]["group"] == group
    assert (error["source_topic"], error["error_type"], error["letters"]) == (
        topic,
        "ConnectionError",
        RECORDS,
    )
    assert len(found["newest"]) == 5
    # What is in the records is not shown unless asked for.
    assert "4929-0" not in listed.out + verbs("ls", any_cluster, topic).out

    at = found["newest"][0]["at"]
    shown = json.loads(verbs("show", any_cluster, topic, at, "--json").out)
    assert (shown["at"], shown["form"], shown["source"]["topic"]) == (at, form, topic)
    assert shown["error_message"] == "the bank is away"
    assert "raise ConnectionError" in shown["error_stack"]
    assert shown["value"]["json"]["n"] in range(RECORDS)
    assert shown["headers"] == [
        {"name": "h", "value": {"text": "1"}},
        {"name": "h", "value": None},
        {"name": "raw", "value": {"hex": "ff", "problem": "not text in UTF-8"}},
    ]

    exported = verbs("export", any_cluster, topic, "--record-key", "key-3")
    lines = [json.loads(line) for line in exported.out.splitlines()]
    assert sorted(line["value"]["json"]["n"] for line in lines) == list(range(3, RECORDS, KEYS))
    file = verbs.state.with_name("letters.avro")
    assert verbs("export", any_cluster, topic, "--format", "avro", "--file", file).out == ""
    with file.open("rb") as opened:
        letters: list[Any] = list(fastavro.reader(opened))
    assert sorted(json.loads(each["value"])["n"] for each in letters) == list(range(RECORDS))

    plan = json.loads(verbs.replay(any_cluster, topic).out)
    assert (plan["to_replay"], plan["to"], plan["lanes"]) == (RECORDS, {topic: RECORDS}, KEYS)
    assert not plan["executed"]
    assert ends(any_cluster, topic) == RECORDS  # a plan sends nothing
    assert not verbs.state.exists()
    names = verbs.state.with_name("customer-3.jsonl")
    names.write_text(exported.out)
    only = verbs.replay(any_cluster, topic, "--selection", names)
    assert (json.loads(only.out)["to_replay"], json.loads(only.out)["lanes"]) == (len(lines), 1)

    mended.set()
    done = verbs.replay(any_cluster, topic, "--execute")
    assert done.status == 0, done.err
    assert json.loads(done.out)["replayed"] == RECORDS
    eventually(lambda: sum(map(len, handled.values())) == RECORDS, 60.0)
    assert member.stop() == 0
    assert handled == {b"key-%d" % k: list(range(k, RECORDS, KEYS)) for k in range(KEYS)}
    own = [("h", b"1"), ("h", None), ("raw", b"\xff"), ("keyshared.replays", b"1")]
    assert headers == [own] * RECORDS

    again = verbs.replay(any_cluster, topic, "--execute")
    assert json.loads(again.out)["already_replayed"] == RECORDS
    assert ends(any_cluster, topic) == 2 * RECORDS
    listed = verbs("ls", any_cluster, topic, "--json", "--state", verbs.state)
    found = json.loads(listed.out)
    assert (found["outstanding"], found["replayed"]) == (0, RECORDS)
    assert found["newest"][0]["replayed"] is True


def test_a_key_goes_back_in_the_order_of_its_source_and_to_its_partition(
    any_cluster: Cluster, topic: str, verbs: Verbs
) -> None:
    """The dead-letter topic has them backwards, mixed, and over other partitions."""
    any_cluster.create_topic(topic, 3)
    any_cluster.create_topic(f"{topic}.dlq", 2)
    # Partition 5 was there before the topic was made anew with three.
    sources = [(partition, offset) for offset in range(100) for partition in (0, 2, 5)]
    write_letters(any_cluster, topic, sources[::-1], keys=10)
    ended = verbs.replay(any_cluster, topic, "--execute")
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["replayed"] == len(sources)
    assert f"'{topic}' has 3 partitions now" in ended.err
    written = read_all(any_cluster, topic, len(sources))
    for message in written:
        came_from = int((message.value() or b"").partition(b":")[0])
        assert message.partition() == came_from or came_from == 5
        headers: Any = message.headers()
        assert headers[-1] == ("keyshared.replays", b"1")
    lanes = by_lane(written)
    assert len(lanes) == 30
    assert all(offsets == sorted(offsets) for offsets in lanes.values())
    assert sum(map(len, lanes.values())) == len(sources)


def test_a_replay_that_is_killed_goes_on_and_repeats_at_most_a_batch(
    real_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Wherever it is run again: what was replayed is known from Kafka."""
    count = 2_500
    real_cluster.create_topic(topic, 2)
    real_cluster.create_topic(f"{topic}.dlq", 2)
    sources = [(n % 2, n) for n in range(count)]
    write_letters(real_cluster, topic, sources, keys=101)
    arguments = ("dlq", "replay", "-b", real_cluster.bootstrap, "-t", topic)
    settings = ("--execute", "--json")
    for enough in (400, 1_000):
        with Running(*arguments, *settings, "--rate", 900):
            eventually(lambda enough=enough: ends(real_cluster, topic) >= enough, 120.0)  # type: ignore[misc]
        # The block ends it with SIGKILL.
    killed_at = ends(real_cluster, topic)
    assert killed_at < count
    with Running(*arguments, *settings) as last:
        assert last.process.wait(120) == 0, last.err
        assert last.process.stdout is not None
        told = json.loads(last.process.stdout.read())
    assert 0 < told["already_replayed"] <= killed_at
    written = read_all(real_cluster, topic, ends(real_cluster, topic))
    values = [message.value() for message in written]
    assert set(values) == {b"%d:%d" % source for source in sources}
    assert len(values) - count <= 2 * BATCH  # it was killed twice
    for offsets in by_lane(written).values():
        first_seen = list(dict.fromkeys(offsets))
        assert first_seen == sorted(first_seen)


def test_ctrl_c_keeps_the_progress_and_the_next_replay_goes_on(
    real_cluster: Cluster, topic: str, eventually: Eventually, verbs: Verbs
) -> None:
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(f"{topic}.dlq", 2)
    write_letters(real_cluster, topic, [(0, n) for n in range(300)], keys=9)
    state = ("--execute", "--state", verbs.state)
    with Running(
        *("dlq", "replay", "-b", real_cluster.bootstrap, "-t", topic),
        *(*state, "--rate", 50, "--json"),
    ) as slow:
        eventually(lambda: ends(real_cluster, topic) >= 20, 120.0)
        assert slow.end(signal.SIGINT) == 1, slow.err
        assert slow.process.stdout is not None
        told = json.loads(slow.process.stdout.read())
    assert told["interrupted"]
    assert told["replayed"] == ends(real_cluster, topic)
    assert told["replayed"] + told["left"] == 300
    assert "Traceback" not in slow.err
    ended = verbs.replay(real_cluster, topic, "--execute")
    assert ended.status == 0, ended.err
    written = read_all(real_cluster, topic, 300)
    assert ends(real_cluster, topic) == len(written) == 300  # nothing twice after a clean stop
    assert all(offsets == sorted(offsets) for offsets in by_lane(written).values())


@pytest.mark.parametrize("form", ["headers", "avro"])
def test_what_fails_again_and_again_is_refused_by_the_loop_guard(
    embedded_cluster: Cluster,
    topic: str,
    form: str,
    eventually: Eventually,
    verbs: Verbs,
) -> None:
    embedded_cluster.create_topic(topic, 1)
    embedded_cluster.create_topic(f"{topic}.dlq", 1)

    def handler(record: Record) -> None:
        raise ValueError("never")

    conf = client_conf(embedded_cluster, group_name())
    options: Any = {"dlq": True, "dlq_format": form, "retry": {"attempts": 1}}
    member = Member(conf, [topic], handler, **options).start()
    write(embedded_cluster, topic, [(b"k", b"v")])
    for replays in range(3):
        eventually(lambda replays=replays: member.done() == replays + 1, 60.0)  # type: ignore[misc]
        shown = verbs("show", embedded_cluster, topic, f"0:{replays}", "--json")
        assert json.loads(shown.out)["replays"] == replays
        ended = verbs.replay(embedded_cluster, topic, "--execute", "--max-replays", 2)
        told = json.loads(ended.out)
        assert (told["replayed"], told["guarded"]) == ((1, 0) if replays < 2 else (0, 1))
        assert told["already_replayed"] == replays
    assert "raise --max-replays" in ended.err
    assert member.stop() == 0


def test_what_is_refused_stops_its_key_and_the_rest_is_replayed(
    real_cluster: Cluster, topic: str, verbs: Verbs
) -> None:
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    small = NewTopic(topic, 1, 1, config={"max.message.bytes": "2000"})
    admin.create_topics([small])[topic].result(30)
    real_cluster.create_topic(f"{topic}.dlq", 1)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    large = Random(1).randbytes(3_000)  # a replay is compressed: this stays as large as it is
    for number in range(12):
        producer.produce(
            f"{topic}.dlq",
            b"0:%d" % number + large * (number in (4, 5)),
            b"key-%d" % (number % 4),
            0,
            headers=list(source_headers(f"{topic}.gone" if number == 11 else topic, 0, number)),
        )
    assert producer.flush(60) == 0
    ended = verbs.replay(real_cluster, topic, "--execute")
    assert ended.status == 1
    told = json.loads(ended.out)
    # 4 and 5 are too large, 8 and 9 stand behind them; the topic of 11 does not exist.
    assert (told["replayed"], told["refused"], told["behind_refused"]) == (7, 3, 2)
    assert set(told["refused_examples"]) == {"0:4", "0:5", "0:11"}
    reasons = " ".join(told["why"])
    assert "raise its max.message.bytes" in reasons
    assert f"there is no topic '{topic}.gone'" in reasons
    assert f"topic '{topic}.gone' does not exist" in ended.err
    values = {(message.value() or b"").strip() for message in read_all(real_cluster, topic, 7)}
    assert values == {b"0:%d" % n for n in (0, 1, 2, 3, 6, 7, 10)}
    # What was refused is not taken for replayed.
    elsewhere = f"{topic}.wide"
    real_cluster.create_topic(elsewhere, 2)
    again = verbs.replay(real_cluster, topic, "--execute", "--to", elsewhere)
    assert again.status == 0, again.err
    assert json.loads(again.out)["replayed"] == 5


def test_an_export_that_nobody_reads_to_its_end_says_so_in_a_line(
    real_cluster: Cluster, topic: str
) -> None:
    real_cluster.create_topic(f"{topic}.dlq", 1)
    write(real_cluster, f"{topic}.dlq", [(b"k", b"x" * 1_000)] * 1_000)
    with Running("dlq", "export", "-b", real_cluster.bootstrap, "-t", topic) as export:
        assert export.process.stdout is not None
        assert json.loads(export.process.stdout.readline())["at"] == "0:0"
        export.process.stdout.close()
        assert export.process.wait(120) == 1
        export.wait_for("standard output was closed before the end of the result")
    assert len(export.err.splitlines()) == 1, export.err


def test_transaction_markers_and_foreign_records_end_no_reading(
    real_cluster: Cluster, topic: str, verbs: Verbs
) -> None:
    """A record that nobody can see is the last one; an aborted one before it counts for nothing."""
    real_cluster.create_topic(f"{topic}.dlq", 2)
    write_transactions(real_cluster, f"{topic}.dlq", 3, [True, False, True, False])
    write(real_cluster, f"{topic}.dlq", [(None, None)], partition=1)
    listed = verbs("ls", real_cluster, topic, "--json")
    assert listed.status == 0, listed.err
    found = json.loads(listed.out)
    assert (found["letters"], found["foreign"]) == (0, 7)
    shown = json.loads(verbs("show", real_cluster, topic, "1:0", "--json").out)
    assert (shown["form"], shown["key"], shown["value"]) == ("foreign", None, None)
    # At offset 3 is a marker.
    missing = verbs("show", real_cluster, topic, "0:3")
    assert missing.status == 1
    assert "no record at 0:3" in missing.err
    plan = verbs.replay(real_cluster, topic, "--execute")
    assert plan.status == 0, plan.err
    assert json.loads(plan.out)["foreign"] == 7


def test_a_topic_or_partition_that_is_not_there_is_named(
    real_cluster: Cluster, topic: str, verbs: Verbs, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = verbs("ls", real_cluster, topic)
    assert missing.status == 2
    assert f"there is no topic '{topic}.dlq'" in missing.err
    assert "name the dead-letter topic with --dlq" in missing.err
    real_cluster.create_topic(f"{topic}.dlq", 1)
    beyond = verbs("show", real_cluster, topic, "1:0")
    assert beyond.status == 2
    assert "has no partition 1" in beyond.err
    empty = verbs("ls", real_cluster, topic)
    assert empty.status == 0
    assert "0 dead letters" in empty.out
    # Where the cluster is may stand in the file of the app.
    file = verbs.state.with_name("app.toml")
    file.write_text(f'bootstrap = "{real_cluster.bootstrap}"\n')
    from_file = in_process(capsys, "dlq", "ls", "-t", topic, "--config", file)
    assert from_file.out == empty.out
