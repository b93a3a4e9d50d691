"""`keyshared doctor` from the command line: what is looked at, in which order, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.cli import doctor as module
from kafka_keyshared.client import probe
from kafka_keyshared.observability.doctor import survey
from kafka_keyshared.observability.doctor.client_checks import unasked
from kafka_keyshared.observability.doctor.findings import FindingKind
from kafka_keyshared.spark import checks as spark_checks
from kafka_keyshared.spark.checks import Misfit, SparkMismatch
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.support.cli import in_process, own_modules
from tests.support.live_cluster import write

ORDER = [
    *("handler", "configuration", "broker", "topics", "keys", "group"),
    *(
        "positions",
        "retention",
        "progress",
        "dlq",
        "group-view",
        "metadata",
        "clock",
        "instance",
        "rules",
        "spark",
    ),
]

HANDLERS = """
from kafka_keyshared import KeyShared

print("printed while it was imported")

def handle(record): ...

def two(one, other): ...

app = KeyShared({"bootstrap.servers": %r, "group.id": %r}, [%r], dlq="letters-of-%s")
"""


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedded_cluster: Cluster, topic: str
) -> Iterator[Path]:
    """A directory with handlers in it and an app that reads ``topic`` of the embedded cluster."""
    text = HANDLERS % (embedded_cluster.bootstrap, topic, topic, topic)
    (tmp_path / "handlers_of_doctor.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    with own_modules(tmp_path):
        yield tmp_path


def doctor(
    capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, dict[str, dict[str, str]], str]:
    """Return the status, the checks by name, and what was written to standard error."""
    ended = in_process(capsys, "doctor", *arguments, "--json")
    result: dict[str, Any] = json.loads(ended.out)
    found = result["checks"]
    assert [check["name"] for check in found] == ORDER
    for check in found:
        assert list(check) == ["name", "status", "seen", "why", "cure", "page"]
        assert check["page"].startswith("reference/doctor.md#")
        assert bool(check["why"]) == bool(check["cure"]) == (check["status"] in ("warn", "fail"))
    failed = [check["name"] for check in found if check["status"] == "fail"]
    assert result["healthy"] is not failed
    assert result["healthy"] == (not failed)
    assert ended.status == (3 if failed else 0)
    return ended.status, {check["name"]: check for check in found}, ended.err


def statuses(found: dict[str, dict[str, str]]) -> list[str]:
    return [found[name]["status"] for name in ORDER]


def test_the_embedded_cluster_is_healthy_and_what_it_cannot_tell_is_skipped(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    dlq = f"letters-of-{topic}"
    for name in (topic, dlq):
        embedded_cluster.create_topic(name, 2)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for number in range(5):
        producer.produce(topic, b"value", b"key", number % 2)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": embedded_cluster.bootstrap, "group.id": topic})
    consumer.commit(offsets=[ClientPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()
    status, found, err = doctor(
        capsys,
        *("handlers_of_doctor:handle", "-b", embedded_cluster.bootstrap, "-t", topic, "-g", topic),
        *("--dlq", dlq, "-X", "auto.offset.reset=earliest"),
    )
    assert status == 0
    fine = {"handler", "configuration", "broker", "topics", "positions", "retention", "dlq"}
    assert {name for name in ORDER if found[name]["status"] == "ok"} == fine
    assert set(statuses(found)) == {"ok", "skipped"}
    assert found["handler"]["seen"] == "handlers_of_doctor:handle: a function"
    assert "does not answer that question" in found["group"]["seen"]
    assert found["positions"]["seen"] == (
        f"{topic}: lag 2 (1 of 2 partitions, 2 records, start at the beginning)"
    )
    assert found["dlq"]["seen"] == f"{dlq}: 2 partitions"
    # Standard output is the result alone.
    assert "printed while it was imported" in err


def test_keys_are_looked_at_in_a_sample_of_each_topic(
    capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 2)
    framed, plain = b"\0\0\0\0\7\0\x0a\x02c1", b'{"id": 1}'
    named = ("-b", embedded_cluster.bootstrap, "-t", topic, "--key", "json:/id")
    _, found, _ = doctor(capsys, *named)
    assert found["keys"]["status"] == "skipped", "there are no records"
    write(embedded_cluster, topic, [(b"k", framed)] * 60, partition=0)
    status, found, _ = doctor(capsys, *named)
    assert (status, found["keys"]["status"]) == (3, "fail")
    assert found["keys"]["page"] == "reference/doctor.md#key-format-unknown"
    assert "50 of 50 sampled records" in found["keys"]["why"]
    assert found["keys"]["why"].endswith(
        "Confluent wire format, schema id 7; the setting says plain JSON"
    )
    write(embedded_cluster, topic, [(b"k", plain), (b"k", None)], partition=1)
    status, found, _ = doctor(capsys, *named)
    assert (status, found["keys"]["status"]) == (0, "warn")
    assert "1 of 52 sampled records have no key by key='json:/id'" in found["keys"]["why"]
    _, found, _ = doctor(capsys, *named[:4])
    assert "the key is the record's own" in found["keys"]["seen"]


def test_an_app_brings_its_own_settings(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster, topic: str
) -> None:
    embedded_cluster.create_topic(topic, 3)
    status, found, _ = doctor(capsys, "handlers_of_doctor.py:app")
    assert status == 3
    assert found["topics"]["seen"] == f"{topic}: 3 partitions"
    assert f"'letters-of-{topic}' does not exist" in found["dlq"]["why"]
    ended = in_process(capsys, "doctor", "handlers_of_doctor.py:app", "-g", "other")
    assert ended.status == 2
    assert "leave out -g" in ended.err


@pytest.mark.parametrize("spec", ["handlers_of_doctor:two", "handlers_of_doctor:nix", "nix:nix"])
def test_a_handler_that_cannot_be_used_fails_and_the_rest_is_looked_at(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    embedded_cluster: Cluster,
    topic: str,
    spec: str,
) -> None:
    embedded_cluster.create_topic(topic, 1)
    status, found, _ = doctor(capsys, spec, "-b", embedded_cluster.bootstrap, "-t", topic)
    assert status == 3
    assert statuses(found)[:4] == ["fail", "ok", "ok", "ok"]


def test_what_cannot_be_imported_may_have_been_an_app(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found, _ = doctor(capsys, "nix:app")
    assert statuses(found) == ["fail"] + ["skipped"] * (len(ORDER) - 1)
    assert found["configuration"]["seen"] == "needs handler"


UNGUARDED = """
from kafka_keyshared import Consumer, KeyShared, split

