"""Routings that cannot be are refused by name, the same way in a program, a file and by a flag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared import KeyShared
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from tests.support.cli import in_process
from tests.support.offline_instance import CONF

OVERLAP = r"range 0..99 of worker 'a' and 50..199 of worker 'b' overlap in 50..99: a slot has one"

CANNOT_BE: dict[str, tuple[dict[str, Any], str, str]] = {
    "ranges that overlap": (
        {"routing": "sticky", "on_unmatched": "hold", "ranges": {"a": "0-99", "b": "50-199"}},
        'routing = "sticky"\non_unmatched = "hold"\n[ranges]\na = "0-99"\nb = "50-199"\n',
        OVERLAP,
    ),
    "ranges of one worker that overlap": (
        {"routing": "sticky", "on_unmatched": "hold", "ranges": {"a": "0-99,50-199"}},
        'routing = "sticky"\non_unmatched = "hold"\n[ranges]\na = "0-99,50-199"\n',
        "ranges of worker 'a': ",
    ),
    "an inverted range": (
        {"routing": "sticky", "on_unmatched": "hold", "ranges": {"a": "99-0"}},
        'routing = "sticky"\non_unmatched = "hold"\n[ranges]\na = "99-0"\n',
        "ranges of worker 'a': the range 99-0 is inverted",
    ),
    "a range out of bounds": (
        {"routing": "sticky", "on_unmatched": "hold", "ranges": {"a": "0-65536"}},
        'routing = "sticky"\non_unmatched = "hold"\n[ranges]\na = "0-65536"\n',
        "ranges of worker 'a': the range 0-65536 is out of bounds",
    ),
    "a weight of 0": (
        {"weights": {"worker-0": 0}},
        "[weights]\nworker-0 = 0\n",
        "weights={'worker-0': 0",
    ),
    "a weight below 0": (
        {"weights": {"worker-0": -1.5}},
        "[weights]\nworker-0 = -1.5\n",
        "weights={'worker-0': -1.5",
    ),
    "a weight of a worker that there is not": (
        {"weights": {"worker-9": 2.0}},
        "[weights]\nworker-9 = 2.0\n",
        "has a weight for 'worker-9' and no such worker",
    ),
    "exclusive with ranges": (
        {"routing": "exclusive", "ranges": {"a": "0-99"}},
        'routing = "exclusive"\n[ranges]\na = "0-99"\n',
        "ranges are given and routing='exclusive' takes none",
    ),
    "exclusive with filters": (
        {"routing": "exclusive", "filters": {"worker-0": ["a*"]}},
        'routing = "exclusive"\n[filters]\nworker-0 = ["a*"]\n',
        "filters are given for worker-0 and routing='exclusive' takes none",
    ),
    "exclusive with drop": (
        {"routing": "exclusive", "on_exhausted": "drop"},
        'routing = "exclusive"\non_exhausted = "drop"\n',
        "on_exhausted='drop' goes on behind a record that was not done, and the routing",
    ),
    "exclusive with dead letters": (
        {"routing": "exclusive", "on_exhausted": "dead_letter", "dlq": True},
        'routing = "exclusive"\non_exhausted = "dead_letter"\ndlq = true\n',
        "on_exhausted='dead_letter' goes on behind a record that was not done, and the routing",
    ),
    "exclusive with weights": (
        {"routing": "exclusive", "weights": {"worker-0": 2.0}},
        'routing = "exclusive"\n[weights]\nworker-0 = 2.0\n',
        "weights are given and routing='exclusive' takes none",
    ),
}

BY_FLAG: dict[str, tuple[str, tuple[str, ...]]] = {
    "exclusive with ranges": ('[ranges]\na = "0-99"\n', ("--routing", "exclusive")),
    "exclusive with filters": ('[filters]\nworker-0 = ["a*"]\n', ("--routing", "exclusive")),
    "exclusive with drop": ("", ("--routing", "exclusive", "--on-exhausted", "drop")),
    "exclusive with dead letters": (
        "",
        ("--routing", "exclusive", "--on-exhausted", "dead_letter", "--dlq", "auto"),
    ),
    "exclusive with weights": ("[weights]\nworker-0 = 2.0\n", ("--routing", "exclusive")),
}

COMPLETE = ("-b", "localhost:9", "-g", "g", "-t", "orders", "--workers", "2")


@pytest.fixture
def handler(tmp_path: Path) -> str:
    path = tmp_path / "handlers.py"
    path.write_text("def handle(record): ...\n")
    return f"{path}:handle"


@pytest.mark.parametrize("what", CANNOT_BE)
def test_in_a_program_it_is_refused_at_the_call(what: str) -> None:
    given, _, said = CANNOT_BE[what]
    with pytest.raises(ConfigError) as refused:
        KeyShared(CONF, ["orders"], workers=2, **given)
    assert said in str(refused.value)


@pytest.mark.parametrize("what", CANNOT_BE)
def test_in_a_file_it_is_refused_before_anything_is_asked_for(
    what: str, handler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, said = CANNOT_BE[what]
    (tmp_path / "settings.toml").write_text(text)
    file = ("--config", str(tmp_path / "settings.toml"))
    ended = in_process(capsys, "run", handler, *COMPLETE, *file)
    assert (ended.status, ended.out) == (2, "")
    assert said in " ".join(ended.err.split())


@pytest.mark.parametrize("what", BY_FLAG)
def test_by_a_flag_it_is_refused_too(
    what: str, handler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, flags = BY_FLAG[what]
    (tmp_path / "settings.toml").write_text(text)
    file = ("--config", str(tmp_path / "settings.toml"))
    ended = in_process(capsys, "run", handler, *COMPLETE, *file, *flags)
    assert (ended.status, ended.out) == (2, "")
    assert CANNOT_BE[what][2] in " ".join(ended.err.split())


def test_a_name_that_two_workers_would_have_is_refused_wherever_names_are_given(
    handler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"subscription 'default': .*'a'"):
        SubscriptionSettings(workers=("a", "b", "a")).check()
    app = KeyShared(CONF, ["orders"], workers="pull")
    app.join("a")
    with pytest.raises(ConfigError, match=r"join\('a'\): give each member a name of its own"):
        app.join("a")
    (tmp_path / "settings.toml").write_text('[ranges]\na = "0-9"\na = "10-19"\n')
    file = ("--config", str(tmp_path / "settings.toml"))
    ended = in_process(capsys, "run", handler, *COMPLETE, *file)
    assert ended.status == 2
    assert "settings.toml" in ended.err
    assert "not TOML" in ended.err
    twice = ("--range", "a=0-9", "--range", "a=10-19")
    ended = in_process(capsys, "routing", "show", "--routing", "sticky", *twice)
    assert ended.status == 2
    assert "each worker once" in ended.err
