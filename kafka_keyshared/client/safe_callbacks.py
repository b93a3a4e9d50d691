"""Callback wrappers that let no exception out.

An exception would lose records in the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka_keyshared.logs import log_of

log = log_of("kafka_keyshared.kafka")


def in_turn(*callbacks: Callable[..., None]) -> Callable[..., None]:
    """Return one callback that calls all of them in order."""

    def both(*args: Any) -> None:
        for callback in callbacks:
            callback(*args)

    return both


def shielded(
    callback: Callable[..., None], name: str, ended: Callable[[BaseException], None]
) -> Callable[..., None]:
    """Return the callback in a wrapper that logs every exception instead of raising it.

    ``ended`` receives exceptions that end the program (``SystemExit``, ``KeyboardInterrupt``). Out
    of a callback they would lose records like any other, and the client might then never close.
    """

    def shield(*args: Any) -> None:
        try:
            callback(*args)
        except Exception:
            log.exception("%s failed; the exception stops here, or records would be lost", name)
        except BaseException as error:  # noqa: BLE001 - raised again once the instance has stopped
            log.warning("%s raised %s: the instance stops first", name, type(error).__name__)
            ended(error)

    return shield


class Running:
    """Whether one of the callbacks that went through :meth:`mark` is running."""

    def __init__(self) -> None:
        self.now = False

    def mark(self, callback: Callable[..., None]) -> Callable[..., None]:
        """Return the callback in a wrapper that tells when it runs."""

        def marked(*args: Any) -> None:
            self.now = True
            try:
                callback(*args)
            finally:
                self.now = False

        return marked


def hook(
    conf: dict[str, Any],
    ours: Mapping[str, Callable[..., None]],
    ended: Callable[[BaseException], None],
) -> None:
    """Put our callbacks into a client's configuration, each before the user's own of that name."""
    for name in (*ours, "throttle_cb"):
        given = [each for each in (ours.get(name), conf.get(name)) if callable(each)]
        if given:
            conf[name] = in_turn(*[shielded(each, name, ended) for each in given])