consumer = Consumer({"bootstrap.servers": %r, "group.id": %r, "auto.offset.reset": "earliest"})
consumer.subscribe([%r])
"""


@pytest.mark.parametrize(
    "program",
    [
        ("handlers_unguarded.py:app", "app = KeyShared.wrap(consumer)\napp.run()"),
        ("handlers_unguarded:app", "with split(consumer, 2) as app:\n    print(app[0].poll(30))"),
    ],
    ids=["wrap", "split"],
)
def test_a_program_that_runs_when_it_is_imported_is_refused_before_it_reads_anything(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    embedded_cluster: Cluster,
    topic: str,
    program: tuple[str, str],
) -> None:
    embedded_cluster.create_topic(topic, 1)
    name, rest = program
    start = UNGUARDED % (embedded_cluster.bootstrap, topic, topic)
    Path("handlers_unguarded.py").write_text(start + rest)
    status, found, err = doctor(capsys, name)
    assert status == 3
    assert "if __name__ == '__main__'" in found["handler"]["why"]
    assert err == "", "no record and no thread said anything"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-b", "x:1", "-X", "sesion.timeout.ms=9000"), "did you mean 'session.timeout.ms'?"),
        (("-b", "x:1", "-X", "session.timeout.ms=soon"), "session.timeout.ms is from -X"),
        (("-b", "x:1", "--workers", "many"), "workers is from --workers"),
        (("-b", "x:1", "-X", "max.poll.interval.ms=8000"), "revoke_deadline"),
        (("-b", "x:99999"), "no port between 1 and 65535"),
        (("--config", "wrong.toml"), "wrong.toml"),
    ],
)
def test_a_wrong_configuration_fails_before_anybody_is_asked(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    Path("wrong.toml").write_text("wrkers = 8")
    status, found, _ = doctor(capsys, *arguments)
    assert status == 3
    assert statuses(found) == ["skipped", "fail"] + ["skipped"] * (len(ORDER) - 2)
    assert said in found["configuration"]["why"]


def test_all_that_is_wrong_with_a_configuration_is_told_at_once(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found, _ = doctor(
        capsys, "-b", "x:1", "-X", "sesion.timeout.ms=9000", "-X", "enable.auto.commit=true"
    )
    check = found["configuration"]
    assert check["page"] == "reference/doctor.md#setting-refused"
    for text in ("'session.timeout.ms'", "commit records that are not done", "from -X"):
        assert text in check["why"]


def test_the_environment_counts_and_can_be_wrong(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    embedded_cluster: Cluster,
) -> None:
    monkeypatch.setenv("KEYSHARED_BOOTSTRAP", embedded_cluster.bootstrap)
    _, found, _ = doctor(capsys)
    assert found["broker"]["status"] == "ok"
    monkeypatch.setenv("KEYSHARED_WORKERS", "many")
    _, found, _ = doctor(capsys)
    assert found["configuration"]["status"] == "fail"
    assert "from KEYSHARED_WORKERS" in found["configuration"]["why"]


def test_a_cluster_that_is_not_there_fails_once(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "ANSWER_TIMEOUT", 0.5)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    status, found, err = doctor(capsys, "-b", address, "-t", "t", "-g", "g", "--dlq", "auto")
    assert status == 3
    assert statuses(found) == ["skipped", "ok", "fail"] + ["skipped"] * (len(ORDER) - 3)
    assert address in found["broker"]["seen"]
    assert "Connection refused" in found["broker"]["seen"]
    assert found["broker"]["why"] == "nothing listens there"
    assert found["retention"]["seen"] == "needs positions"
    assert err == ""


class Silent:
    """A client of a cluster that never answers: each question takes all of its time."""

    def __init__(self, now: list[float]) -> None:
        self.now = now
        self.waited: list[float] = []

    def ask(self, *_: object, timeout: float) -> None:
        self.now[0] += timeout
        self.waited.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    list_topics = committed = ask

    def poll(self, timeout: float) -> None: ...

    def close(self) -> None: ...


def test_a_dead_cluster_takes_less_than_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    silent = Silent(now)
    monkeypatch.setattr(survey, "outsider", lambda conf, reasons: silent)
    asked = survey.Survey({"bootstrap.servers": "127.0.0.1:1"}, clock=lambda: now[0])
    for _ in range(5):
        assert isinstance(asked.metadata(), str)
    asked.close()
    assert silent.waited[0] >= 5.0, "a slow cluster is given some time"
    assert now[0] < 10.0


def test_a_survey_asks_no_longer_than_it_may() -> None:
    now = [0.0]
    conf = {"bootstrap.servers": "127.0.0.1:1"}
    asked = survey.Survey(conf, seconds=9, clock=lambda: now[0])
    assert asked._left() == 2.5
    assert asked._left(6) == 6
    now[0] = 8.0
    assert asked._left(6) == 1
    now[0] = 60.0
    assert 0 < asked._left() <= 0.3
    asked.close()


def test_a_question_that_was_not_answered_in_time_is_asked_again_and_no_right_is_blamed() -> None:
    late, denied = (
        unasked("group", FindingKind.GROUP_UNKNOWN, "billing", KafkaError(code), "allow DESCRIBE")
        for code in (KafkaError._TIMED_OUT, KafkaError.GROUP_AUTHORIZATION_FAILED)
    )
    assert late.cure.startswith("ask again: a broker that has much to do")
    assert denied.cure == "allow DESCRIBE"


def test_the_file_of_the_folder_is_named(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster
) -> None:
    named = ("-b", embedded_cluster.bootstrap)
    _, found, _ = doctor(capsys, *named)
    assert "of this folder" not in found["configuration"]["seen"]
    (place / "keyshared.toml").write_text("workers = 3\n", encoding="utf-8")
    _, found, _ = doctor(capsys, *named)
    seen = found["configuration"]["seen"]
    assert seen.endswith("workers=3; with keyshared.toml of this folder")


def test_without_topic_and_group_the_cluster_itself_is_looked_at(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster
) -> None:
    status, found, _ = doctor(capsys, "-b", embedded_cluster.bootstrap)
    assert status == 0
    assert statuses(found) == ["skipped", "ok", "ok"] + ["skipped"] * (len(ORDER) - 3)


def test_a_person_gets_a_table_with_reason_and_cure(
    place: Path, capsys: pytest.CaptureFixture[str], embedded_cluster: Cluster
) -> None:
    arguments = ("doctor", "-b", embedded_cluster.bootstrap, "-t", "^nix[0-9]")
    ended = in_process(capsys, *arguments)
    assert ended.status == 0, "a warning is no failure"
    for text in (
        "broker",
        "warn",
        "why: pattern",
        "cure: fix the pattern",
        "^nix[0-9]",
        "#pattern",
    ):
        assert text in ended.out
    assert ended.err == ""
    ended = in_process(capsys, *arguments, "-o", "yaml")
    assert ended.status == 0
    result = yaml.safe_load(ended.out)
    assert result["healthy"] is True
    assert [each["name"] for each in result["checks"]] == ORDER


@pytest.mark.parametrize(
    ("servers", "first"),
    [
        ("kafka:9093,other:9092", ("kafka", 9093)),
        ("SASL_SSL://kafka:9093", ("kafka", 9093)),
        ("kafka", ("kafka", 9092)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_the_listener_that_is_tried_for_tls_is_the_first(
    servers: str, first: tuple[str, int]
) -> None:
    assert probe._first_address(servers) == first


def test_only_what_was_written_after_the_first_look_is_a_stamp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An old record has an old time, which says nothing of a clock."""
    asked = survey.Survey({"bootstrap.servers": "127.0.0.1:1"})
    newest = {0: (4, 1_000), 1: (5, 2_000), 2: (-1, -1)}

    def offsets(partitions: list[ClientPartition], _which: str) -> dict[ClientPartition, Any]:
        return {each: SimpleNamespace(**_answer(*newest[each.partition])) for each in partitions}

    monkeypatch.setattr(asked, "_offsets", offsets)
    monkeypatch.setattr(asked, "now_ms", lambda: 3_000)
    look = survey.Look(2_500, {("log", number): 5 for number in newest})
    assert asked.stamps(look, 0.0) == [(2_500, 2_000, 3_000)]
    assert asked.stamps(survey.Look(2_500, {}), 60.0) == [], "there is nothing to wait for"
    asked.close()


