"""New names of classes, with every reference to them.

Usage: ``python tests/setup/renames.py tests/setup/renames.toml [--dry-run]``. Afterwards
``ruff check --fix --select I .`` and ``ruff format .`` put imports in order, and mypy finds what a
text has hidden.

The table has a section for each module, by its dotted name below ``kafka_keyshared``: old names
with new ones. A name in code is the class if its module defines or imports it, or if it stands
behind the name of the module. In texts (docstrings, comments, pages) it is the class where it
stands in backticks, and the file or its line names the module.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.setup.references import PACKAGE, Edit, dotted  # noqa: E402 - found by the line above

Table = Mapping[str, Mapping[str, str]]
"""By the dotted name of a module: new names of its classes by the old ones."""

TEXTS = (".md", ".toml", ".yml", ".json", ".html", ".js")


class Bound(NamedTuple):
    """What names mean in a file: classes by their names, and modules by theirs."""

    classes: dict[str, str]
    modules: dict[str, str]


def bound(tree: ast.Module, module: str, table: Table) -> Bound:
    """Return the new names of classes, and the modules of the table, that a file knows."""
    found = Bound(dict(table.get(module, {})), {})
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                name = each.asname or each.name
                if each.name in table.get(node.module, ()) and each.asname is None:
                    found.classes[name] = table[node.module][each.name]
                elif f"{node.module}.{each.name}" in table:
                    found.modules[name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name in table and each.asname is not None:
                    found.modules[each.asname] = each.name
    return found


def edits(text: str, module: str, table: Table) -> Iterator[Edit]:
    """Yield the edits of a file of Python."""
    tree = ast.parse(text)
    names = bound(tree, module, table)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    given_another = dict(_given_another_name(tree, starts))
    before: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        at = starts[token.start[0] - 1] + token.start[1]
        if at in given_another:
            new = table.get(given_another[at], {}).get(token.string)
        elif token.type == tokenize.NAME:
            new = _of_name(token.string, before, names, table)
        else:
            new = None
        if new is not None:
            yield Edit(at, at + len(token.string), new)
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            for start, end, renamed in _in_text(token.string, names, table):
                yield Edit(at + start, at + end, renamed)
            if "f" in token.string.split(token.string[-1])[0].lower():
                for edit in _in_braces(token.string, names, table):
                    yield Edit(edit.start + at, edit.end + at, edit.new)
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = [*before[-2:], token]


def _given_another_name(tree: ast.Module, starts: list[int]) -> Iterator[tuple[int, str]]:
    """Yield where names stand that are imported by another one, and the module they come from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.asname is not None:
                    yield starts[each.lineno - 1] + each.col_offset, node.module or ""


def _of_name(name: str, before: list[tokenize.TokenInfo], names: Bound, table: Table) -> str | None:
    if before and before[-1].string == ".":
        module = names.modules.get(before[-2].string) if len(before) > 1 else None
        return None if module is None else table[module].get(name)
    return names.classes.get(name)


def _in_braces(text: str, names: Bound, table: Table) -> Iterator[Edit]:
    """Yield the names in the expressions of an f-string, which Python 3.11 has as one token."""
    for braces in re.finditer(r"\{[^{}]*\}", text):
        for part in re.finditer(r"(?:\b(\w+)\.|(?<![\w.\"']))([A-Z_]\w*)\b(?![\"'])", braces[0]):
            if (new := _new(part, names, table)) is not None:
                start = braces.start() + part.start(2)
                yield Edit(start, start + len(part[2]), new)


_QUOTED = re.compile(r"`[^`\n]+`|(?<=^[\"'])[\w.\[\], |]+(?=[\"']$)")


def _in_text(text: str, names: Bound, table: Table) -> Iterator[tuple[int, int, str]]:
    """Yield the names in backticks, those of annotations in quotes, and dotted ones."""
    taken: set[int] = set()
    for module, renamed in table.items():
        for match in re.finditer(rf"(?<![\w.]){re.escape(module)}((?:\.\w+)+)", text):
            for part in re.finditer(r"\w+", match[1]):
                if part[0] in renamed:
                    start = match.start(1) + part.start()
                    taken.add(start)
                    yield start, start + len(part[0]), renamed[part[0]]
    for quoted in _QUOTED.finditer(text):
        for part in re.finditer(r"(?:(\w+)\.)?\b([A-Z_]\w*)\b", quoted[0]):
            start = quoted.start() + part.start(2)
            if start in taken:
                continue
            if (new := _new(part, names, table)) is not None:
                yield start, start + len(part[2]), new


