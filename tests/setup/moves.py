"""Moves of modules, packages and pages, with every reference to them.

Usage: ``python tests/setup/moves.py tests/setup/moves.toml [--only NAME] [--dry-run]``. Afterwards
``ruff check --fix --select I .`` and ``ruff format .`` put imports in order.

A move in the table has a ``name``; ``modules`` and ``packages``, dotted names below
``kafka_keyshared`` with their new ones; ``files``, any other paths with theirs; and ``docstrings``
of new packages. Unit tests move with their module. A package that has only its ``__init__`` left is
removed.

A move is done as a whole or refused: a source is missing, or a target exists. A move whose sources
are gone and whose targets exist has been done before, and is skipped.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import dirname
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.setup.references import LINE, PACKAGE, Moved, rewrite

TABLE_SUFFIX = "moves.toml"
"""The table of moves has old names, and keeps them."""


class RefusedError(Exception):
    """A move that cannot be done; nothing of it was."""


@dataclass(frozen=True)
class Move:
    """One move of the table."""

    name: str
    modules: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    docstrings: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Tree:
    """The tracked files of a checkout; the text of each, None where it has none."""

    texts: dict[str, str | None]

    @classmethod
    def read(cls, root: Path) -> Tree:
        """Read the files that git tracks."""
        listed = _git(root, "ls-files", "-z").split("\0")
        return cls({path: _text(root / path) for path in listed if path})

    def under(self, path: str) -> list[str]:
        """Return the file at a path, or the files below it."""
        if path in self.texts:
            return [path]
        return [each for each in self.texts if each.startswith(f"{path}/")]


@dataclass
class Done:
    """What a move changes."""

    files: dict[str, str]
    """New paths by the old ones."""
    written: dict[str, str]
    """Texts by their new paths."""
    removed: list[str]
    notes: list[str]


def load(table: Path) -> list[Move]:
    """Read the table."""
    with table.open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)
    moves = [Move(**each) for each in found["move"]]
    doubles = [name for name, count in Counter(move.name for move in moves).items() if count > 1]
    if doubles:
        raise RefusedError(f"{table}: more than one move is named {', '.join(doubles)}")
    return moves


def plan(move: Move, tree: Tree) -> Done | None:
    """Return what a move changes in the tree; None when it was done before.

    Raises :class:`RefusedError` when a source is missing or a target exists.
    """
    pairs = [(f"{_place(old)}.py", f"{_place(new)}.py") for old, new in move.modules.items()]
    pairs += [(_place(old), _place(new)) for old, new in move.packages.items()]
    pairs += move.files.items()
    missing = [old for old, _ in pairs if not tree.under(old)]
    if len(missing) == len(pairs) and all(tree.under(new) for _, new in pairs):
        return None
    files = _files(move, tree, pairs)
    faults = [f"{path} is missing" for path in missing]
    faults += [f"{new} exists" for new in files.values() if new in tree.texts and new not in files]
    faults += [f"{new} has two sources" for new, n in Counter(files.values()).items() if n > 1]
    removed = [*_emptied(tree, files)]
    after = {files.get(path, path) for path in tree.texts} - set(removed)
    made = {f"{_place(name)}/__init__.py": text for name, text in move.docstrings.items()}
    faults += [f"{path} exists; its docstring is there" for path in made if path in after]
    faults += [
        f"{folder} would be a new package; give its docstring"
        for folder in sorted(_without_init(after | set(made)))
    ]
    folders = {str(parent) for path in after for parent in PurePosixPath(path).parents}
    faults += [
        f"{path} would stand beside a package of its name"
        for path in sorted(after | set(made))
        if path.endswith(".py") and path.removesuffix(".py") in folders
    ]
    if faults:
        raise RefusedError(f"{move.name}: {'; '.join(faults)}")
    texts = [text for text in tree.texts.values() if text is not None]
    moved = Moved(tree.texts, files, texts)
    written = {path: f'"""{text}"""\n' for path, text in made.items()}
    notes: list[str] = []
    for path, text in sorted(tree.texts.items()):
        if text is None or path in removed or path.endswith(TABLE_SUFFIX):
            continue
        new, said = rewrite(path, text, moved)
        notes += said
        if new != text:
            written[files.get(path, path)] = new
            notes += _too_long(files.get(path, path), new, text)
    return Done(files, written, removed, notes)


def _place(name: str) -> str:
    return f"{PACKAGE}/{name.replace('.', '/')}"


def _files(move: Move, tree: Tree, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the new path of every file that moves, the unit tests of modules included."""
    files: dict[str, str] = {}
    mirrored: dict[str, str] = {}
    for old, new in pairs:
        for path in tree.under(old):
            files[path] = new + path[len(old) :]
        for test, place in _mirror(old, new):
            for path in tree.under(test):
                mirrored[path] = place + path[len(test) :]
    return mirrored | files