def _answer(offset: int, timestamp: int) -> dict[str, int]:
    return {"offset": offset, "timestamp": timestamp}


def test_what_spark_needs_is_looked_at_when_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    misfit = Misfit(SparkMismatch.JAVA, "this Java is too old", "install another")
    monkeypatch.setattr(spark_checks, "misfits", lambda: iter([misfit]))
    status, found, _ = doctor(capsys, "--spark")
    assert status == module.UNHEALTHY
    assert statuses(found) == ["skipped"] * (len(ORDER) - 1) + ["fail"]
    assert found["spark"]["why"] == "this Java is too old"
    assert found["spark"]["cure"] == "install another"
    assert found["spark"]["page"].endswith("#spark-java-unfit")
    monkeypatch.setattr(spark_checks, "misfits", lambda: iter(()))
    monkeypatch.setattr(spark_checks, "seen", lambda: "all of it")
    status, found, _ = doctor(capsys, "--spark")
    assert (status, found["spark"]["status"], found["spark"]["seen"]) == (0, "ok", "all of it")


def test_former_names_in_a_file_of_rules_are_named_with_their_successors(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("- alert: Draining\n  expr: keyshared_draining_hashes > 0\n")
    status, found, _ = doctor(capsys, "--rules", str(rules))
    assert (status, found["rules"]["status"]) == (3, "fail")
    assert found["rules"]["why"].startswith(f"{rules}:2: keyshared_draining_hashes is no longer")
    assert found["rules"]["cure"].endswith("with keyshared_draining_slots")
    assert {check["status"] for name, check in found.items() if name != "rules"} == {"skipped"}
    rules.write_text("- alert: Draining\n  expr: keyshared_draining_slots > 0\n")
    status, found, _ = doctor(capsys, "--rules", str(rules))
    assert (status, found["rules"]["status"], found["rules"]["seen"]) == (0, "ok", str(rules))


def test_a_file_of_rules_that_cannot_be_read_is_a_mistake_of_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ended = in_process(capsys, "doctor", "--rules", str(tmp_path / "none.yaml"))
    assert ended.status == 2
    assert "none.yaml: cannot be read" in ended.err
