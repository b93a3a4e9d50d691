"""`keyshared init`: what it writes passes its own test, and runs."""

from __future__ import annotations

import json
import signal
import sys
import tomllib
from pathlib import Path

import pytest

from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import Running, as_user, in_process
from tests.support.live_cluster import committed, read_all, write

FILES = ["app.py", "keyshared.toml", "test_app.py"]


def test_what_it_writes_passes_its_own_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "new" / "orders"
    ended = in_process(capsys, "init", place)
    assert ended.status == 0
    assert ended.out.splitlines() == [str(place / name) for name in FILES]
    assert f"cd {place}" in ended.err
    assert "keyshared run app.py:handle --config keyshared.toml" in ended.err
    assert sorted(path.name for path in place.iterdir()) == FILES
    # As a stranger would: in that directory, with nothing of this checkout's settings.
    pytested = as_user(command=[sys.executable, "-W", "error", "-m", "pytest", "-q"], cwd=place)
    assert pytested.status == 0, pytested.out
    assert "2 passed" in pytested.out


def test_without_pytest_it_says_where_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "install pytest" not in in_process(capsys, "init", tmp_path / "one").err
    monkeypatch.setattr("kafka_keyshared.cli.init.find_spec", lambda _: None)
    assert "python -m pip install pytest" in in_process(capsys, "init", tmp_path / "two").err


def test_a_handler_that_breaks_its_promise_fails_that_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(capsys, "init", tmp_path).status == 0
    app = tmp_path / "app.py"
    app.write_text(
        app.read_text("utf-8").replace("raise DeadLetter(", "raise ValueError("), "utf-8"
    )
    pytested = as_user(command=[sys.executable, "-m", "pytest", "-q"], cwd=tmp_path)
    assert pytested.status == 1
    assert "1 failed, 1 passed" in pytested.out


def test_what_it_writes_runs(
    embedded_cluster: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (topic, f"{topic}.dlq"):
        embedded_cluster.create_topic(name, 1)
    write(embedded_cluster, topic, [(b"a", b'{"amount": 1}'), (b"b", b"no JSON"), (b"a", b"[]")])
    where = ["-b", embedded_cluster.bootstrap, "-t", topic, "-g", "starter"]
    assert in_process(capsys, "init", tmp_path, *where).status == 0
    config = tmp_path / "keyshared.toml"
    with Running("run", f"{tmp_path / 'app.py'}:handle", "--config", config) as running:
        assert len(read_all(embedded_cluster, f"{topic}.dlq", 1)) == 1
        running.wait_for("caught up")
        assert running.end(signal.SIGTERM) == 0
        assert running.process.stdout is not None
        assert "{'amount': 1}" in running.process.stdout.read()
    assert committed(embedded_cluster, "starter", topic)[0] == 3


@pytest.mark.parametrize("there", [["app.py"], ["keyshared.toml", "test_app.py"]])
def test_it_writes_over_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: list[str]
) -> None:
    for name in there:
        (tmp_path / name).write_text("mine", "utf-8")
    ended = in_process(capsys, "init", tmp_path)
    assert ended.status == 2
    assert all(str(tmp_path / name) in ended.err for name in there)
    assert sorted(path.name for path in tmp_path.iterdir()) == there
    assert all((tmp_path / name).read_text("utf-8") == "mine" for name in there)


def test_a_place_that_cannot_be_written_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    ended = in_process(capsys, "init", tmp_path / "file" / "below")
    assert ended.status == 2
    assert "give a writable directory" in ended.err


@pytest.mark.parametrize("name", ['it"s', "a\\b", "^orders-.*"])
def test_any_name_is_written_so_that_it_can_be_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert in_process(capsys, "init", tmp_path, "-t", name).status == 0
    text = (tmp_path / "keyshared.toml").read_text("utf-8")
    assert tomllib.loads(text)["topics"] == [name]


def test_its_configuration_passes_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert in_process(capsys, "init", tmp_path).status == 0
    ended = in_process(capsys, "config", "check", "--config", tmp_path / "keyshared.toml")
    assert ended.status == 0, ended.err
    shown = in_process(capsys, "config", "show", "--config", tmp_path / "keyshared.toml", "--json")
    assert "orders-app" in json.dumps(json.loads(shown.out))
