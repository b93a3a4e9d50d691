"""What a failed start says, in a line, without a Spark."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.spark.session import SparkOptions, _launch, cause, last_words


class JavaError:
    """As py4j shows one."""

    def __init__(self, message: str | None, inner: JavaError | None = None) -> None:
        self._message, self._inner = message, inner

    def getCause(self) -> JavaError | None:  # noqa: N802 - Java's names
        return self._inner

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def toString(self) -> str:  # noqa: N802
        return "java.lang.Error"


class EndedError(JavaError):
    """Whose Java is not there any more: each question connects anew."""

    def getCause(self) -> JavaError | None:  # noqa: N802
        raise ConnectionRefusedError(111, "Connection refused")


class RaisedError(Exception):
    def __init__(self, java: JavaError | None, text: str = "") -> None:
        super().__init__(text)
        self.java_exception = java


WORKER = """\
Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times:
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
ModuleNotFoundError: No module named 'billing'

\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:581)
Driver stacktrace:
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RaisedError(JavaError("outer", JavaError("no room\n\tat a.b.C"))), "no room"),
        (RaisedError(JavaError(None)), "java.lang.Error"),
        (RaisedError(EndedError("outer")), "Spark's Java has ended (ConnectionRefusedError)"),
        (ConnectionRefusedError(111, "no"), "Spark's Java has ended (ConnectionRefusedError)"),
        (RaisedError(JavaError(WORKER)), "ModuleNotFoundError: No module named 'billing'"),
        (ValueError("plain"), "plain"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_cause_is_one_line_without_a_stack(error: Exception, told: str) -> None:
    assert cause(error) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("starting\nError: no such option\n\tat a.b.C\nusage\n", "Error: no such option"),
        ('Exception in thread "main" a.b.SparkException: no\n\tat a.b.C\n', "no"),
        ("just this\n", "just this"),
        ("", "it said nothing"),
    ],
)
def test_the_last_words_of_a_log(tmp_path: Path, text: str, told: str) -> None:
    log = tmp_path / "spark.log"
    log.write_text(text)
    assert last_words(log) == told


def test_java_is_in_no_process_group_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to the driver's group would end Java under the batch that runs."""
    gateway = pytest.importorskip("pyspark.java_gateway")
    given: dict[str, Any] = {}
    monkeypatch.setattr(gateway, "launch_gateway", lambda _, popen: given.update(popen))
    _launch(SparkOptions(), {}, tmp_path, tmp_path / "spark.log")
    assert given["start_new_session"] is True
    assert given["stderr"] == subprocess.STDOUT
