"""What `keyshared spark run` refuses before anything of Spark is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.cli import in_process, own_modules
from tests.support.spark_parts import CONNECTOR, Machine, java_command


def test_a_server_of_its_own_is_refused_and_so_is_a_log_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    (tmp_path / "file").write_text("")
    given = ("spark", "run", "app:handle", "--app-dir", tmp_path, "-b", "127.0.0.1:1")
    names = ("-t", "t", "-g", "g")
    with own_modules(tmp_path):
        served = in_process(capsys, *given, *names, "--http-port", 8787)
        assert served.status == 2
        assert "--http-port: a run on Spark has no server of its own" in served.err
        logged = in_process(capsys, *given, *names, "--audit-log", tmp_path / "file")
        assert logged.status == 2
        assert "give a writable folder" in logged.err


UNFIT: Mapping[str, tuple[Callable[[Machine], object], str]] = {
    "no Java": (
        lambda machine: machine.monkeypatch.setenv("JAVA_HOME", str(machine.root / "none")),
        "JAVA_HOME",
    ),
    "an old Java": (
        lambda machine: java_command(machine.root / "java", "11.0.2"),
        "is 11",
    ),
    "a Java that is too new": (
        lambda machine: java_command(machine.root / "java", "23.0.1"),
        "Spark 4.0.0 needs Java 17 to 22",
    ),
    "another PySpark": (
        lambda machine: machine.installed("3.5.6"),
        "pyspark 3.5.6 is installed, and this package goes with Spark 4.0",
    ),
    "no jars": (
        lambda machine: machine.monkeypatch.setenv("XDG_CACHE_HOME", str(machine.root / "none")),
        "run `keyshared spark jars --fetch`",
    ),
    "jars of another Spark": (
        lambda machine: (machine.cache / CONNECTOR).rename(
            machine.cache / CONNECTOR.replace("4.0.0", "3.5.6")
        ),
        "is for Spark 3.5.6, and this is 4.0.0",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
def test_what_of_spark_does_not_fit_is_one_line_before_a_broker_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
) -> None:
    machine = Machine(tmp_path, monkeypatch)
    happens, told = UNFIT[what]
    happens(machine)
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    given = ("spark", "run", "app:handle", "--app-dir", tmp_path, "-t", "t", "-g", "g")
    with own_modules(tmp_path):
        ended = in_process(capsys, *given, "-b", "127.0.0.1:1")
    assert (ended.status, ended.out) == (1, "")
    (line,) = ended.err.splitlines()
    assert told in line
    assert "127.0.0.1:1" not in line
