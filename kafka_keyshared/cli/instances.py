"""A running instance as the command line reaches it: its status, and orders to it, over HTTP."""

from __future__ import annotations

from pathlib import Path

from kafka_keyshared.doctor.instance import ask_status, status_address
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.status import Status, SubscriptionStatus
from kafka_keyshared.web.acting import read_token


def status_of(url: str, *, pending: bool = False) -> Status:
    """Return what an instance says of itself; ``url`` is as somebody types it.

    Raises :class:`KeySharedError` that says why nothing is known, and what to do.
    """
    answer = ask_status(status_address(url) + ("?pending" if pending else ""))
    if answer.status is None:
        wrong = answer.wrong
        raise KeySharedError("no status" if wrong is None else f"{wrong.why}; {wrong.cure}")
    return answer.status


def only_subscription(status: Status) -> SubscriptionStatus:
    """Return the subscription of an instance, of which there is one."""
    return status.subscriptions[0]


def may_order(
    verb: str, url: str | None, token_file: Path | None, *, execute: bool
) -> tuple[str, str | None]:
    """Return where an instance is, and its token if something is to be done there.

    Raises :class:`ConfigError` where the command line does not say what that takes.
    """
    if url is None:
        raise ConfigError(f"{verb}: give --status-url, where the instance's --http-port is")
    if not execute:
        return url, None
    if token_file is None:
        raise ConfigError(
            f"{verb} --execute: give --token-file, a file with the token that the instance has "
            "as http_token_file"
        )
    return url, read_token(str(token_file))
