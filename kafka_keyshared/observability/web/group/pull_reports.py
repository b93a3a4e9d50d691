"""A source of reports that queries the admin APIs of listed addresses.

Only addresses from the settings are queried, with this instance's own token, and never an address
from a topic. A name with many addresses, such as a headless service, means all of them.
"""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple

import msgspec

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import some
from kafka_keyshared.observability.web.commands import NAME_HEADER
from kafka_keyshared.observability.web.group.report import (
    MOST_BYTES,
    InstanceReport,
    key_of,
    unpacked,
)
from kafka_keyshared.observability.web.group.subscribe import News

PATH = "/api/v1/report"

WITHIN = 2.0
"""Seconds that an answer may take."""
EVERY = 2.0
"""Seconds between two rounds."""
AT_ONCE = 8
"""Number of concurrent queries."""
MOST = 200
"""Maximum number of addresses."""

_PART = 1 << 16


class Address(NamedTuple):
    """The address of an admin API."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(text: str) -> Address:
    """Return the address that a setting names, ``host:port``."""
    host, _, port = text.removeprefix("http://").rpartition(":")
    return Address(host.strip("[]"), int(port))


class AddressesEar:
    """Queries every address periodically, a few at once.

    ``asker`` is the querying instance. A stopping instance waits briefly until each asker has
    received its last report.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        group: str,
        token: str | None,
        asker: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._named = [address_of(each) for each in addresses]
        self._group = group
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._headers |= {NAME_HEADER: asker} if asker else {}
        self._clock = clock
        self._asking = ThreadPoolExecutor(AT_ONCE, "keyshared-group-asks")
        self._next_at = clock()
        self._answering: set[Address] = set()
        self.caught_up = False
        self.troubles: tuple[str, ...] = ()

    def hear(self, timeout: float) -> Iterable[News]:
        """Return the answers of a round, once it is due."""
        if (wait := self._next_at - self._clock()) > 0:
            time.sleep(min(wait, timeout))
            return []
        self._next_at = self._clock() + EVERY
        troubles: list[str] = []
        found = []
        named = self._resolved(troubles)
        # DNS may drop an address as soon as its instance begins to stop, before its last report is
        # read.
        asked = [*named, *sorted(self._answering - {*named})]
        self._answering = set()
        for address, answer in zip(asked, self._asking.map(self._ask, asked), strict=True):
            if isinstance(answer, InstanceReport):
                self._answering.add(address)
                found.append(News(key_of(answer.group, answer.instance), answer))
            elif address in named:
                troubles.append(answer)
        self.troubles = tuple(troubles)
        self.caught_up = True
        return found

    def close(self) -> None:
        """Stop querying."""
        self._asking.shutdown(wait=False, cancel_futures=True)

    def _resolved(self, troubles: list[str]) -> list[Address]:
        found: dict[Address, None] = {}
        for host, port in self._named:
            try:
                told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                troubles.append(f"{host}: the name is not known: {error.strerror or error}")
                continue
            found |= {Address(str(each[4][0]), port): None for each in told}
        if len(found) > MOST:
            left = some(list(found)[MOST:], 3)
            troubles.append(f"{len(found)} addresses, of which {MOST} are asked; not {left}")
        return list(found)[:MOST]

    def _ask(self, address: Address) -> InstanceReport | str:
        """Return the report of an address, or the problem instead."""
        try:
            status, body = self._answer(address)
            if status != http.HTTPStatus.OK:
                return f"{address}: {status}: {_said(body)}"
            report = unpacked(body)
        except (KeySharedError, OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            return f"{address}: no report: {reason}"
        if report.group != self._group:
            return f"{address}: it is of the group {report.group!r}"
        return report

    def _answer(self, address: Address) -> tuple[int, bytes]:
        until = self._clock() + WITHIN
        with closing(http.client.HTTPConnection(*address, timeout=WITHIN)) as connection:
            connection.request("GET", PATH, headers=self._headers)
            answer = connection.getresponse()
            body = bytearray()
            while part := answer.read1(_PART):
                body += part
                if len(body) > MOST_BYTES:
                    raise KeySharedError(f"it answers more than {MOST_BYTES:,} bytes")
                if self._clock() > until:
                    raise KeySharedError(f"it has not answered to the end within {WITHIN:g} s")
            return answer.status, bytes(body)


class _RefusalAnswer(msgspec.Struct):
    refused: str


def _said(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_RefusalAnswer).refused[:200]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return " ".join(body[:200].decode("utf-8", "replace").split())
