"""The command that the chart renders, started against a broker as a pod would start it."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.testing.clusters.cluster import Cluster
from kafka_keyshared.testing.clusters.node import free_ports
from tests.helm.chart import Values, container, minimal, one, render
from tests.support.cli import Running, as_user
from tests.support.live_cluster import group_name, write

Eventually = Callable[..., None]

FUNCTION = """
def handle(record):
    print(record.key().decode() + "\\n", end="", flush=True)
"""

APP = """
from kafka_keyshared import KeyShared

app = KeyShared(
    {"bootstrap.servers": "localhost:1", "group.id": "mine", "auto.offset.reset": "latest"},
    ["nowhere"],
    key=lambda record: record.key(),
)

@app.batch_handler(size=5)
def handle(records):
    for record in records:
        print(record.key().decode() + "\\n", end="", flush=True)
"""


def values(cluster: Cluster, topic: str, handler: str, text: str) -> Values:
    """A release whose handler stands in the values, for a pod on this machine."""
    http, console = free_ports(2)
    return minimal(
        handler=handler,
        app__files={"app.py": text},
        config__bootstrap=cluster.bootstrap,
        config__topics=[topic],
        config__group=group_name(),
        config__http_port=http,
        config__console_port=console,
        config__kafka={"auto.offset.reset": "earliest"},
    )


def as_on_this_machine(objects: list[Values], made: Values, place: Path) -> list[str]:
    """Return the container's arguments, with its mounted files below ``place``."""
    for mount in made["volumeMounts"]:
        if mount["name"] == "tmp":
            continue
        folder = place / mount["mountPath"].lstrip("/")
        folder.mkdir(parents=True)
        for name, text in one(objects, "ConfigMap", f"-{mount['name']}")["data"].items():
            (folder / name).write_text(text, "utf-8")
    assert made["command"] == ["keyshared"]
    return [
        str(place / each.lstrip("/")) if each.startswith("/") else each for each in made["args"]
    ]


@pytest.mark.parametrize(
    ("handler", "text"), [("app:handle", FUNCTION), ("app:app", APP)], ids=["function", "app"]
)
def test_the_rendered_command_starts_consumes_and_serves(
    handler: str, text: str, embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    embedded_cluster.create_topic(topic, 2)
    write(embedded_cluster, topic, [(b"key-%d" % n, b"v") for n in range(20)])
    objects = render(values(embedded_cluster, topic, handler, text))
    arguments = as_on_this_machine(objects, container(objects), tmp_path)
    with Running(*arguments) as running:
        said = running.wait_for("metrics and health checks at ")
        running.wait_for("console at ")
        running.wait_for("started: ")
        assert running.process.stdout is not None
        keys = {running.process.stdout.readline().strip() for _ in range(20)}
        url = said.partition("health checks at ")[2].split()[0].replace("0.0.0.0", "127.0.0.1")
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert answer.status == 200
        assert running.end(signal.SIGTERM) == 0
        assert "is not installed" not in running.err
    assert keys == {f"key-{n}" for n in range(20)}


def test_the_doctor_of_the_chart_looks_at_the_release_of_an_app_that_is_code(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    embedded_cluster.create_topic(topic, 1)
    objects = render(values(embedded_cluster, topic, "app:app", APP))
    (doctor,) = one(objects, "Pod")["spec"]["containers"]
    arguments = as_on_this_machine(objects, doctor, tmp_path)
    ended = as_user(*arguments, "--json")
    found: dict[str, Any] = {each["name"]: each for each in json.loads(ended.out)["checks"]}
    assert found["handler"]["status"] == "ok"
    assert found["configuration"]["status"] == "ok"
    assert embedded_cluster.bootstrap in found["broker"]["seen"]
    assert topic in found["topics"]["seen"]
