"""A guard around the user's ``oauth_cb``, and the source of tokens.

The client calls ``oauth_cb`` on a thread of its own, for each client that is made (confluent-kafka
2.13 and later). An exception out of it reaches the client as "OAuth callback raised exception". An
answer that is no token is not reported at all, and the client then never asks again. The guard
keeps the reason, logs it and turns a wrong answer into an exception. After an exception the client
asks again in 10 s.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka_keyshared.logs import Seldom, log_of

log = log_of("kafka_keyshared.kafka")

NO_SOURCE = (
    "'sasl.mechanism' is OAUTHBEARER and no setting names a source of tokens: set "
    "sasl.oauthbearer.method=oidc with its endpoint, or give oauth_cb in a program; keyshared dlq "
    "and keyshared advise take it from an app with --app MODULE:ATTR, keyshared doctor and run as "
    "their argument"
)
YOUNG = 0.5
"""Share of a token's lifetime after which another client gets a newly fetched one."""

_TOKEN = "return (token, expiry in seconds since 1970)"


class TokenCallback:
    """The user's ``oauth_cb``. ``failure`` is why its last call gave no token, empty if it did.

    A young token is returned again. The thread that makes a client waits for a token, and several
    clients of an instance start together. Clients ask again at 80% of a token's lifetime. Safe to
    call from several threads.
    """

    def __init__(
        self, callback: Callable[[str], Any], clock: Callable[[], float] = time.time
    ) -> None:
        self.callback = callback
        self.failure = ""
        self._clock = clock
        self._seldom = Seldom(log)
        # The last token, and the time until which it is young.
        self._last: tuple[Any, float] | None = None

    def __call__(self, config: str) -> Any:
        """Return the user's token. Raises the callback's exception, TypeError for no token."""
        last = self._last
        if last is not None and self._clock() < last[1]:
            return last[0]
        try:
            token = self.callback(config)
            _check(token)
        except BaseException as error:
            self.failure = f"oauth_cb raised {type(error).__name__}: {error}"
            self._seldom.warning(
                type(error).__name__,
                f"no token: {self.failure}; no connection can be opened without one, the client "
                "asks again every 10 s",
            )
            raise
        now = self._clock()
        self._last = token, now + YOUNG * (token[1] - now)
        if self.failure:
            self.failure = ""
            log.info("oauth_cb returns tokens again")
        return token


def _check(token: object) -> None:
    """Raise :class:`TypeError` for a value that the client would not recognise as a token."""
    if not isinstance(token, tuple) or not 2 <= len(token) <= 4:
        raise TypeError(f"oauth_cb returned {_shape(token)}: {_TOKEN}")
    text, expiry = token[:2]
    if not isinstance(text, str) or isinstance(expiry, bool) or not isinstance(expiry, int | float):
        raise TypeError(f"oauth_cb returned {_shape(token)}: {_TOKEN}")


def _shape(token: object) -> str:
    """Return the types of a token. Its text is a secret."""
    if isinstance(token, tuple):
        return f"({', '.join(type(each).__name__ for each in token)})"
    return type(token).__name__


def with_guarded_tokens(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with ``oauth_cb`` in a :class:`TokenCallback`; guards it once only."""
    callback = conf.get("oauth_cb")
    if not callable(callback) or isinstance(callback, TokenCallback):
        return dict(conf)
    return {**conf, "oauth_cb": TokenCallback(callback)}


def needs_tokens(conf: Mapping[str, Any]) -> bool:
    """Return whether connections are opened with a token (SASL/OAUTHBEARER)."""
    mechanism = conf.get("sasl.mechanism") or conf.get("sasl.mechanisms") or ""
    protocol = str(conf.get("security.protocol", "")).lower()
    return str(mechanism).upper() == "OAUTHBEARER" and protocol.startswith("sasl")


def no_token(conf: Mapping[str, Any], heard: str) -> str | None:
    """Return why there is no token, None if a missing token is not the cause.

    ``heard`` is the client's latest error text.
    """
    if not needs_tokens(conf):
        return None
    callback = conf.get("oauth_cb")
    if isinstance(callback, TokenCallback) and callback.failure:
        return callback.failure
    source = _source(conf)
    if source is None:
        return NO_SOURCE
    if "OAUTHBEARER token" in heard or "OAuth token" in heard:
        return f"{source}: {heard.rpartition('OAUTHBEARER token: ')[2]}"
    if "://" not in heard and "ipv" not in heard and "SASL authentication" not in heard:
        # No connection was tried. The client reports nothing while an identity provider is slow or
        # answers an HTTP status that leads to a retry.
        return f"{source} has given none yet: it is slow, or it answers 429 or 5xx"
    return None


def _source(conf: Mapping[str, Any]) -> str | None:
    """Return the source of tokens for a message."""
    if conf.get("oauth_cb") is not None:
        return "oauth_cb"
    if str(conf.get("sasl.oauthbearer.method", "")).lower() == "oidc":
        kind = str(conf.get("sasl.oauthbearer.metadata.authentication.type", "none")).lower()
        return str(conf.get("sasl.oauthbearer.token.endpoint.url") or f"the endpoint of {kind}")
    if str(conf.get("enable.sasl.oauthbearer.unsecure.jwt", "")).lower() in ("true", "t", "1"):
        return "enable.sasl.oauthbearer.unsecure.jwt"
    return None
