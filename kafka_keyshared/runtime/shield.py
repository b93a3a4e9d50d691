"""Callbacks out of which no exception comes: one would lose records in the client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger("kafka_keyshared.kafka")


def in_turn(*callbacks: Callable[..., None]) -> Callable[..., None]:
    """Return one callback that calls all."""

    def both(*args: Any) -> None:
        for callback in callbacks:
            callback(*args)

    return both


def shielded(callback: Callable[..., None], name: str) -> Callable[..., None]:
    """Return the callback so wrapped that no exception leaves it; it is logged instead."""

    def shield(*args: Any) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("%s failed; the exception stops here, or records would be lost", name)

    return shield
