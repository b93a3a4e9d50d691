"""The lines that the log has of a diagnosis: news, once it has lasted, and not many."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafka_keyshared.runtime.diagnosis_log import AGAIN_WITHIN, LINE_EVERY, STEADY, DiagnosisLog
from tests.support.doctor_survey import blocked, instance, rate

BLOCKED = {"lanes": {"blocked": 1}, "blocked": [blocked(7) | {"slot": 0x3F2A}]}
OTHER = {"lanes": {"blocked": 1}, "blocked": [blocked(8) | {"slot": 0x3F2A}]}


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka_keyshared.diagnosis")


def noted(diagnosed: DiagnosisLog, *looks: tuple[float, dict[str, Any]]) -> None:
    for now, told in looks:
        diagnosed.note(instance(**told), now)


def test_it_is_told_once_it_has_been_so_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, (0.0, BLOCKED), (STEADY - 0.1, BLOCKED))
    assert not caplog.records
    noted(diagnosed, (STEADY, BLOCKED), (STEADY + 60.0, BLOCKED))
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert "is blocked by orders-1@7" in line.getMessage()
    assert "[key-blocked]" in line.getMessage()
    assert "customer-7" not in line.getMessage(), "keys are hidden"
    assert line.__dict__["code"] == "key-blocked"
    assert line.__dict__["page"].startswith("reference/diagnosis.md")


def test_what_comes_and_goes_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, *((at * 1.0, BLOCKED if at % 2 else {}) for at in range(60)))
    assert not caplog.records


def test_there_is_at_most_a_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    for at in range(120):
        # Each for 3 s: long enough to be told.
        noted(diagnosed, (at * 1.0, BLOCKED if at // 3 % 2 else OTHER))
    assert 2 <= len(caplog.records) <= 120 / LINE_EVERY + 1


def test_that_it_is_over_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, (0.0, {}), (10.0, {}))
    assert not caplog.records, "nothing was wrong before"
    noted(diagnosed, (20.0, BLOCKED), (22.0, BLOCKED), (40.0, {}), (42.0, {}), (60.0, {}))
    assert [line.levelname for line in caplog.records] == ["ERROR", "INFO"]
    assert caplog.records[-1].getMessage() == "no finding is left"


def test_what_passes_by_itself_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    turning = {"rebalance_seconds": 9.0}
    noted(diagnosed, (0.0, turning), (STEADY, turning))
    assert [line.levelname for line in caplog.records] == ["WARNING"]


# --- high failure rates ---


def failing(**more: Any) -> dict[str, Any]:
    return {"own": {"failure_rates": [rate("attempts", **more)]}}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{each.levelname} {each.getMessage()}" for each in caplog.records]


def test_a_high_rate_is_logged_when_it_begins_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, (0.0, {}), *((at / 2, failing(seconds=at / 2)) for at in range(1, 400)))
    (begins,) = lines(caplog)
    assert begins.startswith("ERROR 97% of the attempts in the last 8 s failed (388 of 400)")
    assert "ConnectionError at app.py:9" in begins
    assert "[most-attempts-fail]" in begins
    assert "To do: restore the dependency" in begins
    caplog.clear()
    noted(diagnosed, *((200 + at / 2, {}) for at in range(400)))
    (ends,) = lines(caplog)
    assert ends == (
        "WARNING subscription default: attempts succeed again after 3 min; 2,000 failed or were "
        "delayed until then [most-attempts-fail]"
    )


def test_a_high_rate_is_logged_whatever_else_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, (0.0, BLOCKED), (STEADY, BLOCKED), (60.0, BLOCKED | failing()))
    assert [each.__dict__["code"] for each in caplog.records] == [
        "key-blocked",
        "most-attempts-fail",
    ]


def test_a_rate_that_comes_and_goes_is_no_flood(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, *((at * 1.0, failing() if at // 5 % 2 else {}) for at in range(600)))
    assert 2 <= len(caplog.records) <= 2 * 600 / AGAIN_WITHIN


def test_a_stop_is_no_end_of_a_high_rate(caplog: pytest.LogCaptureFixture) -> None:
    diagnosed = DiagnosisLog(keys=False)
    noted(diagnosed, (0.0, failing()), (5.0, {"phase": "stopping"}))
    assert len(caplog.records) == 1


def test_a_rate_that_becomes_a_failure_is_logged_once_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    diagnosed = DiagnosisLog(keys=False)
    levels = ("warn", "warn", "fail", "fail", "warn", "fail")
    noted(diagnosed, *((at * 1.0, failing(level=each)) for at, each in enumerate(levels)))
    assert [line.levelname for line in caplog.records] == ["WARNING", "ERROR"]
