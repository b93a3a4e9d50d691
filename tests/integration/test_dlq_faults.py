"""Dead letters while their topic changes or the broker goes away under those who work on them."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kafka_keyshared.cli import dlq
from kafka_keyshared.dlq import scan
from kafka_keyshared.dlq.letter import Letter, read_letter
from kafka_keyshared.testing.clusters.broker import RealCluster
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.cli import Ended, Running, in_process
from tests.support.letters import ends, write_letters
from tests.support.live_cluster import read_all

Verb = Callable[..., Ended]


@pytest.fixture
def verb(real_cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> Verb:
    def run(name: str, *more: object) -> Ended:
        where = ("-b", real_cluster.bootstrap, "-t", topic)
        return in_process(capsys, "dlq", name, *where, "--json", *more)

    return run


def remake(cluster: Cluster, topic: str, partitions: int, eventually: Eventually) -> None:
    """Delete a topic and make it anew under its name."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(60)

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(60)
        except KafkaException:
            return False
        return True

    eventually(made, 60.0)
    cluster.create_topic(topic, partitions)


def told(running: Running) -> dict[str, Any]:
    """What a verb printed as its result."""
    assert running.process.stdout is not None
    found: dict[str, Any] = json.loads(running.process.stdout.read())
    return found


def test_letters_of_a_topic_that_was_made_anew_are_outstanding(
    real_cluster: Cluster, topic: str, verb: Verb, eventually: Eventually
) -> None:
    """Even those of the very same records, at the very same places."""
    sources = [(0, number) for number in range(20)]
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(f"{topic}.dlq", 2)
    write_letters(real_cluster, topic, sources, keys=3)
    assert json.loads(verb("replay", "--execute").out)["replayed"] == 20
    assert json.loads(verb("ls").out)["outstanding"] == 0
    remake(real_cluster, f"{topic}.dlq", 2, eventually)
    write_letters(real_cluster, topic, sources, keys=3)
    assert json.loads(verb("ls").out)["outstanding"] == 20
    assert json.loads(verb("replay", "--execute").out)["replayed"] == 20
    assert ends(real_cluster, topic) == 40


def test_a_replay_under_way_ends_when_the_topic_is_made_anew(
    real_cluster: Cluster, topic: str, verb: Verb, eventually: Eventually
) -> None:
    """It sends no more of the old letters, of which it holds many, and none of the new ones."""
    sources = [(0, number) for number in range(2_000)]
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(f"{topic}.dlq", 2)
    write_letters(real_cluster, topic, sources, keys=50, text=" old")
    where = ("-b", real_cluster.bootstrap, "-t", topic)
    with Running("dlq", "replay", *where, "--execute", "--json", "--rate", 20) as slow:
        eventually(lambda: ends(real_cluster, topic) >= 10, 120.0)
        remake(real_cluster, f"{topic}.dlq", 2, eventually)
        write_letters(real_cluster, topic, sources[:100], keys=50, text=" new")
        assert slow.process.wait(90) == 1, slow.err
        found = told(slow)
    assert re.search(r"created again|was deleted", found["halted"]), found
    assert "the replay stops" in found["halted"]
    sent = read_all(real_cluster, topic, found["replayed"])
    assert ends(real_cluster, topic) == len(sent) < 1_500
    assert all((message.value() or b"").endswith(b" old") for message in sent)
    listed = json.loads(verb("ls").out)
    assert (listed["letters"], listed["outstanding"]) == (100, 100)
    after = json.loads(verb("replay", "--execute").out)
    assert after["replayed"] == 100


def test_partitions_that_are_added_lose_and_repeat_nothing(
    real_cluster: Cluster, topic: str, verb: Verb
) -> None:
    real_cluster.create_topic(topic, 1)
    real_cluster.create_topic(f"{topic}.dlq", 2)
    admin = AdminClient({"bootstrap.servers": real_cluster.bootstrap})
    # Letters of a key come into another partition once there are more, so a later one of a key may
    # stand before an earlier one.
    write_letters(real_cluster, topic, [(0, number) for number in range(0, 60, 2)], keys=7)
    first = json.loads(verb("replay", "--execute", "--record-key", "key-0").out)
    assert 0 < first["replayed"] < 30
    dlq = f"{topic}.dlq"
    admin.create_partitions([NewPartitions(dlq, 5)])[dlq].result(60)
    real_cluster.create_topic(dlq, 5)
    later = [(0, number) for number in range(1, 60, 2)]
    write_letters(real_cluster, topic, later, keys=7, partitions=(4, 2, 0, 3))
    listed = json.loads(verb("ls").out)
    assert (listed["letters"], listed["replayed"]) == (60, first["replayed"])
    second = json.loads(verb("replay", "--execute").out)
    assert (second["replayed"], second["already_replayed"]) == (
        60 - first["replayed"],
        first["replayed"],
    )
    sent = [message.value() for message in read_all(real_cluster, topic, 60)]
    assert ends(real_cluster, topic) == 60
    assert set(sent) == {b"0:%d" % number for number in range(60)}
    for key in range(1, 7):
        of_key = [int((value or b"").split(b":")[1]) for value in sent]
        own = [offset for offset in of_key if offset % 7 == key]
        assert own == sorted(own), key
    assert json.loads(verb("ls").out)["outstanding"] == 0


