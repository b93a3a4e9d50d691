"""The guard around ``oauth_cb``: no reason is lost, and no wrong answer ends the asking."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kafka_keyshared.config import client_conf, connection_conf
from kafka_keyshared.config.tokens import (
    NO_SOURCE,
    YOUNG,
    TokenCallback,
    no_token,
    with_guarded_tokens,
)

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    **SASL,
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
}
REFUSED = "sasl_ssl://b:9093/1: Connect to ipv4#10.0.0.1:9093 failed: Connection refused"


class Source:
    """Returns tokens that live 100 s, of a clock that the test moves; or raises."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked = 0
        self.wrong: Any = None
        self.guard = TokenCallback(self.give, lambda: self.now)

    def give(self, _config: str) -> Any:
        self.asked += 1
        if isinstance(self.wrong, BaseException):
            raise self.wrong
        return self.wrong or (f"token-{self.asked}", self.now + 100.0)


@pytest.mark.parametrize("error", [RuntimeError("the service is down"), SystemExit(3)])
def test_why_a_callback_gave_no_token_is_kept_and_logged_once_a_minute(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kafka_keyshared")
    source = Source()
    source.wrong = error
    for _ in range(5):
        with pytest.raises(type(error)):
            source.guard("")
    assert source.guard.failure == f"oauth_cb raised {type(error).__name__}: {error}"
    (line,) = caplog.messages
    assert line.startswith(f"no token: {source.guard.failure}; no connection can be opened")
    source.wrong = None
    assert source.guard("") == ("token-6", 1_100.0)
    assert source.guard.failure == ""
    assert caplog.messages[1:] == ["oauth_cb returns tokens again"]


@pytest.mark.parametrize(
    ("answer", "shape"),
    [
        ("token", "str"),
        (b"t", "bytes"),
        (("token",), "(str)"),
        ((b"token", 1.0), "(bytes, float)"),
        (("token", "soon"), "(str, str)"),
        (("token", None), "(str, NoneType)"),
    ],
)
def test_an_answer_that_is_no_token_is_refused_so_that_the_client_asks_again(
    answer: Any, shape: str
) -> None:
    source = Source()
    source.wrong = answer
    with pytest.raises(TypeError, match="return \\(token, expiry in seconds since 1970\\)"):
        source.guard("")
    assert f"oauth_cb returned {shape}:" in source.guard.failure


def test_a_young_token_serves_all_clients_and_an_old_one_is_fetched_anew() -> None:
    source = Source()
    first = source.guard("")
    source.now += 100.0 * YOUNG - 0.1
    assert source.guard("") == first
    source.now += 0.2
    assert source.guard("") == ("token-2", source.now + 100.0)
    assert source.asked == 2


def test_all_clients_of_an_app_share_one_guard() -> None:
    conf = client_conf({"bootstrap.servers": "b:1", "group.id": "g", "oauth_cb": repr})
    guard = conf["oauth_cb"]
    assert isinstance(guard, TokenCallback)
    assert guard.callback is repr
    assert connection_conf(conf)["oauth_cb"] is guard
    assert with_guarded_tokens(conf)["oauth_cb"] is guard


@pytest.mark.parametrize(
    ("conf", "heard", "why"),
    [
        ({}, "timed out", None),
        (SASL, "timed out", NO_SOURCE),
        (
            OIDC,
            "Failed to acquire SASL OAUTHBEARER token: Could not connect to server",
            "https://idp/token: Could not connect to server",
        ),
        (
            OIDC,
            "Local: Timed out",
            "https://idp/token has given none yet: it is slow, or it answers 429 or 5xx",
        ),
        (OIDC, REFUSED, None),
        (
            {**SASL, "oauth_cb": repr},
            "OAuth token not set within 10 seconds timeout",
            "oauth_cb: OAuth token not set within 10 seconds timeout",
        ),
    ],
)
def test_an_outage_for_want_of_a_token_is_told_apart_from_one_of_the_brokers(
    conf: dict[str, Any], heard: str, why: str | None
) -> None:
    assert no_token(conf, heard) == why


def test_the_callbacks_own_reason_comes_first() -> None:
    source = Source()
    source.wrong = RuntimeError("no network")
    with pytest.raises(RuntimeError):
        source.guard("")
    conf = {**SASL, "oauth_cb": source.guard}
    assert no_token(conf, REFUSED) == "oauth_cb raised RuntimeError: no network"
