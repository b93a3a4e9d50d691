"""Order of packages: imports against it, and circles between files.

Usage: ``python tests/setup/order.py tests/setup/moves.toml``. Reads every import as it is, those
under ``TYPE_CHECKING`` and in functions too, and names files as they are called after the moves of
the table. Exits with 1 when an import points up, a file is in a circle, or a folder is too full.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup.moves import Tree, after, load, plan
from tests.setup.references import PACKAGE
from tests.tidy.layers import imports
from tests.tidy.sources import parse

TOP = "package"
"""The order of the whole package, among those of its packages."""

TOP_MOST = 13
"""Packages at the top, at most."""

CORE_MOST = 3
"""Files directly in core, at most."""

ROOT = "__init__"
"""The package's own ``__init__``, in the order of the table."""


def graph(texts: Mapping[str, str | None]) -> dict[str, set[str]]:
    """Return what each module of the package imports from it."""
    modules = [
        parse(text, path)
        for path, text in texts.items()
        if text is not None and path.startswith(f"{PACKAGE}/") and path.endswith(".py")
    ]
    known = {module.name for module in modules}
    return {
        module.name: {name for _, name in imports(module, known) if name in known} - {module.name}
        for module in modules
    }


def circles(edges: Mapping[str, set[str]]) -> Iterator[list[str]]:
    """Yield every set of modules that can all reach one another."""
    reached = {module: _reached(edges, module) for module in edges}
    seen: set[str] = set()
    for module in sorted(edges):
        if module not in seen and module in reached[module]:
            circle = sorted(each for each in reached[module] if module in reached[each])
            seen.update(circle)
            yield circle


def _reached(edges: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in edges[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return found


def part(module: str, below: str) -> str:
    """Return the part of a package that a module is in."""
    return ROOT if module == below else module.removeprefix(f"{below}.").partition(".")[0]


def upward(edges: Mapping[str, set[str]], order: list[str], below: str) -> Iterator[str]:
    """Yield imports between parts of a package that point up, and parts that are in no order."""
    place = {name: number for number, name in enumerate(order)}
    for module in sorted(edges):
        if not f"{module}.".startswith(f"{below}."):
            continue
        for target in sorted(edges[module]):
            if not f"{target}.".startswith(f"{below}."):
                continue
            user, used = part(module, below), part(target, below)
            if missing := {user, used} - set(place):
                yield f"{', '.join(sorted(missing))} is not in the order of {below}"
            elif place[user] < place[used]:
                yield f"{module} imports {target}: {user} is below {used}"


def main(arguments: Iterable[str]) -> int:
    """Print what the order does not hold, and the counts."""
    table = Path(*arguments)
    with table.open("rb") as file:
        order = tomllib.load(file)["order"]
    tree = Tree.read(Path(__file__).resolve().parents[2])
    for move in load(table):
        if (done := plan(move, tree)) is not None:
            tree = after(tree, done)
    edges = graph(tree.texts)
    up = [
        line
        for name, parts in order.items()
        for line in upward(edges, parts, PACKAGE if name == TOP else f"{PACKAGE}.{name}")
    ]
    found = [*circles(edges)]
    paths = [path.split("/") for path in tree.texts if path.startswith(f"{PACKAGE}/")]
    top = {words[1] for words in paths if len(words) > 2}
    core = [words for words in paths if words[1] == "core" and len(words) == 3]
    for line in up:
        print(f"up: {line}")
    for circle in found:
        print(f"circle of {len(circle)}: {', '.join(circle)}")
        inner = {name: sorted(edges[name] & set(circle)) for name in circle}
        print("".join(f"    {name} -> {', '.join(to)}\n" for name, to in inner.items()), end="")
    print(
        f"{len(edges)} modules, {sum(map(len, edges.values()))} imports: {len(up)} point up, "
        f"{len(found)} circles; {len(top)} packages at the top (at most {TOP_MOST}), "
        f"{len(core)} files directly in core (at most {CORE_MOST})"
    )
    return int(bool(up or found or len(top) > TOP_MOST or len(core) > CORE_MOST))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
