"""The rules by which progress is kept in Kafka, on the embedded cluster: fast, and the real client.

What the broker does for it (configuration, rights, compaction) is in
``tests/integration/test_dlq_progress.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay_log import progress_topic
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import in_process
from tests.support.live_cluster import read_all, write
from tests.support.replay_progress import FIRST, Make, cut_off, making


@pytest.fixture
def progress(embedded_cluster: Cluster, topic: str) -> Make:
    return making(embedded_cluster, topic)


def test_what_was_added_is_known_under_its_id_alone(progress: Make) -> None:
    with progress().open() as first:
        first.add(FIRST)
        first.add([(LetterPlace(0, 2), 12)])
        assert 12 in first
    again = progress().load()
    assert (len(again), 11 in again, 2**64 - 1 in again, 13 in again) == (3, True, True, False)
    other = progress("elsewhere").load()
    assert (len(other), 11 in other, other.others) == (0, False, {"default": 3})
    assert other.forgotten() is None, "an embedded cluster keeps no configuration"


def test_of_two_with_one_id_the_later_is_refused_before_it_writes_anything_else(
    progress: Make,
) -> None:
    with progress().open() as first:
        notes: list[str] = []
        with pytest.raises(ConfigError, match=r"id 'default' is at work \(process \d+ on .*wait"):
            progress(silence=15.0).open(notes.append)
        assert "has not said that its replay ended: listening" in notes[0]
        with progress("another").open() as beside:
            beside.add(FIRST)
        assert first.lost is None


def test_one_that_ended_is_not_listened_for(progress: Make) -> None:
    with progress().open() as first:
        first.add(FIRST)
    notes: list[str] = []
    with progress(silence=0.3).open(notes.append) as later:
        assert (len(later), notes) == (2, [])


def test_one_that_was_killed_is_replaced_and_not_listened_for_twice(progress: Make) -> None:
    killed = progress().open()
    killed.add(FIRST)
    cut_off(killed)
    with progress(silence=0.3).open() as later:
        assert len(later) == 2
    notes: list[str] = []
    with progress(silence=0.3).open(notes.append) as third:
        assert (len(third), notes) == (2, [])


def test_one_that_was_only_slow_hears_that_it_was_replaced(
    progress: Make, eventually: Eventually
) -> None:
    with progress().open() as slow:
        with progress(silence=0.0).open() as later:
            eventually(lambda: slow.lost is not None, 120.0)
            assert "took this replay's place" in (slow.lost or "")
            slow.add(FIRST)  # what it had sent is true all the same
        assert later.lost is None
    assert len(progress().load()) == 2


def test_only_batches_of_which_every_letter_is_gone_are_deleted(progress: Make) -> None:
    with progress().open() as first:
        first.add([(LetterPlace(0, 1), 1), (LetterPlace(0, 2), 2)])
        first.add([(LetterPlace(0, 2), 3), (LetterPlace(0, 3), 4)])
        first.add([(LetterPlace(1, 0), 5)])
    begin_at_three = {0: (3, 10), 1: (0, 10)}
    with progress().open() as later:
        assert later.forget(begin_at_three) == 1
        assert later.forget(begin_at_three) == 0
    with progress().open() as third:
        assert third.forget(begin_at_three) == 0
        assert all(mark in third for mark in (3, 4, 5))


def test_what_is_somebody_elses_is_left_as_it_is(
    progress: Make, embedded_cluster: Cluster, topic: str
) -> None:
    name = progress_topic(topic)
    write(embedded_cluster, name, [(b"k", b"{}"), (None, b"\xff"), (b"[1]", None)], partition=0)
    seen = progress().load()
    assert (len(seen), len(seen.foreign)) == (0, 3)
    with pytest.raises(ConfigError, match=r"no replay's progress, such as .*--state PATH"):
        progress().open()
    assert len(read_all(embedded_cluster, name, 3)) == 3


def test_nothing_is_added_before_it_is_open(progress: Make) -> None:
    with pytest.raises(ValueError, match="not open"):
        progress().load().add(FIRST)


def test_what_could_not_be_written_down_is_said_with_the_way_out(
    progress: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = progress().open()

    def refuse(*_: object, **__: object) -> int:
        raise KeySharedError("the broker is away")

    assert run._writer is not None
    monkeypatch.setattr(run._writer, "write", refuse)
    with pytest.raises(
        KeySharedError, match=r"away; the last replayed letters.*again.*--state PATH"
    ):
        run.add(FIRST)
    assert 11 not in run
    run.close()


def test_a_replay_needs_no_file_on_an_embedded_cluster(
    embedded_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    embedded_cluster.create_topic(topic, 1)
    embedded_cluster.create_topic(f"{topic}.dlq", 1)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for number in range(5):
        headers = {"topic": topic, "partition": "0", "offset": str(number)}
        producer.produce(
            f"{topic}.dlq",
            b"%d" % number,
            b"k",
            0,
            headers=[(f"keyshared.source.{name}", text.encode()) for name, text in headers.items()],
        )
    assert producer.flush(60) == 0

    def run(verb: str, *more: object) -> dict[str, int]:
        verb_of = ("dlq", verb, "-b", embedded_cluster.bootstrap, "-t", topic, "--json")
        ended = in_process(capsys, *verb_of, *more)
        assert ended.status == 0, ended.err
        found: dict[str, int] = json.loads(ended.out)
        return found

    assert run("replay", "--execute")["replayed"] == 5
    assert [message.value() for message in read_all(embedded_cluster, topic, 5)] == [
        b"%d" % number for number in range(5)
    ]
    assert run("ls")["outstanding"] == 0
    assert run("replay", "--execute")["already_replayed"] == 5
