"""A line that stays at the bottom of a terminal, while the log goes by above it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

PER_SECOND = 2


class Live:
    """Whoever has something to show sets ``text``; a thread of rich draws it a few times a second.

    So nobody else ever waits for a terminal that has been stopped.
    """

    def __init__(self) -> None:
        self.text = ""

    def __rich__(self) -> Text:
        """Return what is drawn."""
        from rich.text import Text

        return Text(self.text, overflow="ellipsis", no_wrap=True)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw it for as long as this lasts."""
        from rich.console import Console
        from rich.live import Live as Region

        console = Console(stderr=True)
        with Region(
            self,
            console=console,
            refresh_per_second=PER_SECOND,
            transient=True,
            # What a handler prints into a file or a pipe goes there.
            redirect_stdout=sys.stdout.isatty(),
        ):
            # A process that has to end without waiting cannot bring it back.
            console.show_cursor(True)
            yield


def live_on_terminal() -> tuple[Live | None, AbstractContextManager[None]]:
    """Return a live line and what shows it; nothing where nobody looks at a terminal."""
    if not sys.stderr.isatty():
        return None, nullcontext()
    live = Live()
    return live, live.shown()
