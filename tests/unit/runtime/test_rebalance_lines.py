"""A rebalance is one line of the log: what moved, and what it cost."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.logs import JsonFormatter
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, record


@pytest.fixture
def stage() -> Stage:
    stage = Stage(revoke_deadline=0.5)
    stage.client.stored[P0] = stage.client.stored[P1] = CommittedOffset(0, None)
    stage.fill(*(record(offset) for offset in range(5)), record(0, at=P1))
    return stage


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    """The lines of an event, as a collector gets them."""
    made = [json.loads(JsonFormatter().format(each)) for each in caplog.records]
    return [each for each in made if each.get("event") == event]


def test_an_assignment_names_every_partition(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stage.assign(P1, P0)
    (line,) = lines(caplog, "assigned")
    assert line["message"].startswith("assigned orders-0, orders-1 in 0.0")
    assert line["partitions"] == ["orders-0", "orders-1"]
    assert (line["logger"], line["seconds"], line["waiting"]) == (
        "kafka_keyshared.rebalance",
        0.0,
        0,
    )


def test_a_revoke_says_what_was_drained_and_what_was_taken_back_of_what_goes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stage.assign(P0, P1)
    stage.step()
    (worker, *_) = [each for each in stage.pool.workers.values() if each.start() is not None]

    def end() -> None:
        if worker.running is first:
            worker.finish()
            worker.start()  # that of the partition that stays

    first, stage.on_wait = worker.running, end
    stage.client.callbacks["revoke"]([P0])
    (line,) = lines(caplog, "revoked")
    assert line["message"].endswith(": 1 record drained, 4 taken back")
    assert (line["drained"], line["taken_back"], line["left"]) == (1, 4, 0)
    assert line["partitions"] == ["orders-0"]
    assert 0 < line["seconds"] < 0.5


def test_a_revoke_at_its_deadline_says_what_is_left(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stage.assign(P0)
    stage.step()
    stage.worker().start()
    stage.client.callbacks["revoke"]([P0])
    (line,) = lines(caplog, "revoked")
    assert (line["drained"], line["taken_back"], line["left"]) == (0, 4, 1)
    assert "past the deadline, may run again: 1 running (orders-0@0)" in line["message"]


def test_a_loss_says_what_is_let_go(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage.assign(P0, P1)
    stage.step()
    stage.client.callbacks["lost"]([P0])
    (line,) = lines(caplog, "lost")
    assert (line["level"], line["partitions"], line["let_go"]) == ("warning", ["orders-0"], 5)
