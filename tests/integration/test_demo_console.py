"""``keyshared demo --console`` and ``--story``: what they say, and what the console has then."""

from __future__ import annotations

import os
import signal

import pytest

from kafka_keyshared.lab.demo import story
from kafka_keyshared.lab.demo.story import CHAPTERS, Story
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.diagnosis import judge
from tests.conftest import Eventually
from tests.support.cli import Running

FAST = 0.3
"""Seconds after which each of its causes is one."""


def test_each_chapter_is_named_by_the_diagnosis_and_over_when_that_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("SLOW", "DRAINING", "REBALANCING"):
        monkeypatch.setattr(judge, name, FAST)
    said: list[str] = []
    shown: list[list[str]] = []

    def tell(line: str) -> None:
        said.append(line)
        if line.startswith("   -> "):
            shown.append([each.code for each in console().diagnosis().findings])
        elif line.startswith("\nThe end."):
            assert console().status().group == "story", "it is still open"
            os.kill(os.getpid(), signal.SIGINT)

    def console() -> AdminClient:
        (line,) = [each for each in said if each.startswith("Console: ")]
        return AdminClient(line.removeprefix("Console: "))

    told = Story(tell, console=True, pace=0.0, session_ms=4_000).run()
    assert [(each.chapter, each.code) for each in told] == [each[:2] for each in CHAPTERS]
    assert [each.code for each in told] == [
        "key-blocked",
        "handler-slow",
        "slot-draining",
        "rebalance-in-progress",
    ]
    blocked, slow, draining, _ = (each.sentence for each in told)
    assert blocked.startswith(f"key '{story.BROKEN}' is blocked by orders-")
    assert f"(key '{story.SLOW}') runs long" in slow
    assert "has been draining at worker-" in draining
    for each, codes in zip(told, shown, strict=True):
        assert each.code in codes, "the console shows it meanwhile"
        assert f"   -> {each.sentence} [{each.code}]" in said


def test_the_console_is_live_while_the_year_runs_and_stays_open_at_the_end(
    eventually: Eventually,
) -> None:
    with Running("demo", "--console", "--json", "--records", 20_000) as demo:
        console = AdminClient(demo.wait_for("Console: ").removeprefix("Console: "))
        first = console.snapshot()
        assert (first.status.phase, first.about.topics) == ("running", ("flights",))
        demo.wait_for("The console stays open")
        eventually(lambda: (sums := console.snapshot().totals).ok > 0 == sums.held, 60)
        assert demo.process.poll() is None
        assert demo.end(signal.SIGINT) == 0, "then the judge checks"
