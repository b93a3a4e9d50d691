"""SIGTERM and Ctrl-C while a run is at work: it leaves the group, and pods go on at once."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from kafka_keyshared.cli import spark_run
from kafka_keyshared.spark.driver import stop
from kafka_keyshared.spark.driver.group import refuse_active
from kafka_keyshared.spark.session import Session
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.batches import (
    Eventually,
    an_app,
    filled,
    folders,
    noted,
    noting,
    run_pod,
    typed_run,
)
from tests.support.cli import Ended

HANDLER = """
import threading
from pathlib import Path

OUT = Path({out!r})

def handle(record):
    number = int(record.value())
    with (OUT / f"{{record.partition()}}.txt").open("a") as file:
        file.write(f"{{record.key()!r}} {{number}} {{record.partition()}} {{record.offset()}}\\n")
    if number == {stays}:
        threading.Event().wait()
"""


@pytest.fixture
def typed(  # noqa: PLR0917
    session: Session,
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Ended]:
    """`keyshared spark run` as it is typed; but the Spark is the one that runs already."""
    monkeypatch.setattr(spark_run, "start", lambda _: nullcontext(session))

    def run(*arguments: object) -> Ended:
        more = ("-t", topic, "--workers", 4, *arguments)
        return typed_run(capsys, tmp_path, real_cluster, topic, *more)

    return run


def when(there: Callable[[], bool], *signals: signal.Signals) -> threading.Thread:
    """Send these signals to this process, once it is so."""

    def watch() -> None:
        pause = threading.Event()
        while not there():
            pause.wait(0.02)
        for each in signals:
            os.kill(os.getpid(), each)
            pause.wait(0.3)  # so that they are two, and not one that was sent twice

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def test_sigterm_ends_it_behind_the_batch_and_pods_have_the_rest_at_once(
    typed: Callable[..., Ended],
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    filled(real_cluster, topic, 300)
    pods, spark = folders(tmp_path)
    (tmp_path / "app.py").write_text(HANDLER.format(out=str(spark), stays=-1))
    term = when(lambda: bool(noted(spark)), signal.SIGTERM)
    ended = typed("--batch-offsets", 40)
    term.join()
    told = json.loads(ended.out)
    assert ended.status == 1, "not all is done that was there"
    assert (told["ended"], told["batches"]) == ("stopped", 1)
    assert told["left"] == 300 - told["records"]
    assert "stopping: a batch that runs is ended and committed first" in ended.err
    app = an_app(real_cluster, topic, noting(pods))
    refuse_active(app.conf)  # nobody's session has to end first
    rest = 300 - len(noted(spark))
    assert run_pod(app, lambda: len(noted(pods)) >= rest, eventually) == 0
    assert sorted(each[1] for each in noted(pods) + noted(spark)) == list(range(300)), "each once"


def test_ctrl_c_twice_gives_the_batch_up_and_commits_nothing_of_it(  # noqa: PLR0917
    typed: Callable[..., Ended],
    real_cluster: Cluster,
    topic: str,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stop, "AGAIN_AFTER", 0.0)
    filled(real_cluster, topic, 100)
    pods, spark = folders(tmp_path)
    (tmp_path / "app.py").write_text(HANDLER.format(out=str(spark), stays=50))
    both = [signal.SIGINT] * 2
    keys = when(lambda: 50 in {each[1] for each in noted(spark)}, *both)
    ended = typed()
    keys.join()
    assert (ended.status, ended.out) == (1, "")
    assert "stopped twice: the running batch is given up" in ended.err
    assert "Traceback" not in ended.err
    app = an_app(real_cluster, topic, noting(pods))
    refuse_active(app.conf)
    assert run_pod(app, lambda: len(noted(pods)) >= 100, eventually) == 0
    assert sorted(each[1] for each in noted(pods)) == list(range(100))
