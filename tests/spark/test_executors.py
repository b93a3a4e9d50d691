"""What executors need reaches them: this package, the handler's modules, an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.spark.checks import spark_home
from kafka_keyshared.spark.shipping import modules_below, modules_zip
from tests.support.cli import own_modules
from tests.support.standalone import environment, standalone

PROGRAM = Path(__file__).with_name("looks_around.py")


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
        timeout=240,
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


def test_what_spark_submit_has_started_on_a_cluster_is_taken_as_it_is(
    spark_parts: None, tmp_path: Path, handler: Path
) -> None:
    with standalone(tmp_path) as master:
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", master]
        submit += ["--name", "from outside", "--py-files", str(handler)]
        submit += ["--executor-memory", "600m", "--conf", f"spark.pyspark.python={sys.executable}"]
        told = {"log": str(tmp_path / "spark.log"), "py_files": []}
        result = run(submit, told, PYTHONPATH=os.environ.get("PYTHONPATH", str(Path.cwd())))
    assert (result["master"], result["name"]) == (master, "from outside")
    assert [each["handled"] for each in result["seen"]] == [[0, 2], [4, 6]]


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