@pytest.fixture
def away(broker_of_my_own: RealCluster, topic: str) -> RealCluster:
    """A broker with 400 letters of 40 keys."""
    broker_of_my_own.create_topic(topic, 1)
    broker_of_my_own.create_topic(f"{topic}.dlq", 2)
    write_letters(broker_of_my_own, topic, [(0, number) for number in range(400)], keys=40)
    return broker_of_my_own


def test_a_replay_outlives_an_outage_and_sends_each_letter_once(
    away: RealCluster, topic: str, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-b", away.bootstrap, "-t", topic)
    with Running("dlq", "replay", *where, "--execute", "--json", "--rate", 40) as replay:
        eventually(lambda: ends(away, topic) >= 40, 120.0)
        away.kill()
        replay.wait_for("no broker answers (")
        replay.wait_for("no broker has answered for 6", 120.0)
        away.restart()
        replay.wait_for("a broker answers again, after ")
        assert replay.process.wait(120) == 0, replay.err
        assert told(replay)["replayed"] == 400
    outage = [line for line in replay.err.splitlines() if "broker" in line]
    assert len(outage) <= 4, outage
    assert ends(away, topic) == 400
    values = [message.value() for message in read_all(away, topic, 400)]
    assert set(values) == {b"0:%d" % number for number in range(400)}
    listed = in_process(capsys, "dlq", "ls", *where, "--json")
    assert json.loads(listed.out)["outstanding"] == 0


def test_ctrl_c_ends_a_replay_in_an_outage_and_the_next_one_goes_on(
    away: RealCluster, topic: str, eventually: Eventually, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("-b", away.bootstrap, "-t", topic)
    with Running("dlq", "replay", *where, "--execute", "--json", "--rate", 40) as replay:
        eventually(lambda: ends(away, topic) >= 40, 120.0)
        away.kill()
        replay.wait_for("no broker answers (")
        asked = time.monotonic()
        assert replay.end(signal.SIGINT, 120.0) == 1, replay.err
        assert time.monotonic() - asked < 60.0, "20 s, and the time of a machine with other work"
        assert "Traceback" not in replay.err
    away.restart()
    rest = in_process(capsys, "dlq", "replay", *where, "--execute", "--json")
    assert rest.status == 0, rest.err
    values = [message.value() for message in read_all(away, topic, 400)]
    assert set(values) == {b"0:%d" % number for number in range(400)}


@pytest.mark.parametrize("then", ["the broker comes back", "ctrl-c"])
def test_a_list_waits_for_the_broker_and_ctrl_c_ends_it(
    away: RealCluster,
    topic: str,
    then: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # More than a reader has in its hands when the broker goes.
    body = " " + "x" * 20_000
    write_letters(away, topic, [(0, number) for number in range(2_000)], keys=40, text=body)
    seen, notes = 0, list[str]()
    helper = threading.Thread(target=away.restart)
    if then == "ctrl-c":
        main = threading.main_thread().ident
        assert main is not None
        helper = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))

    def read(message: Message) -> Letter:
        nonlocal seen
        seen += 1
        if seen == 100:
            away.kill()
        return read_letter(message)

    def note(text: str) -> None:
        notes.append(text)
        if "no broker answers" in text and helper.ident is None:
            helper.start()

    monkeypatch.setattr(scan, "read_letter", read)
    monkeypatch.setattr(dlq, "write_note", note)
    ended = in_process(capsys, *f"dlq ls -b {away.bootstrap} -t {topic} --json".split())
    assert helper.ident is not None, f"no outage was told: {ended}, {notes}, {seen} letters read"
    helper.join()
    if then == "ctrl-c":
        assert (ended.status, ended.err) == (1, "keyshared: interrupted\n")
        return
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)["letters"] == 2_400
    # One that answers late, because the machine has other work, is told as a second outage.
    for began, back in zip(notes[::2], notes[1::2], strict=True):
        assert "trying for up to 10 minutes; press Ctrl-C to stop" in began
        assert re.fullmatch(r"a broker answers again, after \d+ s", back)
