"""The picture of the demo in the README is one of this demo, and the script draws such pictures."""

from __future__ import annotations

import re

from kafka_keyshared.demo.data import CANCELLED, RECORDS
from tests.setup import terminal


def _labels(lines: list[str]) -> list[str]:
    """What each line of the progress and the table is about, without its numbers."""
    found = [re.match(r"\s*(?:│ )?([a-z_]+(?: letters)?)\s+[━╸╺│]", line) for line in lines]
    return [match[1] for match in found if match]


def test_the_committed_picture_shows_what_the_demo_shows() -> None:
    shown = terminal.text_of(
        terminal.draw([terminal.PROMPT, *terminal.record(["--records", "2000"])])
    )
    committed = terminal.text_of(terminal.PICTURE.read_text(encoding="utf-8"))
    again = "draw it again: python tests/setup/terminal.py"
    assert _labels(committed) == _labels(shown), again
    assert {"produced", "dead letters", "order_violations", "ok"} <= set(_labels(committed))
    assert committed[0] == shown[0] == "$make demo"  # a blank of no colour is not drawn
    text = "\n".join(committed)
    assert f"produced ━━━━━━━━━━━━━━━━━━━━━━━━ {RECORDS:,} of {RECORDS:,}" in text, again
    assert re.search(rf"│ dead_lettered +│ {CANCELLED:,} ", text), again
    for name in ("order_violations", "lost", "duplicates", "overlaps", "commits_past_unsettled"):
        assert re.search(rf"│ {name} +│ 0 ", text), again
    assert re.search(r"│ ok +│ True ", text), again


def test_what_is_drawn_over_itself_is_shown_once() -> None:
    first, second = "\x1b[32m━━\x1b[0m 1 of 2", "\x1b[32m━━\x1b[0m 2 of 2"
    shown = f"begin\r\n{first}\r\nbelow\x1b[?25l\r\x1b[2K\x1b[1A\x1b[2K{second}\r\nbelow\r\n\r\n"
    assert terminal.screen(shown) == ["begin", second, "below"]


def test_a_picture_says_what_was_on_the_terminal() -> None:
    lines = ["\x1b[1mtitle\x1b[0m  <b> & c", "│ ok │ True │"]
    assert terminal.text_of(terminal.draw(lines)) == ["title  <b> & c", "│ ok │ True │"]
