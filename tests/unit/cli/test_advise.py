"""`keyshared advise`: what it refuses before it asks anybody."""

from __future__ import annotations

import pytest

from tests.support.cli import in_process


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-b", "x:1"], "give -t NAME"),
        (["-t", "orders"], "give -b host:port"),
        (["-t", "orders", "-b", "x:1", "--config", "none.toml"], "none.toml"),
        (["-t", "orders", "-b", "x:1", "-X", "enable.auto.commit=true"], "enable.auto.commit"),
        (["-b", "x:1", "-t", "orders", "--ms-per-record", "0"], "--ms-per-record 0"),
        (["-b", "x:1", "-t", "orders", "--seconds", "-1"], "--seconds -1"),
        (["-b", "x:1", "-t", "orders", "-X", "nonsense=1"], "nonsense"),
    ],
)
def test_a_wrong_command_line_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    ended = in_process(capsys, "advise", *arguments)
    assert ended.status == 2
    assert said in ended.err
    assert ended.out == ""
