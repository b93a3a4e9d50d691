"""Reads the documents: their fenced blocks, and the notes in comments that say how they are run.

A note is a comment in the Markdown, which no reader of the rendered page sees. One on the lines
just above a block is about this block:

    <!-- run: file app.py -->              save the block under this name, and check that it parses
    <!-- run: until "caught up" -->        run the commands until a line with this text comes, then
                                           press Ctrl-C: they must end with status 0
    <!-- run: beside until "started" -->   the same, but they stay until the page ends
    <!-- run: exit 3 -->                   they must end with this status
    <!-- run: output -->                   the block is what the block before it printed; a line
                                           `…` stands for any number of lines, `…` in a line for
                                           anything
    <!-- run: output measured -->          the same, where numbers with a point in them and those of
                                           something a second (`322/s`) are others each time

One above the first heading or between blocks is about the page, and is done when its turn comes:

    <!-- run: topic orders 200 -->         make this topic, with so many records
    <!-- run: broker goes until "away" --> the broker ends, as in a crash; wait until what was
                                           started beside says this (`comes until …`: it starts)
    <!-- run: python                       Python that the reader need not see; `printed` in it is
                                           what the block before it printed
    conf = {...}
    -->
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<language>[^`\s]*)\s*$")
_NOTE = re.compile(r"^ *<!--\s*run:(?P<text>.*?)(?P<end>-->)?\s*$")
BLOCK_NOTES = {"file", "until", "beside", "exit", "output"}
PAGE_NOTES = {"topic", "python", "broker"}
BROKER = (("goes",), ("comes",))


class PageError(Exception):
    """A document says something about its blocks that nobody understands."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a comment says; ``text`` is the Python in it, for a note of that kind."""

    line: int
    words: tuple[str, ...]
    text: str = ""

    def value(self, word: str) -> str | None:
        """Return what follows a word; None where it is not said."""
        if word not in self.words[:-1]:
            return None
        return self.words[self.words.index(word) + 1]


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; ``line`` is that of its first line of text, from 1."""

    line: int
    language: str
    text: str
    note: Note | None = None

    def says(self, word: str) -> bool:
        """Whether its note has this word."""
        return self.note is not None and word in self.note.words

    def value(self, word: str) -> str | None:
        """Return what its note says after a word."""
        return None if self.note is None else self.note.value(word)


def documents() -> list[Path]:
    """Every document whose blocks are run: the front page and all of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    """Return a document's path inside the checkout."""
    return path.relative_to(ROOT).as_posix()


def parse(text: str) -> list[Note | Block]:
    """Return the notes and blocks of a document in their order.

    Raises :class:`PageError` for a note that is not understood, stands where it is about nothing,
    or for a fence that does not end.
    """
    found: list[Note | Block] = []
    pending: Note | None = None
    for item in _items(text):
        if isinstance(item, Note) and item.words[0] in BLOCK_NOTES:
            if pending is not None:
                raise PageError(f"line {pending.line}: two notes about one block")
            pending = item
        elif isinstance(item, Note):
            found.append(item)
        elif isinstance(item, Block):
            found.append(Block(item.line, item.language, item.text, pending))
            pending = None
        elif pending is not None:  # prose between a note and its block
            raise PageError(f"line {pending.line}: the note is not followed by a block")
    if pending is not None:
        raise PageError(f"line {pending.line}: the note is not followed by a block")
    return found


def _items(text: str) -> Iterator[Note | Block | str]:
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        if fence := _FENCE.match(line):
            mark, indent = fence["mark"], len(fence["indent"])
            body: list[str] = []
            for _, inner in lines:
                if inner.strip() == mark:
                    break
                body.append(inner[indent:] if not inner[:indent].strip() else inner)
            else:
                raise PageError(f"line {number}: the block does not end")
            yield Block(number + 1, fence["language"], "".join(f"{each}\n" for each in body))
        elif note := _NOTE.match(line):
            body = []
            if note["end"] is None:
                for _, inner in lines:
                    if inner.strip() == "-->":
                        break
                    body.append(inner)
                else:
                    raise PageError(f"line {number}: the comment does not end")
            yield _note(number, note["text"], "".join(f"{each}\n" for each in body))
        elif "<!--" in line and "run:" in line:
            raise PageError(f"line {number}: a note stands alone on its line")
        elif line.strip():
            yield line


def _note(number: int, said: str, text: str) -> Note:
    words = tuple(shlex.split(said))
    if not words or words[0] not in BLOCK_NOTES | PAGE_NOTES:
        known = ", ".join(sorted(BLOCK_NOTES | PAGE_NOTES))
        raise PageError(f"line {number}: a note begins with one of {known}; this one with {said!r}")
    needs_value = {"file", "until", "exit", "topic"} & set(words)
    if any(word == words[-1] for word in needs_value):
        raise PageError(f"line {number}: {words[-1]} what?")
    if words[0] == "beside" and "until" not in words:
        raise PageError(f"line {number}: beside needs until, the text that says it is ready")
    if words[0] == "broker" and not (words[1:2] in BROKER and "until" in words):
        raise PageError(f"line {number}: broker goes until what? broker comes until what?")
    if (words[0] == "python") is not bool(text):
        raise PageError(f"line {number}: a note of Python, and no other, has lines of its own")
    return Note(number, words, text)
