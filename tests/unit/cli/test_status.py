"""``keyshared status``: a line and a status for scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kafka_keyshared.cli import status
from tests.support.cli import in_process
from tests.support.doctor_survey import blocked, instance

BLOCKED = {"lanes": {"blocked": 1}, "blocked": [blocked(7) | {"slot": 0x3F2A}]}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the instance says of itself."""
    said: dict[str, Any] = {}
    monkeypatch.setattr(status, "status_of", lambda url: instance(**said))
    return said


def test_a_healthy_instance_is_a_word_and_0(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    del told
    ended = in_process(capsys, "status")
    assert (ended.status, ended.out) == (0, "healthy\n")


def test_what_stands_still_is_named_with_what_to_do_and_3(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told |= BLOCKED
    ended = in_process(capsys, "status", "8787")
    assert ended.status == 3
    assert ended.out.startswith("a key of slot 0x3f2a is blocked by orders-1@7 for 12 min: Key")
    assert ended.out.count("\n") == 1, "a line, whatever it has to say"
    assert "to do: fix the handler and restart" in ended.err
    assert "docs/reference/diagnosis.md#key-blocked" in ended.err
    assert "key 'customer-7'" in in_process(capsys, "status", "--show-keys").out


def test_what_passes_by_itself_is_said_and_0(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told["rebalance_seconds"] = 9.0
    ended = in_process(capsys, "status")
    assert ended.status == 0
    assert "a rebalance has been in progress for 9 s" in ended.out


def test_a_script_gets_every_finding(
    told: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told |= BLOCKED
    ended = in_process(capsys, "status", "--json")
    found = json.loads(ended.out)
    assert (ended.status, found["healthy"], found["number"]) == (3, False, 12)
    assert found["findings"][0]["code"] == "key-blocked"
    assert yaml.safe_load(in_process(capsys, "status", "-o", "yaml").out) == found
