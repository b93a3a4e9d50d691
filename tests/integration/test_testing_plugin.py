"""The fixtures as a stranger gets them: in a project of their own, warnings being errors."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Ended, as_user

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "testing"

# Imports from the package before pytest has seen the plugin, as people do.
CONFTEST = """
from kafka_keyshared.testing import record

pytest_plugins = ["kafka_keyshared.testing"]
"""

TESTS = """
import sys

import pytest
from kafka_keyshared.testing import EmbeddedKafka


def test_the_first_leaves_something_behind(keyshared_cluster, keyshared_topic):
    assert isinstance(keyshared_cluster, EmbeddedKafka)
    keyshared_cluster.produce(keyshared_topic, [("a", "1")])
    keyshared_cluster.fail_next("produce", "MSG_SIZE_TOO_LARGE", times=1_000)
    assert keyshared_cluster.records(f"{keyshared_topic}.dlq") == []


def test_the_second_finds_nothing_of_it(keyshared_cluster, keyshared_topic):
    assert keyshared_cluster.records(keyshared_topic) == []
    keyshared_cluster.produce(keyshared_topic, [("a", "2")])


@pytest.mark.parametrize("keyshared_brokers", [3])
def test_brokers_are_as_many_as_are_asked_for(keyshared_cluster, keyshared_topic):
    keyshared_cluster.move_leader(keyshared_topic, 0, 3)
    keyshared_cluster.produce(keyshared_topic, [("a", "3")], partition=0)
    assert len(keyshared_cluster.bootstrap.split(",")) == 3


def test_nothing_of_the_command_line_or_the_settings_files_is_needed():
    assert not {"typer", "rich"} & set(sys.modules)
"""

WITHOUT = """
import sys


def test_who_does_not_ask_pays_nothing():
    assert "kafka_keyshared" not in sys.modules
    assert "confluent_kafka" not in sys.modules


def test_and_gets_nothing(keyshared_cluster):
    raise AssertionError("never called")
"""


def project(directory: Path, **files: str) -> Path:
    (directory / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", "utf-8")
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text, "utf-8")
    return directory


def pytest_in(directory: Path, *arguments: str) -> Ended:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return as_user(*arguments, command=command, cwd=directory)


def test_one_line_brings_the_fixtures(tmp_path: Path) -> None:
    ended = pytest_in(project(tmp_path, conftest=CONFTEST, test_mine=TESTS))
    assert ended.status == 0, ended.out + ended.err
    assert "4 passed" in ended.out


def test_without_the_line_there_is_nothing(tmp_path: Path) -> None:
    ended = pytest_in(project(tmp_path, test_mine=WITHOUT))
    assert ended.status == 1, ended.out + ended.err
    assert "1 passed, 1 error" in ended.out
    assert "fixture 'keyshared_cluster' not found" in ended.out


def test_every_example_test_passes(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    ended = pytest_in(project(tmp_path))
    assert ended.status == 0, ended.out + ended.err
    assert "2 passed" in ended.out


def test_the_example_is_the_one_that_the_page_shows() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "guide" / "testing.md").read_text("utf-8")
    for path in EXAMPLE.glob("*.py"):
        assert f"```python\n{path.read_text('utf-8')}```" in page, path.name


@pytest.mark.parametrize("stays", ["int(record.value())", "return Drop()"])
def test_the_example_notices_a_handler_that_is_wrong(tmp_path: Path, stays: str) -> None:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    app = tmp_path / "app.py"
    app.write_text(app.read_text("utf-8").replace(stays, "1" if "int" in stays else "return None"))
    ended = pytest_in(project(tmp_path), "-k", "test_a_handler")
    assert ended.status == 1
    assert "1 failed" in ended.out


def test_the_module_needs_no_pytest() -> None:
    """It is for those with another test runner, too."""
    code = "import sys; sys.modules['pytest'] = None; import kafka_keyshared.testing as t; print(t)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
