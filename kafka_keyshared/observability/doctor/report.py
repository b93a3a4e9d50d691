"""The doctor's text report: a line per check, then causes and cures."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence

from kafka_keyshared.model import counted
from kafka_keyshared.observability.doctor.findings import Check, CheckStatus, DoctorFinding, page_of

_STYLES = {
    CheckStatus.OK: "green",
    CheckStatus.WARN: "yellow",
    CheckStatus.FAIL: "bold red",
    CheckStatus.SKIPPED: "dim",
}
_INDENT = " " * 8


def write_report(found: Sequence[Check]) -> None:
    """Print the checks in their order. On a terminal all lines except cures are wrapped.

    A cure stays on one line, so that the command in it can be copied. If the output goes to a file
    or a program, no line is wrapped.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout)
    width = console.width if console.is_terminal else sys.maxsize
    named = max(len(check.name) for check in found)
    for check in found:
        start = f"{check.status.value:<7} {check.name:<{named}}  "
        line = Text(_broken(start + check.seen, width, " " * len(start)))
        line.stylize(_STYLES[check.status], 0, len(check.status.value))
        if check.status is CheckStatus.SKIPPED:
            line.stylize("dim")
        console.print(line, soft_wrap=True)
        for text, style in _explained(check, width):
            console.print(Text(text, style), soft_wrap=True)
    console.print(Text(_summed_up(found)), soft_wrap=True)


def _explained(check: Check, width: int) -> Iterator[tuple[str, str]]:
    by_cure: dict[str, list[DoctorFinding]] = {}
    for each in check.findings:
        by_cure.setdefault(each.cure, []).append(each)
    for cure, every in by_cure.items():
        for why in dict.fromkeys(each.why for each in every):
            yield _broken(f"{_INDENT}why: {why}", width, f"{_INDENT}     "), ""
        yield f"{_INDENT}cure: {cure}", "bold"
        yield f"{_INDENT}page: {page_of(every[0].kind)}", "dim"


def _broken(text: str, width: int, indent: str) -> str:
    """Return the text in lines of at most ``width`` characters, without breaking words."""
    return textwrap.fill(
        text,
        max(width, len(indent) + 20),
        subsequent_indent=indent,
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summed_up(found: Sequence[Check]) -> str:
    """Return the overall result in one line."""
    failed = [check.name for check in found if check.status is CheckStatus.FAIL]
    warned = [check.name for check in found if check.status is CheckStatus.WARN]
    if not failed and not warned:
        return "healthy"
    told = []
    if failed:
        told.append(f"{counted(len(failed), 'check')} failed: {', '.join(failed)}")
    if warned:
        told.append(f"{counted(len(warned), 'warning')}: {', '.join(warned)}")
    return "; ".join(told)
