"""Nothing in the package is there only for its tests."""

from __future__ import annotations

import tomllib

from tests.tidy.dead import check_dead, entry_points
from tests.tidy.sources import PACKAGE, ROOT, modules, parse, report

# What stays although nothing uses it: "path:name" with the reason.
KEPT: dict[str, str] = {}


def test_every_function_and_class_of_the_package_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    users = [module for folder in ("examples", "tests/setup") for module in modules(folder)]
    scripts = entry_points(project["scripts"])
    found = check_dead(list(modules(PACKAGE)), users, scripts, KEPT)
    assert not found, report(found)


def test_a_planted_dead_function_is_found_and_a_recursive_one_too() -> None:
    module = parse("def dead(n):\n    return dead(n - 1)\n\nclass _Unused:\n    pass\n")
    names = [finding.what.split()[0] for finding in check_dead([module], [], set(), {})]
    assert names == ["dead", "_Unused"]


def test_uses_count_wherever_they_are() -> None:
    package = [
        parse("def a(): ...\ndef b(): ...\ndef c(): ...\ndef d(): ...\ndef e(): ...\nx = a()"),
        parse("from kafka_keyshared.planted import b", "kafka_keyshared/other.py"),
        parse("_LAZY = {'c': 'kafka_keyshared.planted'}", "kafka_keyshared/__init__.py"),
        parse("__all__ = ['d']", "kafka_keyshared/exports.py"),
        parse("@app.command()\ndef f(): ...", "kafka_keyshared/cli/main.py"),
        parse("def __getattr__(name): ...", "kafka_keyshared/lazy.py"),
    ]
    example = parse("from kafka_keyshared import e", "examples/x.py")
    assert check_dead(package, [example], set(), {}) == []
    assert [f.what.split()[0] for f in check_dead(package, [], set(), {})] == ["e"]


def test_an_entry_point_is_used() -> None:
    module = parse("def main(): ...")
    assert check_dead([module], [], entry_points({"keyshared": "x.cli:main"}), {}) == []


def test_a_kept_name_is_not_reported_until_it_is_needless() -> None:
    kept = {"kafka_keyshared/planted.py:dead": "the reason"}
    assert check_dead([parse("def dead(): ...")], [], set(), kept) == []
    (finding,) = check_dead([parse("def dead(): ...\ndead()")], [], set(), kept)
    assert "without need" in finding.what


def test_every_kept_name_has_a_reason() -> None:
    assert all(reason.strip() for reason in KEPT.values())
