"""``keyshared top``: a running instance on the terminal, refreshed once a second."""

from __future__ import annotations

from kafka_keyshared.errors import MissingPartError
from kafka_keyshared.observability.admin_client import AdminClient


def top_verb(url: str, *, keys: bool) -> int:
    """Show it until the user presses q; raise :class:`MissingPartError` without the extra."""
    try:
        from kafka_keyshared.cli.tui import Screen
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"keyshared top: {error.name} is not installed: pip install 'kafka-keyshared[tui]'"
        ) from error
    instance = AdminClient(url)
    instance.status()  # an unreachable instance is reported here, before the screen starts
    Screen(instance.status, where=url, keys=keys).run()
    return 0
