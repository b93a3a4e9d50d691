"""Every test has an end, also one that hangs: proven with hanging tests in a run of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any, cast

import pytest

from tests import reaper
from tests.budgets import read_budgets, read_seconds
from tests.conftest import Eventually
from tests.support.planted_run import planted_run
from tests.tidy.sources import ROOT
from tests.timeouts import TimeoutPlugin

NO_PROC = "there is no /proc, so processes are not found by their mark: run it on Linux"
SECONDS = 4
"""A time-out that no run reaches unless it hangs: at most a process is started in these tests."""


def options() -> dict[str, Any]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, Any] = table["tool"]["pytest"]["ini_options"]
    return found


def run(place: Path, text: str, **changed: object) -> subprocess.CompletedProcess[str]:
    """Run tests with the options of this run, some changed, in a process of their own."""
    table = {**options(), **changed}
    settings = "".join(f"{name} = {table[name]}\n" for name in ("timeout", "timeout_method"))
    (place / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{settings}")
    (place / "pyproject.toml").write_text("")
    (place / "test_planted.py").write_text(textwrap.dedent(text))
    return planted_run(place, "-p", "tests.timeouts", "-p", "no:cacheprovider")


def test_a_hanging_test_fails_with_the_stacks_of_all_threads_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    hanging = """
        import subprocess, sys, threading

        CHILD = "import os, time; open('child', 'w').write(str(os.getpid())); time.sleep(600)"

        def wait_in_a_thread():
            threading.Event().wait()

        def test_that_hangs():
            threading.Thread(target=wait_in_a_thread, daemon=True).start()
            subprocess.run([sys.executable, "-c", CHILD])

        def test_behind_it(): ...
    """
    ended = run(tmp_path, hanging, timeout=SECONDS)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in said
    assert f"Timeout (>{SECONDS}.0s) from pytest-timeout" in said
    assert "in wait_in_a_thread" in said
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), 0)


def test_a_test_that_swallows_its_time_out_ends_the_run(tmp_path: Path) -> None:
    """As a pool does, for which every exception is a failed attempt."""
    swallowing = """
        import threading

        def test_that_swallows():
            try:
                threading.Event().wait()
            except BaseException:
                threading.Event().wait()
    """
    ended = run(tmp_path, swallowing, timeout=SECONDS)
    assert ended.returncode == 1
    assert f"Timeout (0:00:{2 * SECONDS:02})!" in ended.stderr
    assert "in test_that_swallows" in ended.stderr


def test_a_thread_that_hangs_and_is_no_daemon_does_not_keep_the_process(tmp_path: Path) -> None:
    script = """
        import threading
        from tests.timeouts import TimeoutPlugin

        def hang():
            threading.Event().wait()

        threading.Thread(target=hang).start()
        TimeoutPlugin({}, exit_seconds=1).pytest_unconfigure()
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 1
    assert "in hang" in ended.stderr


@pytest.mark.skipif(not (reaper.PROC / "self" / "environ").exists(), reason=NO_PROC)
@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_what_a_run_leaves_behind_does_not_survive_it(end: str, eventually: Eventually) -> None:
    script = f"""
        import os, signal, subprocess, sys
        from tests import reaper

        reaper.watch(grace=0.5)
        sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
        again = f"import subprocess; print(subprocess.Popen({{sleeping}}).pid, flush=True); input()"
        child = subprocess.Popen([sys.executable, "-c", again], stdout=-1, stdin=-1, text=True)
        print(child.pid, child.stdout.readline(), flush=True)
        {end}
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode != 0
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2, ended
    eventually(lambda: not any(map(is_running, pids)), 60.0)


def is_running(pid: int) -> bool:
    try:
        # One that nobody has waited for is over too.
        return (reaper.PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Item:
    """A collected test, as far as the plug-in looks at one."""

    def __init__(self, nodeid: str, own: float | None = None) -> None:
        self.nodeid = nodeid
        self.marks: list[pytest.MarkDecorator] = []
        if own is not None:
            self.add_marker(pytest.mark.timeout(own))

    def get_closest_marker(self, name: str) -> pytest.MarkDecorator | None:
        return next((each for each in self.marks if each.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark)


def test_a_suite_has_its_own_time_out_and_a_test_may_have_another() -> None:
    items = [
        Item("tests/chaos/test_a.py::test_x"),
        Item("tests/chaos/test_a.py::test_y", own=7),
        Item("tests/unit/test_b.py::test_z"),
    ]
    TimeoutPlugin({"chaos": 300.0}).pytest_collection_modifyitems(cast("list[pytest.Item]", items))
    assert [[mark.args for mark in each.marks] for each in items] == [[(300.0,)], [(7,)], []]


def test_every_time_out_is_one_of_a_suite_and_above_the_others() -> None:
    timeouts = read_seconds(ROOT / "pyproject.toml", "timeouts")
    assert timeouts.keys() <= read_budgets(ROOT / "pyproject.toml").keys()
    assert min(timeouts.values()) > options()["timeout"]


def test_this_run_uses_them(request: pytest.FixtureRequest) -> None:
    config = request.config
    assert float(config.getini("timeout")) == options()["timeout"]
    assert config.pluginmanager.has_plugin("timeout")
    assert reaper.VARIABLE in os.environ or not reaper.PROC.exists()
