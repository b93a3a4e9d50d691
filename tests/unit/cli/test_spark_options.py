"""What the command line says of Spark reaches its start."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest

from kafka_keyshared.cli import spark_run
from kafka_keyshared.cli.spark_run import SparkRunArguments, handlers_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.spark.session import SparkOptions
from tests.support.cli import in_process, own_modules


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a handler and a module that it imports."""
    (tmp_path / "helps.py").write_text("")
    (tmp_path / "handles.py").write_text("import helps\ndef handle(record): ...\n")
    monkeypatch.chdir(tmp_path)
    with own_modules(tmp_path):
        yield tmp_path


def test_the_modules_of_a_handler_go_along_where_executors_are_apart(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(place))
    import_module("handles")
    with handlers_of(place, SparkRunArguments("local[*]").options("n")) as sent:
        assert sent.py_files == ()
    with handlers_of(place, SparkRunArguments("spark://there:7077").options("n")) as sent:
        (file,) = sent.py_files
        assert set(zipfile.ZipFile(file).namelist()) == {"handles.py", "helps.py"}
    assert not file.exists()


def test_every_option_reaches_the_start(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SparkOptions] = []

    def start(options: SparkOptions) -> NoReturn:
        started.append(options)
        raise ConfigError("seen enough")

    monkeypatch.setattr(spark_run, "start", start)
    monkeypatch.setattr(spark_run, "require", lambda where, given: None)
    monkeypatch.setattr(spark_run, "require_broker", lambda conf: None)
    monkeypatch.setattr(spark_run, "require_ready", lambda wanted, here: None)
    ended = in_process(
        capsys,
        *("spark", "run", "handles:handle", "-b", "localhost:1", "-t", "orders", "-g", "billing"),
        *("--master", "local[3]", "--driver-memory", "2g", "--executor-memory", "3g"),
        *("--spark-conf", "spark.cores.max=4", "--archives", "env.tar.gz#environment"),
        *("--submit-args", "--master k8s://there --num-executors 8", "--spark-log", "s.log"),
    )
    assert (ended.status, ended.err.splitlines()[-1]) == (2, "keyshared: seen enough")
    (options,) = started
    assert options.where == "k8s://there"
    assert (options.driver_memory, options.executor_memory) == ("2g", "3g")
    assert options.given["spark.cores.max"] == "4"
    assert options.given["spark.executor.instances"] == "8"
    assert options.archives == ("env.tar.gz#environment",)
    assert (options.app_name, options.log) == ("keyshared billing", Path("s.log"))
