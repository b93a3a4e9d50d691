"""A class name has one meaning in the whole package."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.tidy.sources import PACKAGE, Module, modules, parse, walk

# Names that stand for the same thing twice, with the reason.
TWICE: Mapping[str, str] = {
    "TimedOutError": "users meet it as the error of a failed attempt, whatever the pool",
}


def repeated(tree: Iterable[Module]) -> dict[str, list[str]]:
    """Return the class names that are defined more than once, with their modules."""
    found = defaultdict(list)
    for module in tree:
        for node in walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.name)
    return {name: where for name, where in found.items() if len(where) > 1}


def test_each_class_name_is_defined_once() -> None:
    found = repeated(modules(PACKAGE))
    unwanted = {name: where for name, where in found.items() if name not in TWICE}
    assert not unwanted, f"defined more than once: {unwanted}"
    assert set(TWICE) <= set(found), "a name in the table is defined once: take it out"


def test_a_planted_second_class_is_found() -> None:
    tree = [
        parse("class Batch: ...", f"{PACKAGE}/one.py"),
        parse("def f():\n    class Batch: ...", f"{PACKAGE}/two.py"),
        parse("class Other: ...", f"{PACKAGE}/three.py"),
    ]
    assert repeated(tree) == {"Batch": [f"{PACKAGE}.one", f"{PACKAGE}.two"]}
