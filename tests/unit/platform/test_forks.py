"""Handlers that fork: the child ends, the parent goes on, and each record runs once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WAIT = 60.0

PREAMBLE = """
import os, sys
from queue import SimpleQueue
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.events import Failed, SliceEnded
from kafka_keyshared.executors.handling.handlers import maker
from kafka_keyshared.executors.threads.pool import ThreadPool
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.testing import record
from tests.support.slices import slice_of

PARENT = os.getpid()

def note(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def work(handler, count=4):
    mailbox = SimpleQueue()
    pool = ThreadPool([WorkerSpec("default", 0, "worker-0", maker(handler))], mailbox, Clock())
    pool.start()
    records = [record("k%d" % number, b"", offset=number) for number in range(count)]
    slice_ = slice_of(*records)
    pool.submit(slice_)
    while not isinstance(report := mailbox.get(timeout=50), SliceEnded):
        note("reported", type(report).__name__, slice_.records[report.index].offset())
    note("stopped", pool.stop(50), "parent", os.getpid() == PARENT)

def ran(item):
    note("ran", item.offset(), "in", "parent" if os.getpid() == PARENT else "child")
"""

HANDLER = """
def handler(item):
    ran(item)
    if os.getpid() != PARENT:
        os._exit(99)  # as a worker it would never end, and the parent waits for it
    if item.offset() == 1:
        pid = os.fork()
        if pid == 0:
            {child}
        else:
            note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""

IN_A_HANDLER = f"{HANDLER}\nwork(handler)\n"

IN_A_COROUTINE = f"""{HANDLER}
import asyncio
from kafka_keyshared.executors.coroutines.asyncio_pool import TaskPool

async def waits_first(item):
    await asyncio.sleep(0)
    handler(item)

mailbox = SimpleQueue()
spec = WorkerSpec("default", 0, "worker-0", maker(waits_first, "asyncio"))
pool = TaskPool([spec], mailbox, Clock(), limit=2)
pool.start()
for number in range(4):
    pool.submit(slice_of(record("k%d" % number, b"", offset=number)))
ended = [mailbox.get(timeout=50) for _ in range(4)]
note("stopped", pool.stop(50), "parent", os.getpid() == PARENT)
"""


def lines_of(program: str) -> tuple[list[str], str]:
    """Run it in a process of its own; return what it printed and its log."""
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=True,
    )
    return done.stdout.splitlines(), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("program", [IN_A_HANDLER, IN_A_COROUTINE], ids=["thread", "coroutine"])
