"""What the benches share: children that end badly, pairs, and the client's settings."""

from __future__ import annotations

import pytest

from kafka_keyshared.config import DEFAULTS
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench.child import ReadTask, StallDetector, Stalled, conf_for
from kafka_keyshared.lab.bench.common import MeasuredProcess, group_of, run_child, sides_of
from kafka_keyshared.lab.bench.latency_side import Delays
from tests.support.cli import in_process


def reading(side: str) -> ReadTask:
    made = {"side": side, "bootstrap": "x:1", "topic": "t", "group": "g"}
    return ReadTask(**made)  # type: ignore[arg-type]


def test_a_child_that_dies_before_it_is_ready_is_reported(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with (
        MeasuredProcess("latency_side", {"side": "neither"}, Delays, "bare side") as child,
        pytest.raises(KeySharedError, match="the bare side ended with status 1"),
    ):
        child.await_ready()
    assert "neither" in capfd.readouterr().err


def test_a_child_without_a_result_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeySharedError, match="the producer ended with status 1"):
        run_child("paced", {"records": "many"}, Delays, "producer")
    assert "ValidationError" in capfd.readouterr().err


def test_both_sides_get_the_client_settings_that_the_package_chooses() -> None:
    bare, layer = conf_for(reading("bare")), conf_for(reading("keyshared"))
    assert bare == layer
    assert DEFAULTS.items() <= bare.items()


def test_the_sides_take_turns_at_going_first() -> None:
    assert [sides_of(number)[0] for number in range(4)] == ["bare", "keyshared"] * 2
    assert all(set(sides_of(number)) == {"bare", "keyshared"} for number in range(4))
    assert group_of("bare") != group_of("bare")


def test_patience_ends_when_a_count_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 10.0
    monkeypatch.setattr("kafka_keyshared.lab.bench.child.time.monotonic", lambda: now)
    patience = StallDetector()
    now = 69.0
    patience.check(1, "arrived")
    now = 129.0
    patience.check(1, "arrived")
    now = 129.5
    with pytest.raises(Stalled, match="nothing arrived for 60 s after 1 records"):
        patience.check(1, "arrived")
    assert patience.still_for(2) == 0.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("latency", "--rate", 0), "--rate 0"),
        (("latency", "--warmup", 30), "--warmup 30"),
        (("latency", "--workers", "thread:0"), "at least 1 worker"),
        (("fair", "--hot-share", 1), "--hot-share 1"),
        (("fair", "--workers", "thread:0"), "at least 1 worker"),
        (("skew", "--sleep-ms", 0), "--sleep-ms 0"),
        (("skew", "--distributions", "zipf"), "--distributions zipf"),
        (("skew", "--workers", "asyncio:8"), "give thread:8"),
        (("scale", "--threads", "2,many"), "--threads 2,many"),
        (("scale", "--parts", "sleep,walk"), "--parts sleep,walk"),
        (("scale", "--sleep-threads", 20_000), "the maximum is 10000"),
        (("stuck", "--stuck", 0), "--stuck 0"),
        (("stuck", "--workers", "thread:2,fibre:2"), "fibre:2"),
        (("memory", "--keys", 10), "--keys 10"),
        (("memory", "--workers", "fibre:2"), "fibre:2"),
        (("idle", "--seconds", 0), "--seconds 0"),
        (("idle", "--workers", "none"), "none"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], said: str
) -> None:
    ended = in_process(capsys, "bench", *arguments)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""
