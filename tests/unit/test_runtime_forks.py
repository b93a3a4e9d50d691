"""Handlers that fork: the child ends, the parent goes on, and each record runs once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAIT = 60.0

PREAMBLE = """
import os, sys
from queue import SimpleQueue
from kafka_keyshared.core.events import Ended, Failed, Slice
from kafka_keyshared.runtime.handlers import maker
from kafka_keyshared.runtime.threads import ThreadPool, WorkerSpec
from kafka_keyshared.testing import record

PARENT = os.getpid()

def note(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def work(handler, count=4):
    mailbox = SimpleQueue()
    pool = ThreadPool([WorkerSpec("default", 0, "worker-0", maker(handler))], mailbox)
    pool.start()
    records = [record("k%d" % number, b"", offset=number) for number in range(count)]
    pool.submit(Slice("default", 0, records))
    while not isinstance(report := mailbox.get(timeout=50), Ended):
        note("reported", type(report).__name__, report.record.offset())
    note("stopped", pool.stop(50), "parent", os.getpid() == PARENT)

def ran(item):
    note("ran", item.offset(), "in", "parent" if os.getpid() == PARENT else "child")
"""

IN_A_HANDLER = """
def handler(item):
    ran(item)
    if item.offset() == 1:
        pid = os.fork()
        if pid == 0:
            {child}
        else:
            note("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

work(handler)
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
@pytest.mark.parametrize(
    ("child", "status", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("sys.exit('no room')", 1, "a process forked in a handler on worker-0 ended: no room"),
        ("raise ValueError('in the child')", 1, "ValueError: in the child"),
        ("return", 1, "came back from it and ends here"),
        ("os._exit(5)", 5, ""),
    ],
)
def test_the_child_of_a_handler_ends_and_the_parent_runs_each_record_once(
    child: str, status: int, said: str
) -> None:
    lines, log = lines_of(IN_A_HANDLER.format(child=child))
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
from kafka_keyshared.errors import LeaseOverError
from kafka_keyshared.runtime.mailbox import Mailbox
from kafka_keyshared.runtime.members import PullMember
from kafka_keyshared.runtime.pull import PullPool

pool = PullPool(Mailbox())
member = PullMember(pool.join("worker-0"))
pool.start()
for number in range(2):
    pool.submit(Slice("default", 0, [record("a", b"", offset=number)]))
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
