"""A checker for links between the documents of the checkout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from posixpath import normpath

from tests.tidy.sources import Finding

_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"`[^`]*`")
_INLINE = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)")
_REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s*<?(\S+?)>?(?:\s+[\"'(].*)?$")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$")
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines of a document outside fenced code."""
    fence = None
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _FENCE.match(line):
            mark = match.group(1)
            fence = mark if fence is None else None if fence == mark else fence
        elif fence is None:
            yield number, line


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, made as the common hosting sites make them."""
    found: set[str] = set()
    for _, line in _prose(text):
        if match := _HEADING.match(line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
            number, unique = 0, slug
            while unique in found:
                number += 1
                unique = f"{slug}-{number}"
            found.add(unique)
    return found


def check_links(
    path: str, text: str, exists: Callable[[str], bool], read: Callable[[str], str]
) -> list[Finding]:
    """Links of the document at ``path`` that lead nowhere.

    ``exists`` and ``read`` answer for a path relative to the checkout; what lies outside of it is
    not followed.
    """
    found = []
    for number, line in _prose(text):
        prose = _CODE.sub("", line)
        targets = [match.group(1) for match in _INLINE.finditer(prose)]
        if match := _REFERENCE.match(prose):
            targets.append(match.group(1))
        for target in targets:
            if _ELSEWHERE.match(target):
                continue
            name, _, anchor = target.partition("#")
            there = normpath(str(PurePosixPath(path).parent / name)) if name else path
            where = f"{path}:{number}"
            if there.startswith("..") or not exists(there):
                found.append(Finding(where, f"links to {target}, which does not exist"))
            elif anchor and there.endswith(".md") and anchor not in anchors(read(there)):
                found.append(Finding(where, f"links to {target}, which has no such heading"))
    return found
