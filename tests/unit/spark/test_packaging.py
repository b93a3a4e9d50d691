"""What is sent to executors: this package, modules of somebody, and what executors answer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark import packaging
from kafka_keyshared.spark.packaging import ExecutorReport


def test_the_package_is_imported_from_its_zip_with_its_data(tmp_path: Path) -> None:
    file = packaging.package_zip(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(file)!r}); sys.dont_write_bytecode = True\n"
        "import json, kafka_keyshared.spark.jars as jars\n"
        "from importlib.resources import files\n"
        "pom = files('kafka_keyshared.spark').joinpath(jars.SPARK_JARS.pom).read_text()\n"
        "print(json.dumps([jars.__file__, jars.SPARK_VERSION in pom]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    where, has_data = json.loads(ran.stdout)
    assert where == f"{file}/kafka_keyshared/spark/jars.py"
    assert has_data


def test_a_module_without_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="module compiled has no source"):
        packaging.modules_zip(tmp_path, [ModuleType("compiled")])


def test_an_archive_is_an_environment_by_its_name() -> None:
    assert packaging.python_in(["/a.tar.gz#data", "/b.tar.gz#environment"]) == (
        "./environment/bin/python"
    )
    assert packaging.python_in(["/environment", ""]) is None


class Spread:
    """A context of Spark whose tasks run here, or never."""

    defaultParallelism = 1  # noqa: N815 - Spark's name

    def __init__(self, run: bool = True) -> None:
        self._run = run

    def parallelize(self, numbers: Iterable[int], count: int) -> Spread:
        self.count = count
        return self

    def mapPartitions(self, task: Any) -> Spread:  # noqa: N802 - Spark's name
        self.task = task
        return self

    def collect(self) -> Sequence[ExecutorReport]:
        if not self._run:
            threading.Event().wait()
        return [found for _ in range(self.count) for found in self.task(iter(()))]


def test_every_executor_is_asked_what_it_lacks() -> None:
    assert [found.missing for found in packaging.probe(Spread())] == [(), ()]
    with pytest.raises(ConfigError, match=r"no_such_module \(ModuleNotFoundError") as caught:
        packaging.probe(Spread(), ("no_such_module",))
    assert sys.executable in str(caught.value)
    assert "#environment" in str(caught.value)


def test_a_cluster_that_gives_no_executor_is_told() -> None:
    with pytest.raises(ConfigError, match="no executor has taken work within 0 s"):
        packaging.probe(Spread(run=False), patience=0.01)


def test_what_spark_raises_is_passed_on() -> None:
    class Broken(Spread):
        def collect(self) -> Sequence[ExecutorReport]:
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        packaging.probe(Broken())
