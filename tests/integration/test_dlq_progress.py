"""What was replayed is known from Kafka: to whoever asks, wherever, and to one replay at a time."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # not in its __all__
    AdminClient,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay_log import progress_topic
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import in_process
from tests.support.live_cluster import write
from tests.support.replay_progress import FIRST, Make, cut_off, making


@pytest.fixture
def progress(real_cluster: Cluster, topic: str) -> Make:
    return making(real_cluster, topic)


def test_what_was_added_is_known_to_the_next_and_to_who_only_looks(
    progress: Make, real_cluster: Cluster
) -> None:
    assert not progress().load().there, "looking makes no topic"
    with progress().open() as first:
        first.add(FIRST)
        first.add([(LetterPlace(0, 2), 12)])
        assert 12 in first
        assert len(progress().load()) == 3, "while it is at work, too"
    with progress().open() as again:
        assert (len(again), 11 in again, 2**64 - 1 in again, 13 in again) == (3, True, True, False)
    other = progress("elsewhere").load()
    assert (len(other), other.others) == (0, {"default": 3})
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    asked = ConfigResource(ConfigResource.Type.TOPIC, other.topic)
    kept = admin.describe_configs([asked])[asked].result(60)
    assert kept["cleanup.policy"].value == "compact"
    assert other.forgotten() is None


def test_of_two_replays_with_one_id_the_later_is_refused(progress: Make) -> None:
    with progress().open() as first:
        notes: list[str] = []
        with pytest.raises(ConfigError, match=r"id 'default' is at work \(process \d+ on .*wait"):
            progress().open(notes.append)
        assert "has not said that its replay ended: listening" in notes[0]
        with progress("another").open() as beside:
            beside.add(FIRST)
        first.add(FIRST)
        assert first.lost is None
    notes.clear()
    with progress().open(notes.append) as later:
        assert (len(later), notes) == (2, [])


def test_one_that_was_killed_is_replaced_and_what_it_wrote_is_known(
    progress: Make, eventually: Eventually
) -> None:
    killed = progress().open()
    killed.add(FIRST)
    cut_off(killed)
    with progress(silence=0.5).open() as later:
        assert len(later) == 2
    # Nobody listens for it a second time.
    with progress().open() as third:
        assert len(third) == 2


def test_one_that_was_only_slow_hears_that_it_was_replaced(
    progress: Make, eventually: Eventually
) -> None:
    with progress().open() as slow:
        # It answers as soon as it is asked, which is too late for somebody in such a hurry.
        with progress(silence=0.0).open() as later:
            eventually(lambda: slow.lost is not None, 120.0)
            assert "took this replay's place" in (slow.lost or "")
            slow.add(FIRST)  # what it had sent is true all the same
        assert later.lost is None
    assert len(progress().load()) == 2


def test_batches_of_letters_that_are_gone_are_deleted(progress: Make) -> None:
    with progress().open() as first:
        first.add([(LetterPlace(0, 1), 1), (LetterPlace(0, 2), 2)])
        first.add([(LetterPlace(0, 3), 3), (LetterPlace(1, 9), 9)])
    ends = {0: (3, 10), 1: (0, 10)}
    with progress().open() as later:
        assert later.forget(ends) == 1
    with progress().open() as third:
        assert third.forget(ends) == 0
        assert (3 in third, 9 in third) == (True, True)


def test_a_topic_that_is_somebody_elses_is_left_as_it_is(
    progress: Make, real_cluster: Cluster, topic: str
) -> None:
    name = progress_topic(topic)
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    # As a broker makes it by itself.
    made = NewTopic(name, 1, 1, config={"retention.ms": str(7 * 24 * 3_600_000)})
    admin.create_topics([made])[name].result(60)
    real_cluster.create_topic(name, 1)
    write(real_cluster, name, [(b"k", b"{}"), (None, b"\xff"), (b"[1]", None)])
    seen = progress().load()
    assert (len(seen), len(seen.foreign)) == (0, 3)
    assert "cleanup.policy=delete, so the progress is lost after 168 h" in (seen.forgotten() or "")
    with pytest.raises(ConfigError, match=r"no replay's progress, such as .*-0@0.*--state PATH"):
        progress().open()


def test_the_list_says_what_is_outstanding_wherever_it_is_asked(
    real_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(f"{topic}.dlq", 1)
    producer = Producer({"bootstrap.servers": real_cluster.bootstrap})
    for number in range(6):
        # The last is a second letter of the record before it, as a crash leaves one behind.
        offset = min(number, 4)
        headers = {"topic": topic, "partition": "0", "offset": str(offset), "group": "billing"}
        producer.produce(
            f"{topic}.dlq",
            b"%d" % offset,
            b"key-%d" % (offset % 2),
            0,
            headers=[(f"keyshared.source.{name}", text.encode()) for name, text in headers.items()],
        )
    assert producer.flush(60) == 0

    def run(verb: str, *more: object) -> tuple[int, str, str]:
        return in_process(capsys, "dlq", verb, "-b", real_cluster.bootstrap, "-t", topic, *more)

    done = run("replay", "--execute", "--record-key", "key-0")
    assert done[0] == 0, done[2]
    assert "no earlier replay is recorded" in done[2]
    found = json.loads(run("ls", "--json")[1])
    assert (found["letters"], found["outstanding"], found["replayed"]) == (6, 2, 4)
    assert (found["errors"][0]["source_group"], found["errors"][0]["outstanding"]) == ("billing", 2)
    table = run("ls")[1]
    assert "6 dead letters, 2 outstanding, 4 replayed" in " ".join(table.split())
    assert "billing" in table
    left = run("export", "--outstanding")[1].splitlines()
    assert [json.loads(line)["at"] for line in left] == ["0:1", "0:3"]
    only = json.loads(run("ls", "--json", "--outstanding")[1])
    assert [each["at"] for each in only["newest"]] == ["0:3", "0:1"]
    elsewhere = run("ls", "--id", "another")
    assert "6 outstanding" in " ".join(elsewhere[1].split())
    assert "another replay has the id 'default', with 4 letters" in elsewhere[2]
    shown = in_process(capsys, "dlq", "show", f"{topic}.dlq-0@3", "-b", real_cluster.bootstrap)
    assert "billing" in shown.out
    wrong = run("ls", "-t", f"{topic}.dlq")
    assert (wrong[0], f"give -t {topic}" in wrong[2]) == (2, True)


def test_a_topic_without_dead_letters_says_where_its_own_are(
    real_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(f"{topic}.dlq", 1)
    write(real_cluster, topic, [(b"k", b"v")])
    for verb in (["ls"], ["show", "0:0"], ["replay"]):
        ended = in_process(capsys, "dlq", *verb, "-b", real_cluster.bootstrap, "--dlq", topic)
        assert f"its dead letters are in '{topic}.dlq': give -t {topic}" in ended.err