@pytest.mark.parametrize(
    ("child", "status", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no room')", 1, "a process forked in a handler on worker-0 ended: no room"),
        ("raise ValueError('in the child')", 1, "ValueError: in the child"),
        ("return", 1, "a process forked in a handler on worker-0 came back from it and ends here"),
        ("os._exit(5)", 5, ""),
    ],
)
def test_the_child_of_a_handler_ends_and_the_parent_runs_each_record_once(
    program: str, child: str, status: int, said: str
) -> None:
    lines, log = lines_of(program.format(child=child))
    assert lines == [
        "ran 0 in parent",
        "ran 1 in parent",
        f"status {status}",
        "ran 2 in parent",
        "ran 3 in parent",
        "stopped [] parent True",
    ]
    assert said in log
    assert said or not log


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_what_the_child_has_printed_is_written_when_it_ends() -> None:
    lines, _ = lines_of(IN_A_HANDLER.format(child="print('from the child'); sys.exit()"))
    assert lines.count("from the child") == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_what_makes_a_handler_never_becomes_a_worker() -> None:
    lines, log = lines_of(
        """
class Handler:
    def __init__(self):
        pid = os.fork()
        if pid:
            note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    def handle(self, item):
        ran(item)

work(Handler, count=1)
"""
    )
    assert lines == ["status 1", "ran 0 in parent", "stopped [] parent True"]
    assert "came back from it" in log


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_that_was_forked_before_may_have_a_pool_of_its_own() -> None:
    lines, _ = lines_of(
        """
pid = os.fork()
if pid:
    note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
else:
    work(lambda item: ran(item), count=1)
    os._exit(0)
"""
    )
    assert lines == ["ran 0 in child", "stopped [] parent False", "status 0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_member_gets_and_settles_nothing_in_a_child() -> None:
    lines, _ = lines_of(
        """
from kafka_keyshared.clock import Clock
from kafka_keyshared.errors import LeaseOverError
from kafka_keyshared.executors.mailbox import Mailbox
from kafka_keyshared.app.members import PullMember
from kafka_keyshared.executors.pull.pool import PullPool

pool = PullPool(Mailbox(), Clock())
member = PullMember(pool.join("worker-0"))
pool.start()
for number in range(2):
    pool.submit(slice_of(record("a", b"", offset=number)))
pulled = member.receive(50)
pid = os.fork()
if pid == 0:
    note("received", member.receive(50))
    try:
        pulled.ack()
    except LeaseOverError:
        note("the lease is over")
    os._exit(0)
note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
pulled.ack()
note("received", member.receive(50).offset())
"""
    )
    assert lines == ["received None", "the lease is over", "status 0", "received 1"]


AS_THE_OWNER = """
import logging
from kafka_keyshared import KeyShared
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from kafka_keyshared.client.kafka import KafkaClient
from kafka_keyshared.app.hooks import Hooks
from tests.support.live_cluster import client_conf, committed, write

logging.basicConfig(level="ERROR")
forked = []

def fork(*_):
    if not forked:
        forked.append(True)
        pid = os.fork()
        if pid:
            note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

def key_of(item):
    fork()
    return item.value()

def watched(name):
    method = getattr(KafkaClient, name)

    def call(*arguments):
        found = method(*arguments)
        if os.getpid() != PARENT:
            note(name, "in the child")
        return found

    return call

class Watched(KafkaClient):
    pass

for name in ("consume", "positions", "commit", "pause", "close"):
    setattr(Watched, name, watched(name))

def handler(item):
    ran(item)
    if item.offset() == 3:
        app.stop()

with EmbeddedCluster() as cluster:
    cluster.create_topic("t", 1)
    write(cluster, "t", [(b"k", b"%d" % number) for number in range(4)])
    conf = client_conf(cluster, "g")
    app = KeyShared(conf, ["t"], workers=1, hooks=Hooks(client=Watched), {option})
    app.handler(handler)
    status = app.run()
    at = committed(cluster, "g", "t")[0]
    note("stopped", status, "parent", os.getpid() == PARENT, "at", at)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("option", ["on_assign=fork", "key=key_of"])
def test_a_child_of_what_the_owner_calls_never_goes_on_as_the_owner(option: str) -> None:
    lines, log = lines_of(AS_THE_OWNER.replace("{option}", option))
    assert lines == [
        "status 1",
        *(f"ran {number} in parent" for number in range(4)),
        "stopped 0 parent True at 4",
    ]
    assert "a process forked in a callback or a key function came back from it and ends" in log


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_an_app_that_runs_is_refused_in_a_child_and_another_one_runs_there() -> None:
    lines, log = lines_of(
        """
import threading
from kafka_keyshared import KeyShared
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.live_cluster import client_conf, committed, write

def made(group, until):
    app = KeyShared(client_conf(cluster, group), ["t"], workers=1)

    @app.handler
    def handler(item):
        if item.offset() == 0:
            ran(item)
            until()

    return app

with EmbeddedCluster() as cluster:
    cluster.create_topic("t", 1)
    write(cluster, "t", [(b"k", b"v")])
    running = threading.Event()
    app = made("g", running.set)
    run = threading.Thread(target=app.run)
    run.start()
    assert running.wait(50)
    if pid := os.fork():
        note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        app.flush()
        app.stop()
        run.join()
        note("at", committed(cluster, "g", "t")[0])
    else:
        for call in (app.run, lambda: app.flush(1), lambda: app.scale(2, 1)):
            try:
                call()
            except ConfigError as error:
                note(str(error).replace(str(PARENT), "PARENT"))
        other = made("child", lambda: other.stop())
        note("and another", other.run())
        os._exit(0)
"""
    )
    why = (
        ": the app runs in process PARENT, and this one was forked from it: a Kafka client does "
        "not live on in a child; make an app of its own here, or start the process with spawn"
    )
    assert lines == [
        "ran 0 in parent",
        *(f"{call}{why}" for call in ("run()", "flush", "scale")),
        *("ran 0 in child", "and another 0"),
        *("status 0", "at 1"),
    ], log


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_members_of_a_split_consumer_fail_in_a_child_and_go_on_in_the_parent() -> None:
    lines, _ = lines_of(
        """
from kafka_keyshared import Consumer, split
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.support.live_cluster import client_conf, committed, write

with EmbeddedCluster() as cluster:
    cluster.create_topic("t", 1)
    write(cluster, "t", [(b"k", b"%d" % number) for number in range(2)])
    consumer = Consumer(client_conf(cluster, "g"))
    consumer.subscribe(["t"])
    members = split(consumer, 1)
    first = members[0].poll(50)
    pid = os.fork()
    if pid == 0:
        members[0].commit(first)
        try:
            note("polled", members[0].poll(50))
        except KeySharedError as error:
            note(error)
        os._exit(0)
    note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    members[0].commit(first)
    second = members[0].poll(50)
    note("received", second.offset())
    note("closed", members.close(), "at", committed(cluster, "g", "t")[0])
"""
    )
    assert lines[0].endswith("it belongs to the parent of this forked process")
    assert lines[1:] == ["status 0", "received 1", "closed 0 at 1"]
