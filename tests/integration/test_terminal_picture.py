"""The picture of the demo in the README is one of this demo, and the script draws such pictures."""

from __future__ import annotations

import re
from collections import Counter

from kafka_keyshared.cli.demo import WORDS
from kafka_keyshared.lab.demo.data import CANCELLED, RECORDS
from tests.setup import terminal


def _labels(lines: list[str]) -> list[str]:
    """What each line of the progress and the table is about, without its numbers."""
    found = [re.match(r"\s*(\S.*?)(?: [━╸╺]|  +[\d,.]+$|  +yes$)", line) for line in lines]
    return [match[1] for match in found if match]


def test_the_committed_picture_shows_what_the_demo_shows() -> None:
    shown = terminal.text_of(
        terminal.draw([terminal.PROMPT, *terminal.record(["--records", "2000"])])
    )
    committed = terminal.text_of(terminal.PICTURE.read_text(encoding="utf-8"))
    again = "draw it again: python tests/setup/terminal.py"
    assert _labels(committed) == _labels(shown), again
    assert {"written", "dead letters", "records lost", "contract kept"} <= set(_labels(committed))
    assert committed[0] == shown[0] == "$make demo"  # a blank of no colour is not drawn
    text = "\n".join(committed)
    assert f"written ━━━━━━━━━━━━━━━━━━━━━━━━ {RECORDS:,} of {RECORDS:,}" in text, again
    assert re.search(rf" flights cancelled, in the dead-letter topic +{CANCELLED:,}$", text, re.M)
    for name in ("order_violations", "lost", "duplicates", "overlaps", "commits_past_unsettled"):
        assert re.search(rf" {WORDS[name]} +0$", text, re.M), again
    assert re.search(r" contract kept +yes$", text, re.M), again


def test_what_is_drawn_over_itself_is_shown_once() -> None:
    first, second = "\x1b[32m━━\x1b[0m 1 of 2", "\x1b[32m━━\x1b[0m 2 of 2"
    shown = f"begin\r\n{first}\r\nbelow\x1b[?25l\r\x1b[2K\x1b[1A\x1b[2K{second}\r\nbelow\r\n\r\n"
    assert terminal.screen(shown) == ["begin", second, "below"]


def test_a_picture_says_what_was_on_the_terminal() -> None:
    lines = ["\x1b[1mtitle\x1b[0m  <b> & c", "│ ok │ yes │"]
    assert terminal.text_of(terminal.draw(lines)) == ["title  <b> & c", "  ok   yes"]


def test_borders_are_drawn_from_cell_to_cell_without_a_gap() -> None:
    """Written, they have gaps in every font that is lower than its line."""
    picture = terminal.draw(["┌─┐", "│x│", "└─┘"])
    (path,) = re.findall(r'<path d="([^"]+)" fill="none"', picture)
    ends = []
    for x, y, way, length in re.findall(r"M([\d.]+) ([\d.]+)([hv])(-?[\d.]+)", path):
        x_end, y_end = (
            (float(x) + float(length), float(y))
            if way == "h"
            else (float(x), float(y) + float(length))
        )
        ends.append((round(x_end, 2), round(y_end, 2)))
    # Eight pieces of two strokes each; every stroke ends where its neighbour's does.
    assert len(ends) == 16
    assert set(Counter(ends).values()) == {2}
    assert not re.search("[─│┌┐└┘]", picture)
