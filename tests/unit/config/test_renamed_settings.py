"""Each former name of a setting is refused at every source, and the error names the successor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.config import SettingsError, load_file
from kafka_keyshared.config.fields import fields
from kafka_keyshared.config.layers import from_environment, merge
from kafka_keyshared.config.renamed_settings import RENAMED
from tests.support.cli import in_process

CONF = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}

WRITTEN = {
    "lend_after": (0.1, "'lend_after' has been renamed: give 'detach_after' with the same value"),
    "poison": ("drop", "'poison' has been renamed: give 'on_exhausted' with the same value"),
    "max_leases_per_key": (
        1,
        "'max_leases_per_key' has been renamed: give one_in_flight_per_key = true for "
        "max_leases_per_key = 1",
    ),
    "leases_per_worker": (
        5,
        "'leases_per_worker' has been renamed: give 'prefetch_records' with the same value",
    ),
    "lease_bytes_per_worker": (
        5,
        "'lease_bytes_per_worker' has been renamed: give 'prefetch_bytes' with the same value",
    ),
    "reliable": (
        False,
        "'reliable' has been renamed: give delivery = \"at-most-once\" for reliable = false, or "
        'delivery = "at-least-once" for reliable = true',
    ),
    "dlq_limit_in_a_row": (
        5,
        "'dlq_limit_in_a_row' has been renamed: give 'dlq_limit_consecutive' with the same value",
    ),
}
"""By former name: a value, and the error for it in a file."""


def test_each_former_name_is_tried_and_has_a_successor() -> None:
    assert WRITTEN.keys() == RENAMED.keys()
    assert {renamed.setting for renamed in RENAMED.values()} <= fields().keys()
    assert not RENAMED.keys() & fields().keys()


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_name_is_refused_in_a_file(former: str, tmp_path: Path) -> None:
    value, said = WRITTEN[former]
    text = f'"{value}"' if isinstance(value, str) else str(value).lower()
    file = tmp_path / "keyshared.toml"
    file.write_text(f"{former} = {text}\n")
    with pytest.raises(SettingsError) as refused:
        load_file(file)
    assert str(refused.value) == f"{said} ({former} is from {file})"


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_name_is_refused_as_a_keyword(former: str) -> None:
    value, said = WRITTEN[former]
    options: dict[str, Any] = {former: value}
    with pytest.raises(SettingsError) as refused:
        KeyShared(CONF, ["orders"], **options)
    said = said.replace(" = ", "=").replace('"', "'").replace("true", "True")
    assert str(refused.value) == said.replace("false", "False")


@pytest.mark.parametrize("former", RENAMED)
def test_a_former_name_is_refused_in_the_environment(former: str) -> None:
    variable = f"KEYSHARED_{former.upper()}"
    with pytest.raises(SettingsError) as refused:
        merge([from_environment({variable: "1"})]).check()
    successor = f"KEYSHARED_{RENAMED[former].setting.upper()}"
    assert f"{variable} has been renamed: give {successor}" in str(refused.value)


def test_the_environment_has_its_own_notation_of_a_value() -> None:
    with pytest.raises(SettingsError) as refused:
        merge([from_environment({"KEYSHARED_RELIABLE": "false"})]).check()
    assert "give KEYSHARED_DELIVERY=at-most-once for KEYSHARED_RELIABLE=false" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("run", "app:handle", "--poison", "drop"),
            "--poison has been renamed: give --on-exhausted with the same value",
        ),
        (
            ("bench", "noop", "--max-leases-per-key", "1"),
            "--max-leases-per-key has been renamed: give --one-in-flight-per-key for "
            "--max-leases-per-key 1",
        ),
    ],
    ids=str,
)
def test_a_former_option_of_the_command_line_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = in_process(capsys, *arguments)
    assert (ended.status, ended.err) == (2, f"keyshared: {said}\n")


def test_an_option_without_an_option_as_successor_is_refused_like_any_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option in ("--leases-per-worker", "--posion"):
        ended = in_process(capsys, "run", "app:handle", option, "1")
        assert ended.status == 2
        assert f"No such option: {option}" in ended.err
