"""What stands in the values is what the package runs with."""

from __future__ import annotations

import signal
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka_keyshared.config import Layers, Options, layered
from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.conftest import Eventually
from tests.helm.chart import CASES, DEFAULTS, Values, case, container, minimal, one, render, toml
from tests.support.cli import Ended, Running, as_user, in_process

IN_POD = "/etc/keyshared/"


def environment(objects: list[Values]) -> dict[str, str]:
    """The pod's environment; what comes out of a secret says which secret and key."""
    made = {}
    for each in container(objects)["env"]:
        reference = each.get("valueFrom", {}).get("secretKeyRef", {})
        made[each["name"]] = each.get("value", "{name}/{key}".format_map({**NO_KEY, **reference}))
    return made


NO_KEY = {"name": "", "key": ""}


def in_pod(objects: list[Values], where: Path) -> list[str]:
    """Lay out what is mounted below a directory; the container's arguments with it put in."""
    mounted = {each["mountPath"]: each["name"] for each in container(objects)["volumeMounts"]}
    for path, name in mounted.items():
        if name in ("config", "app"):
            folder = where / path.removeprefix(IN_POD)
            folder.mkdir()
            for file, text in one(objects, "ConfigMap", f"-{name}")["data"].items():
                (folder / file).write_text(text, "utf-8")
    assert container(objects)["command"] == ["keyshared"]
    return [each.replace(IN_POD, f"{where}/") for each in container(objects)["args"]]


def settings(values: Values, where: Path) -> Layers:
    """What the package makes of a pod's file and environment."""
    objects = render(values)
    arguments = in_pod(objects, where)
    return layered(arguments[arguments.index("--config") + 1], environment(objects))


@pytest.mark.parametrize("name", CASES)
def test_the_package_reads_what_the_values_say(name: str, tmp_path: Path) -> None:
    values = case(name)
    read = settings(values, tmp_path)
    given = {**DEFAULTS["config"], **values["config"]}
    assert read.topics == given.pop("topics")
    conf = {
        "bootstrap.servers": given.pop("bootstrap"),
        "group.id": given.pop("group"),
        **given.pop("kafka"),
    }
    for secret in values.get("existingSecrets", []):
        for setting, key in secret.get("env", {}).items():
            conf[setting] = f"{secret['name']}/{key}"
        for setting, key in secret.get("files", {}).items():
            conf[setting] = f"{IN_POD}secrets/{secret['name']}/{key}"
    assert read.conf == conf
    assert read.options == given


@pytest.mark.parametrize("name", ["minimal", "full"])
def test_the_package_itself_finds_nothing_wrong_with_a_pod(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    objects = render(case(name))
    _, handler, *flags = in_pod(objects, tmp_path)
    for folder in ("app", "billing"):
        (tmp_path / folder).mkdir()
    (tmp_path / "app" / "app.py").write_text("def handle(record): ...\n", "utf-8")
    (tmp_path / "billing" / "app.py").write_text(
        "class Billing:\n    def handle(self, record): ...\n", "utf-8"
    )
    flags[-1] = str(tmp_path / "app")
    for variable, value in environment(objects).items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    ended = in_process(capsys, "config", "check", handler, *flags)
    assert ended.status == 0, ended.out + ended.err


def test_the_defaults_that_the_chart_repeats_are_the_packages() -> None:
    assert Options().revoke_deadline == 5
    assert Options().stop_timeout == 25
    assert Options().http_host == "127.0.0.1"


TEXTS = (
    *('"', "'''", "\\", "\\n", "a\nb\tc\r", "# no comment", "[kafka]", " a ", "~", "0123", "1e3"),
    *("yes", "null", "2026-01-01", "${HOME} {{ .Values.handler }}", "<&>", "ключ-キー-😀"),
    *("\u2028", "\u0007\u001f"),
)
NUMBERS = (0, 1, 67_108_864, 2_147_483_647, 9_007_199_254_740_991, 0.1, 1e-7, 59.5, True)


def test_any_text_and_number_arrives_as_it_was_given() -> None:
    kafka = {f"a.{index}": value for index, value in enumerate((*TEXTS, *NUMBERS))}
    values = minimal(config__topics=list(TEXTS), config__kafka=kafka)
    read = tomllib.loads(toml(render(values)))
    assert read["topics"] == list(TEXTS)
    assert read["kafka"] == kafka
    assert [type(value) for value in read["kafka"].values()] == [
        type(kafka[name]) for name in read["kafka"]
    ]


def answer(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answered:
            return int(answered.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def values_for(cluster: Cluster, topic: str, port: int) -> Values:
    handler = "import os\n\ndef handle(record):\n    os.write(1, record.key() + b'\\n')\n"
    return minimal(
        app={"files": {"app.py": handler}},
        config={
            "bootstrap": cluster.bootstrap,
            "topics": [topic],
            "group": topic,
            "workers": 4,
            "http_port": port,
            "kafka": {"auto.offset.reset": "earliest"},
        },
        existingSecrets=[{"name": "user", "env": {"client.id": "name"}}],
    )


def test_the_rendered_command_runs_answers_its_probes_and_stops_cleanly(
    embedded_cluster: Cluster, topic: str, tmp_path: Path, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap})
    for number in range(20):
        producer.produce(topic, b"value", b"key-%d" % number, number % 2)
    assert producer.flush(60) == 0
    (port,) = free_ports(1)
    objects = render(values_for(embedded_cluster, topic, port))
    made = container(objects)
    probes = {name: made[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness")}
    arguments = in_pod(objects, tmp_path)
    with Running(*arguments, env=environment(objects)) as run:
        run.wait_for(f"health checks at http://0.0.0.0:{port}")
        eventually(lambda: answer(port, probes["readiness"]) == 200, 120.0)
        assert answer(port, probes["liveness"]) == 200
        assert "settled 20 " in run.wait_for("caught up")
        assert run.end(signal.SIGTERM) == 0, run.err
        assert run.process.stdout is not None
        handled = run.process.stdout.read().split("\n")
    assert sorted(handled) == sorted(["", *(f"key-{number}" for number in range(20))])
    assert committed(embedded_cluster, topic) == [10, 10]


def committed(cluster: Cluster, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic})
    found = consumer.committed([TopicPartition(topic, number) for number in range(2)], timeout=60)
    consumer.close()
    return [each.offset for each in found]


def doctor(objects: list[Values], where: Path) -> Ended:
    (made,) = one(objects, "Pod")["spec"]["containers"]
    in_pod(objects, where)
    arguments = [each.replace(IN_POD, f"{where}/") for each in made["args"]]
    return as_user(*arguments, env=environment(objects))


def test_the_pod_of_helm_test_asks_the_doctor_about_the_same_settings(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    embedded_cluster.create_topic(topic, 2)
    ended = doctor(render(values_for(embedded_cluster, topic, 8787)), tmp_path)
    assert ended.status == 0, ended.out
    assert topic in ended.out
