"""HTTP access to a running instance: its status, and orders."""

from __future__ import annotations

from pathlib import Path

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.observability.doctor.instance import ask_status, status_address
from kafka_keyshared.observability.web.commands import read_token
from kafka_keyshared.status import Status, SubscriptionStatus


def status_of(url: str, *, pending: bool = False) -> Status:
    """Return the status of an instance; ``url`` is as the user typed it.

    Raises :class:`KeySharedError` with the reason and the cure when there is no status.
    """
    answer = ask_status(status_address(url) + ("?pending" if pending else ""))
    if answer.status is None:
        wrong = answer.wrong
        raise KeySharedError("no status" if wrong is None else f"{wrong.why}; {wrong.cure}")
    return answer.status


def only_subscription(status: Status) -> SubscriptionStatus:
    """Return the only subscription of an instance."""
    return status.subscriptions[0]


def may_order(
    verb: str, url: str | None, token_file: Path | None, *, execute: bool
) -> tuple[str, str | None]:
    """Return the address of an instance, and its token if ``execute`` is set.

    Raises :class:`ConfigError` when an option for that is missing.
    """
    if url is None:
        raise ConfigError(f"{verb}: give --status-url, the address of the instance's --http-port")
    if not execute:
        return url, None
    if token_file is None:
        raise ConfigError(
            f"{verb} --execute: give --token-file, the file that is http_token_file of the instance"
        )
    return url, read_token(str(token_file))