def _mirror(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield where the unit tests of a module or package are, and where they go."""
    if not old.startswith(f"{PACKAGE}/"):
        return
    source, target = old.removeprefix(f"{PACKAGE}/"), new.removeprefix(f"{PACKAGE}/")
    if not source.endswith(".py"):
        yield f"tests/unit/{source}", f"tests/unit/{target}"
        return
    before, after = PurePosixPath(source), PurePosixPath(target)
    yield (
        f"tests/unit/{before.parent / f'test_{before.name}'}",
        f"tests/unit/{after.parent / f'test_{after.name}'}",
    )


def _emptied(tree: Tree, files: Mapping[str, str]) -> Iterator[str]:
    """Yield the ``__init__`` of every package from which all else has gone."""
    for folder in sorted({dirname(path) for path in files if path.startswith(f"{PACKAGE}/")}):
        init = f"{folder}/__init__.py"
        after = {files.get(path, path) for path in tree.texts}
        stays = init in tree.texts and init not in files
        if stays and not any(path.startswith(f"{folder}/") and path != init for path in after):
            yield init


def _without_init(paths: set[str]) -> set[str]:
    """Return the folders of the package with modules that would be no package."""
    folders = {
        str(parent)
        for path in paths
        if path.startswith(f"{PACKAGE}/") and path.endswith(".py")
        for parent in list(PurePosixPath(path).parents)[:-1]
    }
    return {folder for folder in folders if f"{folder}/__init__.py" not in paths}


def _too_long(path: str, new: str, old: str) -> Iterator[str]:
    """Name lines of code that have become too long, and that no formatter cuts."""
    known = set(old.splitlines())
    if path.endswith(".py"):
        for number, line in enumerate(new.splitlines(), start=1):
            stripped = line.lstrip()
            if len(line) > LINE and line not in known and not stripped.startswith("from "):
                yield f"{path}:{number}: {len(line)} columns"


def carry_out(root: Path, done: Done) -> None:
    """Do in the checkout what was planned, and stage it."""
    for old, new in done.files.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        _git(root, "mv", old, new)
    for folder in {root / dirname(old) for old in done.files}:
        _remove_emptied(folder)
    for path, text in done.written.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    if done.removed:
        _git(root, "rm", "--quiet", "--force", *done.removed)
    if done.written:
        _git(root, "add", *done.written)


def _remove_emptied(folder: Path) -> None:
    """Remove folders in which nothing is left but bytecode, which could still be imported."""
    while folder.is_dir() and all(each.name == "__pycache__" for each in folder.iterdir()):
        shutil.rmtree(folder)
        folder = folder.parent


def after(tree: Tree, done: Done) -> Tree:
    """Return the tree after a move."""
    texts = {done.files.get(path, path): text for path, text in tree.texts.items()}
    texts |= done.written
    return Tree({path: text for path, text in texts.items() if path not in done.removed})


def say(move: Move, done: Done) -> None:
    """Print what a move changes."""
    moved = len(done.files)
    print(f"{move.name}: {moved} files move, references change in {len(done.written)} files")
    for old, new in sorted(done.files.items()):
        print(f"  move {old} -> {new}")
    for path in done.removed:
        print(f"  remove {path}")
    for path in sorted(done.written):
        print(f"  write {path}")
    for note in done.notes:
        print(f"  look {note}")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (UnicodeDecodeError, OSError):
        return None


def main(arguments: list[str] | None = None, root: Path | None = None) -> int:
    """Do the moves of a table in their order."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", metavar="NAME", help="do this move alone")
    parser.add_argument("--dry-run", action="store_true", help="print the changes, make none")
    given = parser.parse_args(arguments)
    root = root or Path(__file__).resolve().parents[2]
    try:
        moves = load(given.table)
        if given.only is not None and all(move.name != given.only for move in moves):
            parser.error(f"no move is named {given.only}")
        chosen = [move for move in moves if given.only in (None, move.name)]
        tree = Tree.read(root)
        for move in chosen:
            done = plan(move, tree)
            if done is None:
                print(f"{move.name}: done before")
                continue
            say(move, done)
            if not given.dry_run:
                carry_out(root, done)
            tree = after(tree, done)
    except RefusedError as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
