"""``keyshared top``: what its screen shows of an instance, driven as a person does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest
from textual.widgets import DataTable, Static

from kafka_keyshared.cli.tui import Screen, in_a_line
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.web.snapshot import totals
from tests.support.cli import in_process
from tests.support.doctor_survey import blocked, instance, partition, worker

BLOCKED = {"lanes": {"blocked": 1}, "blocked": [blocked(7) | {"slot": 0x3F2A}]}
SIZE = (160, 40)


def rows(screen: Screen, name: str) -> list[list[str]]:
    table = screen.query_one(f"#{name}", DataTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


def text(screen: Screen, name: str) -> str:
    return str(screen.query_one(f"#{name}", Static).render())


def seen(read: Callable[[], Any], look: Callable[[Screen], Any], *, keys: bool = False) -> Any:
    """What ``look`` finds once the screen has been drawn."""

    async def drive() -> Any:
        screen = Screen(read, where="127.0.0.1:8787", keys=keys)
        async with screen.run_test(size=SIZE) as pilot:
            await screen.workers.wait_for_complete()
            await pilot.pause()
            found = look(screen)
            await pilot.press("q")
        assert screen.return_code == 0, "q ends it"
        return found

    return asyncio.run(drive())


def test_the_diagnosis_stands_first_and_numbers_are_those_of_the_console() -> None:
    status = instance(partitions=[partition(1, 23)], workers=[worker(0), worker(1, 17, 4.0)])

    def look(screen: Screen) -> Any:
        return text(screen, "diagnosis"), text(screen, "totals"), rows(screen, "workers")

    first, sums, workers = seen(lambda: status, look)
    assert first == "OK  healthy"
    assert in_a_line(totals(status)) in sums
    assert "lag 23" in sums
    assert [row[0] for row in workers] == ["worker-0", "worker-1"]
    assert workers[1][6:] == ["orders-1@17", "4.0 s"]


def test_partitions_are_rows_with_lag_and_backlog() -> None:
    status = instance(partitions=[partition(1, 23)])
    (row,) = seen(lambda: status, lambda screen: rows(screen, "partitions"))
    assert row == ["orders-1", "17", "40", "23", "0", "0.0 s", ""]


def test_what_stands_still_is_named_with_what_to_do_and_the_key_hidden() -> None:
    status = instance(**BLOCKED)
    told = seen(lambda: status, lambda screen: text(screen, "diagnosis"))
    assert told.startswith("STANDS STILL  a key of slot 0x3f2a is blocked by orders-1@7")
    assert "to do: " in told
    named = seen(lambda: status, lambda screen: text(screen, "diagnosis"), keys=True)
    assert "key 'customer-7'" in named


def test_an_instance_that_does_not_answer_is_said() -> None:
    def gone() -> Any:
        raise KeySharedError("nobody is there [x]")

    told = seen(gone, lambda screen: text(screen, "diagnosis"))
    assert told == "no answer: nobody is there [x]"


def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "kafka_keyshared.cli.tui", raising=False)
    monkeypatch.setitem(sys.modules, "textual", None)
    ended = in_process(capsys, "top")
    assert ended.status != 0
    assert "pip install 'kafka-keyshared[tui]'" in ended.err


def test_without_an_instance_nothing_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(self: Any) -> Any:
        raise KeySharedError("no answer")

    monkeypatch.setattr(AdminClient, "status", refuses)
    ended = in_process(capsys, "top")
    assert (ended.status, ended.err) == (1, "keyshared: no answer\n")