def _new(part: re.Match[str], names: Bound, table: Table) -> str | None:
    """Return the new name of a class, which stands behind its module's name or alone."""
    if part[1] is None:
        return names.classes.get(part[2])
    module = names.modules.get(part[1]) or _by_tail(part[1], table)
    return None if module is None else table[module].get(part[2])


def _by_tail(tail: str, table: Table) -> str | None:
    found = [module for module in table if module.rpartition(".")[2] == tail]
    return found[0] if len(found) == 1 else None


def on_pages(text: str, table: Table) -> Iterator[Edit]:
    """Yield the edits of a page: names in backticks behind the path of their module in a line."""
    at = 0
    for line in text.splitlines(keepends=True):
        paths = list(re.finditer(r"[\w/]+\.py", line))
        for quoted in re.finditer(r"`([^`\n]+)`", line):
            before = [path for path in paths if path.end() <= quoted.start()]
            if not before:
                continue
            module = _of_path(before[-1][0], table)
            part = re.match(r"[A-Z_]\w*", quoted[1])
            if module is not None and part is not None and part[0] in table[module]:
                start = at + quoted.start(1)
                yield Edit(start, start + len(part[0]), table[module][part[0]])
        at += len(line)


def _of_path(path: str, table: Table) -> str | None:
    tail = "." + path.removesuffix(".py").replace("/", ".")
    found = [module for module in table if f".{module}".endswith(tail)]
    return found[0] if len(found) == 1 else None


def in_mutants(text: str, table: Table, bounds: Mapping[str, Bound]) -> str:
    """Return a table of planted faults with new names in the code that it quotes."""
    parts = re.split(r"(?m)^(?=\[\[)", text)
    for number, part in enumerate(parts):
        path = re.search(r'(?m)^file = "([^"]+)"', part)
        names = bounds.get(path[1]) if path is not None else None
        if names is None:
            continue

        def of_class(match: re.Match[str], names: Bound = names) -> str:
            if match[1] is None:
                return names.classes.get(match[2], match[2])
            module = names.modules.get(match[1][:-1])
            return match[1] + table.get(module or "", {}).get(match[2], match[2])

        lines = part.split("\n")
        inside = False
        for at, line in enumerate(lines):
            inside = inside or line.startswith(("old", "new"))
            if inside:
                lines[at] = re.sub(r"(\b\w+\.)?\b([A-Z_]\w*)\b", of_class, line)
            if line.startswith(("breaks", "tests", "file", "name")):
                inside = False
        parts[number] = "\n".join(lines)
    return "".join(parts)


def applied(text: str, changes: Iterator[Edit]) -> str:
    """Return the text with the edits."""
    for edit in sorted(set(changes), reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


def main() -> int:
    """Rename, or say what would be; 1 where a class of the table is not there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    arguments = parser.parse_args()
    raw = tomllib.loads(arguments.table.read_text("utf-8"))
    table: dict[str, Mapping[str, str]] = {
        f"{PACKAGE}.{module}": names for module, names in raw.items()
    }
    if missing := [*_missing(table)]:
        print("\n".join(missing))
        return 1
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = [path for path in listed.stdout.split("\0") if path]
    table.update([*_passed_on(table, paths)])
    bounds: dict[str, Bound] = {}
    for path in paths:
        if path.endswith(".py"):
            text = (ROOT / path).read_text("utf-8")
            bounds[path] = bound(ast.parse(text), dotted(path), table)
    for path in paths:
        if not path.endswith((".py", *TEXTS)) or path.endswith("renames.toml"):
            continue
        text = (ROOT / path).read_text("utf-8")
        if path.endswith(".py"):
            new = applied(text, edits(text, dotted(path), table))
        elif "/mutants/" in path:
            new = in_mutants(text, table, bounds)
        else:
            new = applied(text, on_pages(text, table))
        if new != text:
            print(path)
            if not arguments.dry_run:
                (ROOT / path).write_text(new, "utf-8")
    return 0


def _passed_on(table: Table, paths: list[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield packages that import classes of the table for others, with their new names."""
    for path in paths:
        if path.startswith(f"{PACKAGE}/") and path.endswith("/__init__.py"):
            names = bound(ast.parse((ROOT / path).read_text("utf-8")), "", table).classes
            if names:
                yield dotted(path), names


def _missing(table: Table) -> Iterator[str]:
    for module, names in table.items():
        path = ROOT / (module.replace(".", "/") + ".py")
        if not path.exists():
            yield f"{module}: there is no such module"
            continue
        there = {
            node.name
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.ClassDef)
        }
        yield from (f"{module}: no class {name}" for name in names if name not in there)
        yield from (f"{module}: there is a class {new}" for new in names.values() if new in there)


if __name__ == "__main__":
    sys.exit(main())
