"""Rewriting of references to files that move.

References are absolute imports, dotted names in code, strings and pages, docstring roles, paths,
Markdown links and ``Path(__file__).parents``. All edits of a file are found in its old text and are
applied together, so the new name of one module may be the old name of another.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from posixpath import dirname, normpath, relpath
from typing import NamedTuple

PACKAGE = "kafka_keyshared"
LINE = 100

_ROOTS = (PACKAGE, "tests", "examples")
_DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(_ROOTS)})(?:\\?\.[A-Za-z_]\w*)+")
_ROLE = re.compile(r":\w+:`[~!]?(\.+[\w.]+)`")
_PATH = re.compile(r"(?:(?<![\w/.~$}@-])|(?<=\{PACKAGE\}/))(?:\.{1,2}/)*(?:\w[\w.-]*/)+[\w.*-]*")
_BARE = re.compile(r"(?<=`)\w+\.py(?=`)|\btest_\w+\\?\.py\b")
_LINK = re.compile(r"\]\(\s*<?([^)\s>#]+)|^\s*\[[^\]]+\]:\s*<?([^\s>#]+)", re.MULTILINE)
_PARENTS = re.compile(
    r"(Path\(__file__\)(?:\.resolve\(\))?)(?:\.parents\[(\d+)\]|((?:\.parent)+)\b)"
)
_BESIDE = re.compile(r"Path\(__file__\)(?:\.resolve\(\))?\.with_name\(\"([^\"]+)\"\)")
_LOGGER = re.compile(r"(?:log_of|getLogger|Few)\(\s*\"([\w.]+)\"")
# What stands before a name that is also a logger's where it is meant as a module.
_MODULE_COMES = re.compile(
    r"(?:\b(?:from|import) |-m |\"-m\", f?\"|files\([\"']|import_module\(\"|:\w+:`[~!]?)$"
)
# Names of modules relative to the package: quoted where a text puts the package before them, and as
# the values of _HOMES, where one word is a module too.
_LAZY = re.compile(r"\{__name__\}\.\{|kafka_keyshared\.\{")
_SHORT = re.compile(r"(?<=[\"'])[a-z_]\w*(?:\.[a-z_]\w*)+(?=[\"'])")
_HOMES = re.compile(r"(?<=: \")[a-z_][\w.]*(?=\")")


class Edit(NamedTuple):
    """A piece of a text, and the text that takes its place."""

    start: int
    end: int
    new: str


class Moved:
    """Every tracked file, and the new path of each that moves."""

    def __init__(
        self, tracked: Iterable[str], files: Mapping[str, str], texts: Iterable[str]
    ) -> None:
        self.files = dict(files)
        self.tracked = set(tracked)
        # By file the names of imported modules that change in its code.
        self.renamed: dict[str, dict[str, str]] = {}
        self.loggers = {name for text in texts for name in _LOGGER.findall(text)}

    @cached_property
    def folders(self) -> dict[str, str | None]:
        """Every folder; with its new path, or None where its files do not move together."""
        found: dict[str, set[str | None]] = {}
        for path in self.tracked:
            new = self.files.get(path)
            for parent in map(str, PurePosixPath(path).parents):
                rest = path[len(parent) :]
                moves = new is not None and new.endswith(rest) and parent != "."
                found.setdefault(parent, set()).add(
                    new[: -len(rest)] if moves and new is not None else None
                )
        return {folder: new.pop() if len(new) == 1 else None for folder, new in found.items()}

    @cached_property
    def modules(self) -> dict[str, str]:
        """By its old dotted name the new one of every module and package, moved or not."""
        return {
            dotted(path): dotted(self.files.get(path, path))
            for path in self.tracked
            if path.endswith(".py") and path.startswith(tuple(f"{root}/" for root in _ROOTS))
        }

    @cached_property
    def homes(self) -> set[str]:
        """Packages of which modules move."""
        return {old.rpartition(".")[0] for old, new in self.modules.items() if old != new}

    @cached_property
    def basenames(self) -> dict[str, str]:
        """New names of test files whose names change, for texts that name no folder."""
        count = Counter(path.rpartition("/")[2] for path in self.tracked)
        pairs = [(a.rpartition("/")[2], b.rpartition("/")[2]) for a, b in self.files.items()]
        return {a: b for a, b in pairs if a != b and a.startswith("test_") and count[a] == 1}

    def path(self, old: str) -> str | None:
        """Return the new path of a file or folder; None where there is none, or it stays."""
        return self.files.get(old) or self.folders.get(old)

    def is_there(self, path: str) -> bool:
        """Say whether a file or folder was there before the move."""
        return path in self.tracked or path in self.folders

    def module(self, name: str) -> tuple[str, str] | None:
        """Split a dotted name into the longest module that there is, and the rest."""
        words = name.split(".")
        for length in range(len(words), 0, -1):
            if (head := ".".join(words[:length])) in self.modules:
                return head, name[len(head) :]
        return None


def dotted(path: str) -> str:
    """Return the name by which a file is imported."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def rewrite(path: str, text: str, moved: Moved) -> tuple[str, list[str]]:
    """Return the text of the file that was at ``path``, and what a person has to look at."""
    notes: list[str] = []
    edits: list[Edit] = []
    if path.endswith(".py"):
        edits += _imports(path, text, moved, notes)
        edits += _roles(path, text, moved)
        edits += _depths(path, text, moved, notes)
    if path.endswith(".md"):
        edits += _links(path, text, moved)
    if path.endswith(".toml"):
        edits += _mutants(text, moved)
    edits += _names(path, text, moved, notes)
    edits += _paths(path, text, moved)
    new = _apply(text, edits)
    if path.endswith(".py") and new != text:
        new = _reflow(new, text)
    return new, notes


