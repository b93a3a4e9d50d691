"""A status line at the bottom of the terminal, below the log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

PER_SECOND = 2


class Live:
    """A live line: callers set ``text``, and a thread of rich draws it a few times a second.

    Therefore no caller ever waits for a terminal that has been stopped.
    """

    def __init__(self) -> None:
        self.text = ""

    def __rich__(self) -> Text:
        """Return the text to draw."""
        from rich.text import Text

        return Text(self.text, overflow="ellipsis", no_wrap=True)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw the line while the context is open."""
        from rich.console import Console
        from rich.live import Live as Region

        console = Console(stderr=True)
        with Region(
            self,
            console=console,
            refresh_per_second=PER_SECOND,
            transient=True,
            # Handler output to a file or a pipe is not redirected.
            redirect_stdout=sys.stdout.isatty(),
        ):
            # A process that must end without waiting could not restore the cursor.
            console.show_cursor(True)
            yield


def live_on_terminal() -> tuple[Live | None, AbstractContextManager[None]]:
    """Return a live line and its context; neither when standard error is not a terminal."""
    if not sys.stderr.isatty():
        return None, nullcontext()
    live = Live()
    return live, live.shown()
