"""A running instance as the command line reaches it: its status, and orders to it, over HTTP."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafka_keyshared.doctor.instance import PATH, ask_status, status_address
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.status import Status, SubscriptionStatus
from kafka_keyshared.web.acting import read_token

MORE_SECONDS = 5.0
"""An answer may take so much longer than what was ordered."""

MOST_BYTES = 1 << 20


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


def order(url: str, path: str, token: str, what: Mapping[str, Any], seconds: float) -> Any:
    """Order something of an instance, and return its answer; ``seconds`` are what it may take.

    Raises :class:`KeySharedError` with its reason where it is not done.
    """
    address = status_address(url).removesuffix(PATH) + path
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(what).encode(), headers)
    # Straight there: a proxy of the environment knows nothing of this machine's ports.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=seconds + MORE_SECONDS) as answer:
            return json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(2_000).decode("utf-8", "replace").strip()
        raise KeySharedError(f"{address}: {said or error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise KeySharedError(f"{address}: no answer: {reason}") from error
