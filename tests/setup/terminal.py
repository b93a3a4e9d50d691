"""Draws docs/assets/terminal.svg: what `make demo` looks like, from a run of it on a terminal.

``python tests/setup/terminal.py`` runs the whole demo, so what the picture says has happened on the
machine that drew it. The picture names no font and no file from elsewhere.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "assets" / "terminal.svg"
PROMPT = "\x1b[1;32m$\x1b[0m \x1b[1mmake demo\x1b[0m"
WIDTH = 80

# Rich's own form loads its font from another server.
_FORM = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<title>make demo</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-family: sans-serif; font-size: 18px; font-weight: bold; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_CONTROL = re.compile(r"\x1b\[(?P<number>[0-9;?]*)(?P<what>[A-Za-z])")


def record(arguments: Sequence[str] = ()) -> list[str]:
    """Run ``keyshared demo`` on a terminal; return the lines that are left on it at the end.

    Raises :class:`SystemExit` when the demo finds something wrong.
    """
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "kafka_keyshared.cli", "demo", *arguments]
    size = {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": "40"}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, **size},
    ) as process:
        os.close(terminal)
        shown = b"".join(iter(lambda: _read(controller), b""))
        status = process.wait(60)
    os.close(controller)
    if status:
        raise SystemExit(f"the demo ended with {status}; there is nothing to be proud of")
    return screen(shown.decode("utf-8"))


def _read(controller: int) -> bytes:
    try:
        return os.read(controller, 65_536)
    except OSError:
        return b""  # how Linux says that the other side has closed


def screen(shown: str) -> list[str]:
    """Return the lines that a terminal shows after this, with their colours.

    Progress is drawn over itself by going up and clearing lines; nothing else of a terminal is
    understood, because the demo uses nothing else.
    """
    lines, row = [""], 0
    for piece in re.split(r"(\n|\r|\x1b\[[0-9;?]*[A-Za-z])", shown):
        control = _CONTROL.fullmatch(piece)
        if piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif control and control["what"] == "A":
            row = max(0, row - int(control["number"] or 1))
        elif control and control["what"] == "K":
            lines[row] = ""
        elif piece != "\r" and (control is None or control["what"] == "m"):
            lines[row] += piece
    while lines and not re.sub(_CONTROL, "", lines[-1]).strip():
        lines.pop()
    return lines


# Which sides of its cell a piece of a border reaches. Fonts leave gaps between lines, so borders
# are drawn and not written.
_BORDERS = {
    "─": "lr",
    "│": "ud",
    "┌": "rd",
    "┐": "ld",
    "└": "ru",
    "┘": "lu",
    "├": "rud",
    "┤": "lud",
    "┬": "lrd",
    "┴": "lru",
    "┼": "lrud",
}
# A cell of rich's pictures, for letters of 20 pixels.
_CELL_WIDTH, _CELL_HEIGHT = 12.2, 24.4
_TO_SIDE = {
    "l": f"h{-_CELL_WIDTH / 2:g}",
    "r": f"h{_CELL_WIDTH / 2:g}",
    "u": f"v{-_CELL_HEIGHT / 2:g}",
    "d": f"v{_CELL_HEIGHT / 2:g}",
}


def borders(lines: Sequence[str]) -> str:
    """Return the borders in these lines as one path, from the middle of each cell to its sides."""
    strokes = []
    for row, line in enumerate(lines):
        for column, piece in enumerate(re.sub(_CONTROL, "", line)):
            if piece in _BORDERS:
                # Where rich puts the background of a cell: 1.5 below the top of its line.
                x, y = (column + 0.5) * _CELL_WIDTH, (row + 0.5) * _CELL_HEIGHT + 1.5
                strokes += [f"M{x:g} {y:g}{_TO_SIDE[side]}" for side in _BORDERS[piece]]
    return f'<path d="{"".join(strokes)}" fill="none" stroke="#c5c8c6" stroke-width="1.5"/>'


def draw(lines: Sequence[str]) -> str:
    """Return the picture of a terminal that shows these lines."""
    from rich.console import Console
    from rich.text import Text

    console = Console(
        record=True, file=io.StringIO(), width=WIDTH, force_terminal=True, color_system="truecolor"
    )
    for line in lines:
        written = line.translate(dict.fromkeys(map(ord, _BORDERS), " "))
        console.print(Text.from_ansi(written), soft_wrap=False)
    form = _FORM.replace("{matrix}", "{matrix}\n" + borders(lines))
    drawn = console.export_svg(title="kafka-keyshared", code_format=form, unique_id="demo")
    return "\n".join(line.strip() for line in drawn.splitlines() if line.strip()) + "\n"


def text_of(picture: str) -> list[str]:
    """Return what a picture says, line by line, as text without colours."""
    rows: dict[float, str] = {}
    found = re.findall(r'<text class="demo-r\d+"[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', picture)
    for y, text in found:
        rows[float(y)] = rows.get(float(y), "") + text
    unescaped = (
        text.replace("&#160;", " ").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        for _, text in sorted(rows.items())
    )
    return [text.rstrip() for text in unescaped]


def main() -> int:
    """Draw the picture; return the exit status."""
    PICTURE.write_text(draw([PROMPT, *record()]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
