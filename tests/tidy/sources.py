"""Where the tidy tests find the sources, and what every checker reports."""

from __future__ import annotations

import ast
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "kafka_keyshared"

# Folders that hold nothing written by hand.
_GENERATED = {"build", "dist", "node_modules", "__pycache__", "venv"}
_TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".xml", ".json", ".css", ".js", ".html"}


class Finding(NamedTuple):
    """A broken house rule: where, and what to do about it."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Module(NamedTuple):
    """A parsed source file; ``name`` is its dotted name, ``path`` relative to the checkout."""

    name: str
    path: str
    text: str
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


def parse(text: str, path: str = "kafka_keyshared/planted.py") -> Module:
    """A module from its text; the planted faults of the tests are made with it."""
    parts = Path(path).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return Module(".".join(parts), path, text, ast.parse(text))


def files(folder: str = ".") -> Iterator[Path]:
    """Every file that was written by hand, in a stable order."""
    for here, folders, names in os.walk(ROOT / folder):
        folders[:] = sorted(
            name
            for name in folders
            if name not in _GENERATED
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name == ".ci")
        )
        for name in sorted(names):
            yield Path(here, name)


def texts() -> Iterator[tuple[str, str]]:
    """Path and text of every hand-written text file."""
    for path in files():
        if path.suffix in _TEXT or path.name == "Makefile" or path.parent.name == ".ci":
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@cache
def modules(folder: str) -> tuple[Module, ...]:
    """The Python modules below a folder of the checkout."""
    with _made_to_stay():
        return tuple(
            parse(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
            for path in files(folder)
            if path.suffix == ".py"
        )


@contextmanager
def _made_to_stay() -> Iterator[None]:
    """Make objects in which Python never looks for garbage: that took longer than to make them.

    What is garbage before goes first, as nobody would look for it any more.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def walk(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Every node of a module, walked once for all checkers."""
    return tuple(ast.walk(tree))


def report(findings: list[Finding]) -> str:
    """All findings, one a line: what a failing test shows."""
    return "\n".join(map(str, findings))
