"""`keyshared read` as a person meets it: what it prints, what it says of it, how it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import yaml

from kafka_keyshared.client import log_reader
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.cli import KEYSHARED, Running, as_user, in_process
from tests.support.live_cluster import write

ALL = ("--key-hash-range", "0-65535")


@pytest.fixture
def orders(embedded_cluster: Cluster, topic: str) -> str:
    """A topic with a key, an empty key, no key, bytes that are no text, and no value."""
    embedded_cluster.create_topic(topic, 2)
    write(
        embedded_cluster,
        topic,
        [
            (b"customer-7", b'{"amount": 3}'),
            (b"", "\u00e4 and\nb".encode()),
            (None, b"keyless"),
            (b"\xff\x00", b"\x80"),
            (b"tombstone", None),
        ],
        partition=1,
        headers=[("trace", b"1"), ("raw", b"\xff"), ("none", None)],
    )
    return topic


def test_a_line_of_json_has_all_of_a_record(
    embedded_cluster: Cluster, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-b", embedded_cluster.bootstrap, "-t", orders)
    ended = in_process(capsys, "read", *named, *ALL, "--keyless", "-o", "json")
    assert ended.status == 0, ended.err
    found = [json.loads(line) for line in ended.out.splitlines()]
    assert [each["offset"] for each in found] == [0, 1, 2, 3, 4]
    first = found[0]
    assert first.pop("timestamp").endswith("Z")
    not_text = "not text in UTF-8"
    headers = [
        {"name": "trace", "value": {"text": "1"}},
        {"name": "raw", "value": {"hex": "ff", "problem": not_text}},
        {"name": "none", "value": None},
    ]
    assert first == {
        "topic": orders,
        "partition": 1,
        "offset": 0,
        "slot": slot_of(b"customer-7"),
        "key": {"text": "customer-7"},
        "value": {"json": {"amount": 3}},
        "headers": headers,
    }
    assert [each["key"] for each in found[1:]] == [
        {"text": ""},
        None,
        {"hex": "ff00", "problem": not_text},
        {"text": "tombstone"},
    ]
    assert [each["slot"] for each in found[1:3]] == [slot_of(b""), None]
    assert [each["value"] for each in found[1:]] == [
        {"text": "\u00e4 and\nb"},
        {"text": "keyless"},
        {"hex": "80"},
        None,
    ]
    assert "joins no group and commits nothing" in ended.err
    assert ended.err.splitlines()[-1] == "5 records read, 5 printed"


def test_the_table_has_a_line_for_each(
    embedded_cluster: Cluster, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-b", embedded_cluster.bootstrap, "-t", orders)
    ended = in_process(capsys, "read", *named, *ALL)
    assert ended.status == 0, ended.err
    heading, first, second, *_ = lines = ended.out.splitlines()
    assert heading.split() == ["partition", "offset", "time", "slot", "key", "value"]
    assert len(lines) == 5
    words = first.split()
    assert words[:2] == ["1", "0"]
    assert words[4:] == [str(slot_of(b"customer-7")), "customer-7", "{", '"amount":', "3", "}"]
    assert second.endswith("\u00e4 and b")
    said = "5 records read, 4 printed; 1 without a key left out (--keyless includes them)"
    assert ended.err.splitlines()[-1] == said


def test_only_the_slots_that_are_meant(
    embedded_cluster: Cluster, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slot = slot_of(b"customer-7")
    named = ("-b", embedded_cluster.bootstrap, "-t", orders, "--json")
    for ranges, offsets in ((f"{slot}", [0]), (f"0-{slot - 1},{slot + 1}-65535", [1, 3, 4])):
        ended = in_process(capsys, "read", *named, "--key-hash-range", ranges)
        assert [json.loads(line)["offset"] for line in ended.out.splitlines()] == offsets


def test_a_limit_ends_it_and_yaml_is_a_document_for_each(
    embedded_cluster: Cluster, orders: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-b", embedded_cluster.bootstrap, "-t", orders)
    ended = in_process(capsys, "read", *named, *ALL, "--limit", "2", "-o", "yaml")
    assert ended.status == 0, ended.err
    assert [each["offset"] for each in yaml.safe_load_all(ended.out)] == [0, 1]
    assert ended.err.splitlines()[-1].endswith("; ended by --limit")
    ended = in_process(capsys, "read", *named, *ALL, "--from", "1:-2", "--until", "1:-1", "--json")
    assert [json.loads(line)["offset"] for line in ended.out.splitlines()] == [3]
    assert "reading 1 partition of" in ended.err
    assert "ends before 1:-1" in ended.err


def test_the_limit_counts_over_all_that_comes(
    embedded_cluster: Cluster,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_reader, "CHUNK", 1)  # so that no more than two come at a time
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"")] * 9)
    named = ("-b", embedded_cluster.bootstrap, "-t", topic)
    ended = in_process(capsys, "read", *named, *ALL, "--limit", "5", "--json")
    assert [json.loads(line)["offset"] for line in ended.out.splitlines()] == [0, 1, 2, 3, 4]


def test_key_and_slot_function_are_those_of_the_settings_file(
    embedded_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"own", b"")], headers=[("customer", b"customer-7")])
    (tmp_path / "keyshared.toml").write_text(
        f'bootstrap = "{embedded_cluster.bootstrap}"\ngroup = "billing"\ntopics = ["{topic}"]\n'
        'key = "header:customer"\nslot_function = "pulsar"\nworkers = 4\n'
    )
    monkeypatch.chdir(tmp_path)
    ended = in_process(capsys, "read", *ALL, "--json")
    assert ended.status == 0, ended.err
    found = json.loads(ended.out)
    assert (found["key"], found["record_key"]) == ({"text": "customer-7"}, {"text": "own"})
    assert found["slot"] == 53_910
    assert "using the settings of keyshared.toml in this folder" in ended.err
    ended = in_process(capsys, "read", *ALL, "--json", "--slot-function", "mmh3")
    assert json.loads(ended.out)["slot"] == slot_of(b"customer-7")


def test_follow_goes_on_until_ctrl_c_which_is_its_end(
    embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    named = ("-b", embedded_cluster.bootstrap, "-t", topic, *ALL, "--from", "latest", "--follow")
    with Running("read", *named, "--json") as running:
        running.wait_for("runs until Ctrl-C")
        stdout = running.process.stdout
        assert stdout is not None
        for key in (b"a", b"b"):
            write(embedded_cluster, topic, [(key, b"")])
            # Each is there as soon as it has come, not when a buffer is full.
            assert json.loads(stdout.readline())["key"] == {"text": key.decode()}
        assert running.end(signal.SIGINT) == 0
        assert running.err.splitlines()[-1] == "2 records read, 2 printed"


def test_ctrl_c_in_a_reading_that_has_an_end_is_no_success(topic: str) -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_topic(topic, 1)
        write(cluster, topic, [(b"k", b"")])
        cluster.fail_next("Fetch", "LEADER_NOT_AVAILABLE", times=10_000)
        with Running("read", "-b", cluster.bootstrap, "-t", topic, *ALL) as running:
            running.wait_for(f"nothing has come from {cluster.bootstrap}")
            assert running.end(signal.SIGINT) == 1
            last = running.err.splitlines()[-2:]
            assert last == ["0 records read, 0 printed", "keyshared: interrupted"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_is_closed_ends_it_in_a_line(
    embedded_cluster: Cluster, topic: str, unbuffered: str
) -> None:
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"k", b"v" * 100)] * 5_000)
    command = " ".join(
        [*KEYSHARED, "read", "-b", embedded_cluster.bootstrap, "-t", topic, *ALL, "--json"]
    )
    script = f"{command} | head -n 2; exit ${{PIPESTATUS[0]}}"
    env = {"PYTHONUNBUFFERED": unbuffered}
    ended = as_user("-c", script, command=["bash"], env=env)
    assert len(ended.out.splitlines()) == 2
    assert ended.status == 1
    assert "keyshared: standard output was closed before the end of the result" in ended.err
    assert "Traceback" not in ended.err
