"""What `make coverage` makes of a measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.setup import covered
from tests.tidy.sources import ROOT


def report(**reached: tuple[int, int]) -> dict[str, Any]:
    """A report of coverage.py with lines and branches reached, of 80 and 20, by module."""
    return {
        "files": {
            f"kafka_keyshared/{name.replace('__', '/')}.py": {
                "summary": {
                    "covered_lines": lines,
                    "num_statements": 80,
                    "covered_branches": branches,
                    "num_branches": 20,
                    "percent_covered": 100.0,
                }
            }
            for name, (lines, branches) in reached.items()
        }
    }


def judged(**reached: tuple[int, int]) -> list[str]:
    return covered.too_little(covered.modules_in(report(**reached)))


def test_what_reaches_its_figure_is_fine() -> None:
    assert judged(core__offsets__commit=(80, 17), cli__run=(80, 10), errors=(80, 20)) == []


def test_each_module_of_the_core_has_its_own_figure() -> None:
    (said,) = judged(
        core__offsets__commit=(80, 16), core__lanes__closed=(80, 20), core__routing__ring=(80, 20)
    )
    assert said.startswith("kafka_keyshared/core/offsets/commit.py: 96.0 %")


def test_elsewhere_the_figure_is_the_packages() -> None:
    assert judged(cli__run=(60, 20), cli__demo=(80, 20)) == []
    assert judged(cli__run=(50, 15), cli__demo=(80, 20)) == [
        "cli: 82.5 % of lines and branches, at least 90 wanted"
    ]


def test_a_branch_that_nobody_took_counts_as_much_as_a_line() -> None:
    assert judged(web__server=(80, 9)) != []
    assert judged(web__server=(80, 10)) == []


def test_every_module_and_every_package_is_in_the_table() -> None:
    modules = covered.modules_in(report(core__routing__ring=(80, 20), errors=(40, 10)))
    lines = list(covered.table(modules))
    assert lines[0].split() == ["100.0", "%", "kafka_keyshared/core/routing/ring.py"]
    assert [line.split()[2] for line in lines[3:]] == ["(top)", "core"]
    assert "(least: 97)" in lines[-1]


def test_what_is_measured_is_there() -> None:
    assert [name for name in covered.SUITES if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize("lines", [10, 80])
def test_a_failed_test_or_too_little_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    status: int,
    lines: int,
) -> None:
    def coverage(*arguments: str) -> int:
        if arguments[0] == "json":
            Path(arguments[-1]).write_text(json.dumps(report(cli__run=(lines, 20))))
        return status if arguments[0] == "run" else 0

    monkeypatch.setattr(covered, "BUILD", tmp_path / "coverage")
    monkeypatch.setattr(covered, "_coverage", coverage)
    assert covered.main() == (1 if status or lines < 80 else 0)
    assert "kafka_keyshared/cli/run.py" in capsys.readouterr().out
