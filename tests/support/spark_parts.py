"""A machine with all that Spark needs, played: a Java, a Spark and jars that are only names."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from kafka_keyshared.spark import checks, jars

CONNECTOR = "spark-sql-kafka-0-10_2.13-4.0.0.jar"
JARS = (
    CONNECTOR,
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.0.jar",
    "commons-pool2-2.12.1.jar",
)


def fill(directory: Path, *names: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_text("a jar")
    return directory


def command(file: Path, body: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    file.chmod(0o755)
    return file


def java_command(home: Path, version: str) -> Path:
    said = f'openjdk version "{version}" 2025-01-01'
    return command(home / "bin" / "java", f"print({said!r}, file=sys.stderr)")


class Machine:
    """One where everything fits, until a test changes it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.monkeypatch = monkeypatch
        self.home = root / "spark"
        self.cache = root / "cache" / "kafka-keyshared" / "spark-4.0.0"
        fill(self.home / "jars", "spark-core_2.13-4.0.0.jar")
        fill(self.cache, *JARS)
        java_command(root / "java", "17.0.1")
        self.installed("4.0.0")
        for name in (jars.JARS_VARIABLE, "PYSPARK_PYTHON"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("SPARK_HOME", str(self.home))
        monkeypatch.setenv("JAVA_HOME", str(root / "java"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
        monkeypatch.setenv("PATH", str(root / "none"))

    def installed(self, version: str | None) -> None:
        def told(name: str) -> str:
            if version is None:
                raise PackageNotFoundError(name)
            return version

        self.monkeypatch.setattr(checks, "version", told)
        self.monkeypatch.setattr(checks, "require_pyspark", lambda: None)