def _apply(text: str, edits: list[Edit]) -> str:
    """Apply edits; of two that overlap the first in the list wins."""
    taken: list[Edit] = []
    for edit in edits:
        if all(edit.end <= other.start or edit.start >= other.end for other in taken):
            taken.append(edit)
    for edit in sorted(taken, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text


class _Offsets:
    """Offsets in a text of the positions that :mod:`ast` gives, which count bytes of a line."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def of(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self.at(node.lineno, node.col_offset), self.at(end_line, end_column)


def _imports(path: str, text: str, moved: Moved, notes: list[str]) -> Iterator[Edit]:
    """Rewrite ``from package import module``; a plain dotted name is left to :func:`_names`."""
    if not any(f"from {home} import" in text for home in moved.homes):
        return
    tree, offsets = ast.parse(text), _Offsets(text)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = node.module or ""
        inner = {alias.name: f"{base}.{alias.name}" for alias in node.names}
        if all(moved.modules.get(name, name) == name for name in inner.values()):
            continue
        statements: dict[str, list[str]] = {}
        for alias in node.names:
            if inner[alias.name] in moved.modules:
                home, _, name = moved.modules[inner[alias.name]].rpartition(".")
            else:
                home, name = moved.modules.get(base, base), alias.name
            known_as = alias.asname
            if known_as is None and name != alias.name:
                usages = _usages(tree, offsets, text, alias.name, name)
                if usages is None:
                    known_as = alias.name
                else:
                    moved.renamed.setdefault(path, {})[alias.name] = name
                    yield from usages
            words = f"{name} as {known_as}" if known_as and known_as != name else name
            statements.setdefault(home, []).append(words)
        start, end = offsets.of(node)
        if "#" in text[start:end]:
            notes.append(f"{path}:{node.lineno}: a comment inside an import is lost")
        lines = [f"from {home} import {', '.join(each)}" for home, each in statements.items()]
        yield Edit(start, end, ("\n" + " " * node.col_offset).join(lines))


def _usages(
    tree: ast.Module, offsets: _Offsets, text: str, old: str, new: str
) -> list[Edit] | None:
    """Rename the uses of an imported module; None where its new name would clash."""
    edits = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in (old, new):
            return None
        if isinstance(node, ast.Name) and node.id in (old, new):
            start, end = offsets.of(node)
            if node.id == new or not isinstance(node.ctx, ast.Load) or text[start:end] != old:
                return None
            edits.append(Edit(start, end, new))
    return edits


def _mutants(text: str, moved: Moved) -> Iterator[Edit]:
    """Rename modules in the code of a mutant as they are renamed in its file, read before it."""
    for block in re.finditer(r"(?ms)^\[\[mutant\]\].*?(?=^\[\[|\Z)", text):
        for file in re.findall(r'^file = "(.+)"$', block.group(), re.MULTILINE):
            for old, new in moved.renamed.get(file, {}).items():
                for use in re.finditer(rf"(?<![\w./]){old}(?=\.\w)(?!\.py\b)", block.group()):
                    yield Edit(block.start() + use.start(), block.start() + use.end(), new)


def _roles(path: str, text: str, moved: Moved) -> Iterator[Edit]:
    """Rewrite relative names in docstring roles, such as ``:mod:`.x```."""
    package = dotted(path) if path.endswith("__init__.py") else dotted(dirname(path))
    new_path = moved.files.get(path, path)
    home = dotted(dirname(new_path))
    for match in _ROLE.finditer(text):
        name = match.group(1)
        words = name.lstrip(".")
        up = len(name) - len(words) - 1
        parents = package.split(".")
        found = moved.module(".".join([*parents[: len(parents) - up], words]))
        if found is None or found[0] == package:
            continue
        new = moved.modules[found[0]]
        if new == found[0] and new_path == path:
            continue
        parent, _, last = new.rpartition(".")
        short = f".{last}" if parent == home else new
        yield Edit(*match.span(1), short + found[1])


def _names(path: str, text: str, moved: Moved, notes: list[str]) -> Iterator[Edit]:
    """Rewrite dotted names of modules, wherever they stand, but not the name of a logger."""
    for match in _DOTTED.finditer(text):
        dot = r"\." if "\\" in match.group() else "."  # escaped in a regular expression
        found = moved.module(match.group().replace("\\", ""))
        if found is None or moved.modules[found[0]] == found[0]:
            continue
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match.group() in moved.loggers and not _MODULE_COMES.search(before):
            line = text.count("\n", 0, match.start()) + 1
            notes.append(f"{path}:{line}: {match.group()} stays: a logger has that name")
            continue
        yield Edit(*match.span(), (moved.modules[found[0]] + found[1]).replace(".", dot))
    if path.endswith(".py") and (_LAZY.search(text) or "_HOMES" in text):
        for match in (_HOMES if "_HOMES" in text else _SHORT).finditer(text):
            old = f"{PACKAGE}.{match.group()}"
            if moved.modules.get(old, old) != old:
                yield Edit(*match.span(), moved.modules[old].removeprefix(f"{PACKAGE}."))


def _paths(path: str, text: str, moved: Moved) -> Iterator[Edit]:
    """Rewrite paths below the checkout, the package, the pages, the tests or the file's folder."""
    here, new_here = dirname(path), dirname(moved.files.get(path, path))
    bases = ["", f"{PACKAGE}/", "docs/", "tests/"]
    for match in _PATH.finditer(text):
        token = match.group().rstrip(".")
        fixed = token.partition("*")[0].rpartition("/")[0] if "*" in token else token.rstrip("/")
        rest = token[len(fixed) :]
        if token.startswith("."):
            if (new := _relative(fixed, here, new_here, moved)) is not None:
                yield Edit(match.start(), match.start() + len(token), new + rest)
            continue
        if "/" not in fixed and rest == "/" and not path.endswith((".md", "pyproject.toml")):
            continue  # pages name a folder so; elsewhere it may be any word
        for base in bases:
            if moved.is_there(base + fixed):
                new_path = moved.path(base + fixed)
                if new_path is not None and new_path.startswith(base):
                    end = match.start() + len(token)
                    yield Edit(match.start(), end, new_path.removeprefix(base) + rest)
                break
    names = dict(moved.basenames)
    if path.startswith("tests/"):  # a file's own name is meant, whatever others are called so
        names[path.rpartition("/")[2]] = moved.files.get(path, path).rpartition("/")[2]
    for match in _BARE.finditer(text):
        name, dot = match.group().replace("\\", ""), r"\." if "\\" in match.group() else "."
        if new := names.get(name):
            yield Edit(*match.span(), new.replace(".", dot))
        elif path.endswith(".md") and (new_path := moved.files.get(f"{PACKAGE}/{name}")):
            yield Edit(*match.span(), new_path.removeprefix(f"{PACKAGE}/"))


def _links(path: str, text: str, moved: Moved) -> Iterator[Edit]:
    """Compute links anew between pages of which one moves."""
    here, new_here = dirname(path), dirname(moved.files.get(path, path))
    for match in _LINK.finditer(text):
        group = 1 if match.group(1) else 2
        target = match.group(group)
        if (new := _relative(target.rstrip("/"), here, new_here, moved)) is not None:
            slash = "/" if target.endswith("/") else ""
            yield Edit(*match.span(group), new + slash)


def _relative(path: str, here: str, new_here: str, moved: Moved) -> str | None:
    """Return a path relative to a file's folder, computed anew; None where it stays."""
    old = normpath(f"{here}/{path}")
    if re.match(r"[a-z]+:|/", path) or not moved.is_there(old):
        return None
    new = relpath(moved.path(old) or old, new_here or ".")
    if new == relpath(old, here or "."):
        return None
    return f"./{new}" if path.startswith("./") and not new.startswith(".") else new


def _depths(path: str, text: str, moved: Moved, notes: list[str]) -> Iterator[Edit]:
    """Keep ``Path(__file__).parents[n]`` at the folder that it meant."""
    new_path = moved.files.get(path)
    if new_path is None:
        return
    if re.search(r"^ *from \.", text, re.MULTILINE):
        notes.append(f"{path}: a relative import; make it absolute first")
    for match in _PARENTS.finditer(text):
        steps = int(match.group(2)) if match.group(2) else match.group(3).count(".parent") - 1
        old = str(PurePosixPath(path).parents[steps]) if steps < path.count("/") + 1 else ""
        target = moved.folders.get(old) or old
        above = [str(parent) for parent in PurePosixPath(new_path).parents]
        if target not in above:
            notes.append(f"{path}: {match.group()} was {old}, which is not above {new_path}")
        elif above.index(target) != steps:
            yield Edit(*match.span(), f"{match.group(1)}.parents[{above.index(target)}]")
    for match in _BESIDE.finditer(text):
        old = f"{dirname(path)}/{match.group(1)}"
        if dirname(moved.path(old) or old) != dirname(new_path):
            notes.append(f"{path}: {match.group()} does not move along")


def _reflow(text: str, before: str) -> str:
    """Wrap lines of docstrings and comments that have become too long."""
    known = set(before.splitlines())
    prose = _prose(text)
    lines, number = text.split("\n"), 0
    while number < len(lines):
        line = lines[number]
        if number in prose and len(line) > LINE and line not in known:
            indent = re.match(r"\s*(?:# )?", line)
            margin = indent.group() if indent else ""
            at = line.rfind(" ", len(margin) + 1, LINE + 1)
            if at > 0:
                lines[number], rest = line[:at], line[at + 1 :]
                following = lines[number + 1] if number + 1 < len(lines) else ""
                words = following[len(margin) :]
                joins = number + 1 in prose and following.startswith(margin)
                joins = joins and bool(re.match(r"[^\s*|>\"\d-]", words))
                if joins and not line.rstrip().endswith('"""'):
                    lines[number + 1] = f"{margin}{rest} {words}"
                else:
                    lines.insert(number + 1, margin + rest)
                    prose = {each + (each > number) for each in prose} | {number + 1}
                known.discard(lines[number + 1])
        number += 1
    return "\n".join(lines)


def _prose(text: str) -> set[int]:
    """Return the lines, from 0, that are in a docstring or are a comment."""
    found = {n for n, line in enumerate(text.split("\n")) if line.lstrip().startswith("# ")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found |= set(range(node.lineno - 1, node.end_lineno or node.lineno))
    return found
