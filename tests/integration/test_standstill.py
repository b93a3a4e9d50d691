"""A process that was stopped, or held by a C call, says afterwards for how long and what ran."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from kafka_keyshared.runtime.standstill import HELD
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.support.cli import Running
from tests.support.live_cluster import write

HANDLER = """
import ctypes
import threading


def handle(record):
    if record.key() == b"lock":
        ctypes.PyDLL(None).sleep(8)  # a C call that keeps the interpreter lock
    if record.key() == b"long":
        threading.Event().wait(600)
"""


def test_a_process_that_was_stopped_says_for_how_long_and_what_ran(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(HANDLER)
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"long", b"v")])
    names = ("-b", embedded_cluster.bootstrap, "-t", topic, "-g", topic, "--from-beginning")
    with Running("run", f"{tmp_path}/app.py:handle", *names) as run:
        run.wait_for("1 record running")
        run.process.send_signal(signal.SIGSTOP)
        threading.Event().wait(HELD + 2.0)  # the time for which it is stopped is what it is about
        run.process.send_signal(signal.SIGCONT)
        line = run.wait_for("stood still")
        assert "the process stood still for " in line
        assert "hardly any CPU: it was stopped, paused with its machine" in line
        assert f"records that ran: {topic}-0@0 on worker-" in line


def test_a_c_call_that_keeps_the_interpreter_lock_is_said_with_its_record(
    embedded_cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(HANDLER)
    embedded_cluster.create_topic(topic, 1)
    write(embedded_cluster, topic, [(b"lock", b"v")])
    names = ("-b", embedded_cluster.bootstrap, "-t", topic, "-g", topic, "--from-beginning")
    with Running("run", f"{tmp_path}/app.py:handle", *names) as run:
        line = run.wait_for("stood still")
        assert "the process stood still for " in line
        assert f"records that ran: {topic}-0@0 on worker-" in line
        run.wait_for("caught up")
        assert run.end(signal.SIGTERM) == 0, run.err
