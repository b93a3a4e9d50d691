"""Access rules for HTTP requests on the admin and metrics ports.

A page of another site in a browser must not reach an instance (cross-site requests). Nor may a
browser for which an attacker's name resolves to this machine (DNS rebinding). Requests from other
machines need the token to act, or to read the admin API. The guard trusts nothing that a browser
adds by itself: there are no cookies.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from kafka_keyshared.config.http_options import LOOPBACK
from kafka_keyshared.observability.web.commands import RequestRefusal, without_token

MOST_BYTES = 1 << 20
"""Maximum length of a request body."""

SAME = frozenset({"", "same-origin", "none"})
"""Values of ``Sec-Fetch-Site`` for requests from the instance's own page or typed by the user."""


class RequestGuard:
    """Judges requests. ``host`` is the listening address, ``token`` the token for orders.

    On any address that is not loopback, everything on the admin port needs the token.
    """

    def __init__(self, host: str, token: str | None) -> None:
        self._local = is_loopback(host)
        self._token = token

    def refuse_page(self, headers: Mapping[str, str]) -> RequestRefusal | None:
        """Return why a request is refused that a web page may have caused; None if it is allowed.

        Checks ``Host`` (only on a loopback address: pods are reached by many names), ``Origin`` and
        ``Sec-Fetch-Site``. Probes and scrapes are not checked: they use any name.
        """
        host = headers.get("host", "")
        if self._local and not is_loopback(_name(host)):
            return RequestRefusal(
                421, f"this is not {host!r}: ask for 127.0.0.1, localhost or [::1], as it listens"
            )
        origin = headers.get("origin", "")
        if origin and origin.partition("://")[2] != host:
            return RequestRefusal(403, f"pages of {origin!r} may not ask this")
        if headers.get("sec-fetch-site", "") not in SAME:
            return RequestRefusal(403, "pages of other sites may not ask this")
        return None

    def refuse(self, method: str, headers: Mapping[str, str]) -> RequestRefusal | None:
        """Return why a request to the admin API is refused, None if it is allowed."""
        refusal = self.refuse_page(headers)
        if refusal is not None:
            return refusal
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:12]) > MOST_BYTES:
            return RequestRefusal(413, f"a body has a Content-Length of {MOST_BYTES:,} at most")
        if method in {"GET", "HEAD"} and self._local:
            return None
        return without_token(self._token, headers.get("authorization", ""))


def _name(host: str) -> str:
    """Return the name of a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_loopback(name: str) -> bool:
    """Return whether an address or a name means this machine on every machine."""
    if name.lower() in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
