"""A key as the status shows it."""

from __future__ import annotations

KEY_CHARS = 80
"""So much of a key tells it from others, and fits in a line."""


def key_text(key: bytes | None) -> str | None:
    """Return a key as it is shown, cut: its text, or ``hex:…``, as the command line takes it."""
    if key is None:
        return None
    start = key[: 4 * KEY_CHARS]
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        # A character that the cut goes through is no fault of the key's.
        if len(key) == len(start) or error.start < len(start) - 3:
            return f"hex:{start.hex()}"[:KEY_CHARS]
        text = start[: error.start].decode()
    return text[:KEY_CHARS]
