"""Tables of a page that are written from the package.

Each stands between two comments, ``<!-- table: … -->`` and ``<!-- end of table -->``. What is
around them is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

_END = "<!-- end of table -->"
_PLACE = re.compile(r"<!-- table: (?P<name>[\w ]+) -->\n(?P<table>.*?)" + _END, re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *(list(map(_cell, row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: Any) -> str:
    # What stands between backquotes is shown as it is; elsewhere <topic> would be a tag.
    parts = re.split(r"(`[^`]*`|<br>)", str(text).replace("|", r"\|"))
    return "".join(
        part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts)
    )


def filled(page: str, text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return the text of a page with its tables as they are now.

    Raises :class:`SystemExit` for a table that is nowhere on the page, and one that is none.
    """
    places = [place["name"] for place in _PLACE.finditer(text)]
    if sorted(places) != sorted(tables):
        raise SystemExit(f"{page} has the tables {places}; it must have {list(tables)}")

    def fill(place: re.Match[str]) -> str:
        name = place["name"]
        return f"<!-- table: {name} -->\n\n{tables[name]()}\n\n{_END}"

    return _PLACE.sub(fill, text)


def written(text: str, name: str) -> str:
    """Return the table of that name as it stands on a page.

    Raises :class:`SystemExit` where it does not.
    """
    for place in _PLACE.finditer(text):
        if place["name"] == name:
            return place["table"].strip()
    raise SystemExit(f"the page has no table {name!r}")


def others(text: str, name: str) -> dict[str, Callable[[], str]]:
    """Return all tables of a page but the one of that name, as they stand there."""
    names = [place["name"] for place in _PLACE.finditer(text) if place["name"] != name]
    return {each: partial(written, text, each) for each in names}
