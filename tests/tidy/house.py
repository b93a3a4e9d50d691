"""Measures of the house, each with its limit.

``python -m tests.tidy.house`` prints the table; ``test_house.py`` holds the limits.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.tidy.habits import dotted, long_functions, long_modules
from tests.tidy.layers import circles, edges
from tests.tidy.sources import PACKAGE, ROOT, Module, modules, walk

TWICE: Mapping[str, str] = {
    "TimedOutError": "users meet it as the error of a failed attempt, whatever the pool",
}
"""Class names that stand for the same thing twice, with the reason."""

LEVELS = 2
"""Classes of the package above one another, where ``self`` still fits into one head."""

LEVELLED = ("executors", "client", "app", "runtime")
"""Packages in which the levels are counted."""


class Measure(NamedTuple):
    """What is counted, what was found, and how many of it there may be."""

    what: str
    found: Sequence[str]
    most: int

    @property
    def exceeded(self) -> bool:
        return len(self.found) > self.most

    def __str__(self) -> str:
        mark = "  TOO MANY" if self.exceeded else ""
        return f"{len(self.found):4} of {self.most:3}  {self.what}{mark}"


def measures(tree: Sequence[Module], helpers: Sequence[str]) -> list[Measure]:
    """Return every measure of the package's modules and of the helpers that suites share."""
    paths = [module.path.split("/") for module in tree]
    tops = sorted({words[1] for words in paths if len(words) > 2})
    in_core = ["/".join(words) for words in paths if words[1] == "core" and len(words) == 3]
    around = [" -> ".join(circle) for circle in circles(edges(tree))]
    twice = [f"{name}: {', '.join(where)}" for name, where in repeated(tree).items()]
    return [
        Measure("packages at the top", tops, 13),
        Measure("files directly in the core", in_core, 3),
        Measure("circles of imports", around, 0),
        Measure("class names defined more than once", twice, len(TWICE)),
        Measure("modules over 500 lines", _shown(long_modules, tree), 0),
        Measure("functions over 70 lines", _shown(long_functions, tree), 0),
        # The state of a thread, of one with an inbox, and of one with a process.
        Measure(f"classes with more than {LEVELS} levels", layered(tree), 1),
        Measure("files in tests/support", helpers, 45),
    ]


def _shown(check: object, tree: Iterable[Module]) -> list[str]:
    assert callable(check)
    return [str(finding) for module in tree for finding in check(module)]


def repeated(tree: Iterable[Module]) -> dict[str, list[str]]:
    """Return the class names that are defined more than once, with their modules."""
    found = defaultdict(list)
    for module in tree:
        for node in walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.name)
    return {name: where for name, where in found.items() if len(where) > 1}


def layered(tree: Sequence[Module]) -> list[str]:
    """Return the classes of :data:`LEVELLED` with too many classes above them.

    Protocols and exceptions do not count: no behaviour comes from them.
    """
    bases = {
        node.name: [dotted(_plain(base)).split(".")[-1] for base in node.bases]
        for module in tree
        for node in walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }

    def levels(name: str) -> int:
        above = bases.get(name)
        if above is None or {*above} & {"Protocol", "Exception", "BaseException"}:
            return 0
        return 1 + max((levels(base) for base in above if base != name), default=0)

    return [
        f"{module.name}.{node.name}"
        for module in tree
        if module.path.split("/")[1] in LEVELLED
        for node in walk(module.tree)
        if isinstance(node, ast.ClassDef) and levels(node.name) > LEVELS
    ]


def _plain(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base


def table(found: Iterable[Measure]) -> str:
    """Return a line for each measure, and below it what is too much."""
    lines = []
    for each in found:
        lines += [str(each), *(f"            {one}" for one in each.found if each.exceeded)]
    return "\n".join(lines)


def of_the_house() -> list[Measure]:
    """Return the measures of this checkout."""
    helpers = sorted(path.name for path in (ROOT / "tests" / "support").glob("*.py"))
    return measures(modules(PACKAGE), helpers)


def main() -> int:
    """Print the table; 1 when a limit is exceeded."""
    found = of_the_house()
    sys.stdout.write(table(found) + "\n")
    return int(any(each.exceeded for each in found))


if __name__ == "__main__":
    sys.exit(main())
