"""What executors need reaches them: this package, the handler's modules, an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.dlq.envelope import source_of
from kafka_keyshared.spark.checks import spark_home
from kafka_keyshared.spark.packaging import modules_below, modules_zip
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import PARTITIONS, produce, read_all
from tests.support.cli import KEYSHARED, own_modules
from tests.support.spark_cluster import environment, standalone

PROGRAM = Path(__file__).with_name("looks_around.py")
RECORDS = 200

STAYS = """
import os
import threading
from pathlib import Path

from kafka_keyshared import Output

OUT = Path(os.environ["OUT"])

def handle(record):
    number = int(record.value())
    with (OUT / "calls").open("a") as file:
        file.write(f"{number} {os.getppid()}\\n")
    if number == int(os.environ["STAYS_AT"]):
        try:
            (OUT / "stays").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            threading.Event().wait()
    if number % 10 == 3:
        raise ValueError("no answer")
    return Output(record.value(), record.key())
"""
"""Whoever comes to a certain record first never comes back from it; the parent is the executor."""


@pytest.fixture
def handler(tmp_path: Path) -> Path:
    """A zip of a handler's module and one that it imports, from a folder no executor knows."""
    place = tmp_path / "app"
    (place / "helping").mkdir(parents=True)
    (place / "helping" / "__init__.py").write_text("def twice(number):\n    return 2 * number\n")
    (place / "shipped.py").write_text("from helping import twice\ndef handle(n): return twice(n)\n")
    with own_modules(place):
        sys.path.insert(0, str(place))
        import_module("shipped")
        modules = modules_below(place)
        assert [module.__name__ for module in modules] == ["helping", "shipped"]
        return modules_zip(tmp_path, modules)


def ended(
    command: list[str], told: dict[str, Any], **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, str(PROGRAM), json.dumps({**told, "handler": "shipped"})],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment(**more),
        check=False,
    )


def run(command: list[str], told: dict[str, Any], **more: str) -> dict[str, Any]:
    how = ended(command, told, **more)
    assert how.returncode == 0, how.stderr
    result: dict[str, Any] = json.loads(how.stdout)
    assert how.stderr == "" or "spark-submit" in command[0]
    return result


def test_two_executors_run_in_the_environment_that_was_sent(
    spark_parts: None, tmp_path: Path, handler: Path
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nCAME_BY=archive exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    archive = tmp_path / "env.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(python, "bin/python")
    told = {
        "master": "local-cluster[2,1,1024]",
        "log": str(tmp_path / "spark.log"),
        "py_files": [str(handler)],
        "archives": [f"{archive}#environment"],
        # Else a job may begin before the second executor is there.
        "conf": {"spark.cores.max": "2", "spark.scheduler.minRegisteredResourcesRatio": "1.0"},
    }
    seen = run([sys.executable], told)["seen"]
    assert [each["handled"] for each in seen] == [[0, 2], [4, 6]]
    assert {each["came_by"] for each in seen} == {"archive"}
    assert all("kafka_keyshared.zip" in each["package"] for each in seen)
    assert len({each["place"] for each in seen}) == 2, "one executor did all of the work"


@pytest.fixture(scope="module")
def two_hosts(spark_parts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of two workers with a core each, by two names of this machine."""
    place = tmp_path_factory.mktemp("cluster")
    with standalone(place, cores=1, hosts=("127.0.0.1", "localhost")) as master:
        yield master


@pytest.mark.timeout(600)
def test_what_spark_submit_has_started_on_a_cluster_is_taken_as_it_is(
    two_hosts: str, tmp_path: Path, handler: Path
) -> None:
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", two_hosts]
    submit += ["--name", "from outside", "--py-files", str(handler)]
    submit += ["--executor-memory", "600m", "--conf", f"spark.pyspark.python={sys.executable}"]
    told = {"log": str(tmp_path / "spark.log"), "py_files": []}
    result = run(submit, told, PYTHONPATH=os.environ.get("PYTHONPATH", str(Path.cwd())))
    assert (result["master"], result["name"]) == (two_hosts, "from outside")
    assert [each["handled"] for each in result["seen"]] == [[0, 2], [4, 6]]


@pytest.mark.timeout(600)
def test_of_a_task_that_speculation_runs_twice_one_counts_and_its_letters_are_known(
    two_hosts: str, real_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """The first attempt never ends, so that the batch ends by the copy, on the other host.

    Spark copies a task to no host that has it, and by a ``local-cluster`` there is only one.
    """
    out, poison = tmp_path / "out", {number for number in range(RECORDS) if number % 10 == 3}
    out.mkdir()
    (tmp_path / "stays.py").write_text(STAYS)
    for each in (topic, f"{topic}.out"):
        real_cluster.create_topic(each, PARTITIONS)
    produce(real_cluster, topic, range(RECORDS))
    seen = {"OUT": str(out), "STAYS_AT": str(RECORDS - 10)}
    conf = {
        **{f"spark.executorEnv.{name}": value for name, value in seen.items()},
        "spark.pyspark.python": sys.executable,
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        # It goes by the time alone: how much of its records a task has done says nothing here.
        "spark.speculation.efficiency.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    told = subprocess.run(
        [
            *(*KEYSHARED, "spark", "run", f"{tmp_path / 'stays.py'}:handle", "--json"),
            *("-b", real_cluster.bootstrap, "-t", topic, "-g", f"g-{topic}", "--from-beginning"),
            *("--workers", "4", "--dlq", f"{topic}.dlq", "--dlq-create", "--attempts", "1"),
            *("--outputs", f"topic:{topic}.out", "--master", two_hosts),
            *("--executor-memory", "512m", "--spark-log", str(tmp_path / "spark.log")),
            *(part for name, value in conf.items() for part in ("--spark-conf", f"{name}={value}")),
        ],
        capture_output=True,
        text=True,
        timeout=500,
        env=environment(**seen),
        check=False,
    )
    assert told.returncode == 0, told.stderr
    done = json.loads(told.stdout)
    calls = defaultdict(set)
    for number, executor in (each.split() for each in (out / "calls").read_text().splitlines()):
        calls[int(number)].add(executor)
    assert calls.keys() == set(range(RECORDS))
    assert len(calls[RECORDS - 10]) == 2, "no task was copied, so this has shown nothing"
    assert (done["records"], done["dead_lettered"], done["outputs"]) == (RECORDS, 20, 180)
    assert (done["batches"], done["left"]) == (1, 0)
    assert sum(done["positions"].values()) == RECORDS
    letters = read_all(real_cluster, f"{topic}.dlq")
    assert {int(each.value()) for each in letters} == poison
    assert len({source_of(each.headers()) for each in letters}) == len(poison)
    outputs = {
        dict(each.headers())["keyshared.output"]: int(each.value())
        for each in read_all(real_cluster, f"{topic}.out")
    }
    assert sorted(outputs.values()) == sorted(set(range(RECORDS)) - poison)


def test_a_start_that_spark_refuses_is_one_line_that_names_the_log(
    spark_parts: None, tmp_path: Path
) -> None:
    log = tmp_path / "spark.log"
    told = {"master": "somewhere", "log": str(log), "py_files": []}
    how = ended([sys.executable], told)
    assert how.returncode == 1
    assert how.stdout == ""
    (line,) = how.stderr.splitlines()
    assert line.startswith(
        "MissingPartError: Spark did not start with master somewhere: Master must either be"
    )
    assert str(log) in line
    assert "at org.apache" in log.read_text()
