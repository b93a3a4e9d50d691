"""``keyshared spark jars`` tells where the jars are, and fetches them when it is asked to."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kafka_keyshared.spark.jars import JARS_VARIABLE
from tests.support.cli import in_process

NAMES = [
    "spark-sql-kafka-0-10_2.13-4.0.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.0.jar",
    "commons-pool2-2.12.1.jar",
]

PLAYED_MAVEN = f"""#!{sys.executable}
import sys, pathlib
wanted = [word for word in sys.argv if word.startswith("-DoutputDirectory=")]
out = pathlib.Path(wanted[0].partition("=")[2])
out.mkdir()
for name in {NAMES!r}:
    (out / name).write_text("a jar")
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the jars would be; there are none, and no Maven."""
    monkeypatch.delenv(JARS_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "cache" / "kafka-keyshared" / "spark-4.0.0"


def test_missing_jars_are_a_failure_with_the_way_to_get_them(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = in_process(capsys, "spark", "jars")
    assert (ended.status, ended.out) == (1, "")
    assert str(cache) in ended.err
    assert "keyshared spark jars --fetch" in ended.err
    without_maven = in_process(capsys, "spark", "jars", "--fetch")
    assert without_maven.status == 1
    assert "install Maven" in without_maven.err


def test_they_are_fetched_once_and_then_told(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(PLAYED_MAVEN)
    maven.chmod(0o755)
    ended = in_process(capsys, "spark", "jars", "--fetch", "--json")
    assert (ended.status, json.loads(ended.out)) == (
        0,
        {"spark": "4.0.0", "directory": str(cache), "jars": NAMES},
    )
    assert ended.err.startswith("Fetching the jars of Spark 4.0.0 for Kafka")
    maven.unlink()
    again = in_process(capsys, "spark", "jars", "--fetch")
    assert (again.status, again.err) == (0, "")
    assert NAMES[0] in again.out
