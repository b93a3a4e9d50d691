"""``keyshared status --group``: a line for each instance, and a status for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kafka_keyshared.observability.admin_client import AdminClient
from kafka_keyshared.observability.web.group.view import GroupView, Heard, Looker, group_view
from tests.support.cli import Ended, in_process
from tests.support.instance_reports import GROUP, heard, seen

Told = Callable[..., Ended]

BLOCKED: dict[str, Any] = {
    "level": "fail",
    "code": "key-blocked",
    "text": "a key is blocked",
    "healthy": False,
}


@pytest.fixture
def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Show a group on a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")

    def told(view: GroupView, *arguments: object) -> Ended:
        monkeypatch.setattr(AdminClient, "group", lambda _: view)
        return in_process(capsys, "status", "--group", "8788", *arguments)

    return told


def rows(ended: Ended) -> list[list[str]]:
    """The table's cells, without its head."""
    lines = [line for line in ended.out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_a_group_that_is_well_is_a_line_for_each_and_0(told: Told) -> None:
    ended = told(
        seen(heard("a", 0, 1, does=12.5), heard("b", 2, ago=3.0, does=150.0, backlog=1_200), size=3)
    )
    assert ended.status == 0
    assert rows(ended) == [
        ["a (asked)", "running", "2", "12.5", "0", "0.0 s ago", "healthy"],
        ["b", "running", "1", "150.0", "1,200", "3.0 s ago", "healthy"],
    ]
    assert ended.out.endswith("\nhealthy: 2 instances\n")
    assert ended.err == ""


@pytest.mark.parametrize(
    ("those", "said"),
    [
        ([heard("a", 0), heard("b", 1, **BLOCKED)], "a key is blocked"),
        # Others have what it had, so the group gets on; it is silent all the same.
        ([heard("a", 0, 1), heard("b", 1, ago=60.0)], "silent for 60 s"),
        (
            [heard("a", 0), heard("b", 1, ago=60.0)],
            "partition that no other instance has taken over",
        ),
        ([heard("a", 0, 1), heard("b", 1)], "both say that they hold orders-1"),
    ],
)
def test_one_that_is_unhealthy_or_silent_is_3(those: list[Heard], said: str, told: Told) -> None:
    ended = told(seen(*those))
    assert ended.status == 3
    assert said in ended.out
    assert len(rows(ended)) == 2


def test_what_is_only_to_be_watched_is_said_and_0(told: Told) -> None:
    those = [heard("a", 0, does=200.0), heard("b", 1, does=10.0, backlog=9_000)]
    ended = told(seen(*those, heard("c", software="1.1")))
    assert ended.status == 0
    assert "healthy; settles 10.0 records a second for each partition" in ended.out
    assert "they are of different releases" in ended.err, "what else there is to say"


def test_who_cannot_hear_all_does_not_know_that_all_are_well(told: Told) -> None:
    looker = Looker(GROUP, "a-1-0", "a", "topic", "reports", troubles=("may not read 'reports'",))
    ended = told(group_view([heard("a", 0)], {}, looker))
    assert ended.status == 3
    assert "some instances may be missing: may not read 'reports'" in ended.out
    assert "may not read 'reports'" in ended.err


def test_without_a_setting_nothing_is_known_and_it_says_what_to_set(told: Told) -> None:
    ended = told(group_view((), {}, Looker(GROUP, "", "a")))
    assert (ended.status, ended.out) == (1, "")
    assert "no group view configured: set group_view_topic" in ended.err


def test_a_script_gets_the_whole_view(told: Told) -> None:
    view = seen(heard("a", 0), heard("b", 1, **BLOCKED))
    ended = told(view, "--json")
    found: dict[str, Any] = json.loads(ended.out)
    assert ended.status == 3
    assert msgspec.convert(found, GroupView, strict=False) == view
    assert yaml.safe_load(told(view, "-o", "yaml").out) == found


def test_the_token_is_shown_to_an_instance_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked: list[Any] = []

    def group(client: AdminClient) -> GroupView:
        asked.append(client._token)
        return seen(heard("a", 0))

    monkeypatch.setattr(AdminClient, "group", group)
    (tmp_path / "token").write_text("a-token-of-this-test\n")
    shown = ("status", "--group", "http://there:8788", "--token-file", tmp_path / "token")
    assert in_process(capsys, *shown).status == 0
    assert in_process(capsys, "status", "--group").status == 0
    assert asked == ["a-token-of-this-test", None]
