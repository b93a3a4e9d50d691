"""A client of a running instance's admin API: queries and orders.

It needs only the standard library and ``msgspec``::

    instance = AdminClient("http://127.0.0.1:8788", token=read_token("token"))
    print(instance.snapshot().diagnosis.text)
    instance.pause(topics=["orders"])

Every call raises :class:`KeySharedError` when there is no answer or the instance refuses. The error
names the request and the reason.
"""

from __future__ import annotations

import http.client
import urllib.parse
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

import msgspec

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.former_names import RefusesFormerNames
from kafka_keyshared.observability.doctor.instance import PATH, ask_status, status_address
from kafka_keyshared.observability.web.command_list import (
    VERBS,
    DeadLetterOrder,
    Done,
    DropOrder,
    FilterOrder,
    LettersOrder,
    LimitOrder,
    LogLevelOrder,
    OrderRefused,
    OrderRequest,
    PauseOrder,
    QuiesceOrder,
    RangeOrder,
    ReplayOrder,
    ResumeOrder,
    ScaleOrder,
    SlotOrder,
    UnblockOrder,
)
from kafka_keyshared.observability.web.commands import ACTIONS, NAME_HEADER
from kafka_keyshared.observability.web.group.view import GroupView
from kafka_keyshared.observability.web.snapshot import VERSION, DiagnosisView, InstanceSnapshot
from kafka_keyshared.status import Status

MORE_SECONDS = 15.0
"""Seconds that an answer may take beyond the order's timeout, since it waits for the owner."""

MOST_BYTES = 64 << 20

NOT_FOUND = 404

_VERB_OF = {verb.order: name for name, verb in VERBS.items()}

T = TypeVar("T")


class _Answer(NamedTuple):
    status: int
    body: bytes


class _SnapshotLayout(msgspec.Struct):
    version: int


class AdminClient(RefusesFormerNames):
    """An instance, at the address of its admin API (``console_port``).

    The address of its metrics (``http_port``) takes orders too and has the status. Orders need
    ``token``. ``name`` is written to the instance's log with each order. Each call opens its own
    connection, so any thread may call.
    """

    def __init__(
        self, url: str, token: str | None = None, *, name: str = "", timeout: float = 10.0
    ) -> None:
        self._url = status_address(url).removesuffix(PATH)
        self._token = token
        self._name = name
        self._timeout = timeout

    # --- queries ---

    def snapshot(self) -> InstanceSnapshot:
        """Return the snapshot of the instance; needs the port of the admin API."""
        found = self._snapshot()
        if found is None:
            raise self._no_admin_api()
        return found

    def _no_admin_api(self) -> KeySharedError:
        return KeySharedError(
            f"{self._url}: there is no admin API there; give the address that the instance "
            "logs at its start (admin API at …), or start it with console_port"
        )

    def _snapshot(self) -> InstanceSnapshot | None:
        path = "/api/v1/snapshot"
        answer = self._ask("GET", path)
        if answer.status == NOT_FOUND:
            return None
        version = self._read(path, answer, _SnapshotLayout).version
        if version != VERSION:
            raise KeySharedError(
                f"{self._url}: its snapshot is of version {version}, and this release reads "
                f"version {VERSION}; use the release that the instance is of"
            )
        return self._read(path, answer, InstanceSnapshot)

    def diagnosis(self) -> DiagnosisView:
        """Return the findings, the most urgent first; needs the port of the admin API."""
        path = "/api/v1/diagnosis"
        return self._read(path, self._ask("GET", path), DiagnosisView)

    def group(self) -> GroupView:
        """Return the instances of its group as it sees them; needs the port of the admin API.

        The first call takes up to 5 s, because it waits for the reports of the others.
        """
        path = "/api/v1/group"
        answer = self._ask("GET", path)
        if answer.status == NOT_FOUND:
            raise self._no_admin_api()
        return self._read(path, answer, GroupView)

    def status(self) -> Status:
        """Return the status, from either port."""
        found = self._snapshot()
        if found is not None:
            return found.status
        answer = ask_status(self._url + PATH, self._timeout)
        if answer.status is None:
            wrong = answer.wrong
            raise KeySharedError("no status" if wrong is None else f"{wrong.why}; {wrong.cure}")
        return answer.status

    # --- orders ---

    def pause(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Sequence[tuple[str, int]] | None = None,
    ) -> Done:
        """Pause fetching from these topics and partitions; from all when neither is given."""
        return self.order(PauseOrder(topics=_tuple(topics), partitions=_tuple(partitions)))

    def resume(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Sequence[tuple[str, int]] | None = None,
    ) -> Done:
        """Resume fetching from these topics and partitions; from all when neither is given."""
        return self.order(ResumeOrder(topics=_tuple(topics), partitions=_tuple(partitions)))

    def quiesce(self, timeout: float = 30.0) -> Done:
        """Pause everything, and let fetched records end and be committed."""
        return self.order(QuiesceOrder(timeout=timeout))

    def scale(self, workers: int, timeout: float = 30.0) -> Done:
        """Change the number of workers."""
        return self.order(ScaleOrder(workers=workers, timeout=timeout))

    def assign(
        self,
        first: int,
        last: int,
        worker: str | None,
        *,
        take_over: bool = False,
        timeout: float = 30.0,
    ) -> Done:
        """Assign the slots ``first`` to ``last``, both included, to a worker; None frees them."""
        return self.order(
            RangeOrder(first=first, last=last, worker=worker, take_over=take_over, timeout=timeout)
        )

    def move(self, slot: int, worker: str | None, timeout: float = 30.0) -> Done:
        """Assign one slot to a worker, taking it from any other; None unassigns it."""
        return self.order(SlotOrder(slot=slot, worker=worker, timeout=timeout))

    def filter(self, worker: str, patterns: Sequence[str], timeout: float = 30.0) -> Done:
        """Set the key patterns that a worker accepts. An empty list accepts every key."""
        return self.order(FilterOrder(worker=worker, patterns=tuple(patterns), timeout=timeout))

    def unblock(self, key: str | None = None, *, at: str = "") -> Done:
        """Unblock a closed key, named by itself or by coordinates such as ``orders-3@17``."""
        return self.order(UnblockOrder(key=key, at=at))

    def drop(self, key: str | None = None, *, at: str = "") -> Done:
        """Drop the record that keeps a key closed."""
        return self.order(DropOrder(key=key, at=at))

    def dead_letter(self, key: str | None = None, *, at: str = "") -> Done:
        """Send the record that keeps a key closed to the dead-letter topic."""
        return self.order(DeadLetterOrder(key=key, at=at))

    def lift_dlq_limit(self) -> Done:
        """Resume the partitions that their dead-letter limit stopped."""
        return self.order(LimitOrder())

    def letters(self, *, dlq: str = "", most: int = 100) -> Done:
        """List the newest dead letters of the instance's group; nothing changes."""
        return self.order(LettersOrder(dlq=dlq, most=most))

    def replay(
        self, *, dlq: str = "", at: str = "", execute: bool = False, timeout: float = 30.0
    ) -> Done:
        """Replay dead letters: all, or the one ``at`` PARTITION:OFFSET.

        Without ``execute`` the answer only describes what would be sent.
        """
        return self.order(ReplayOrder(dlq=dlq, at=at, execute=execute, timeout=timeout))

    def log_level(self, level: Any, logger: str = "kafka_keyshared") -> Done:
        """Set the log level, from ``debug`` to ``critical``."""
        return self.order(LogLevelOrder(level=level, logger=logger))

    def order(self, order: OrderRequest) -> Done:
        """Send any order (:mod:`kafka_keyshared.observability.web.command_list`) and return its
        result."""
        path = ACTIONS + _VERB_OF[type(order)]
        seconds = getattr(order, "timeout", 0.0) + MORE_SECONDS
        answer = self._ask("POST", path, msgspec.json.encode(order), seconds)
        return self._read(path, answer, Done)

    # --- the wire ---

    def _ask(
        self, method: str, path: str, body: bytes | None = None, seconds: float | None = None
    ) -> _Answer:
        parts = urllib.parse.urlsplit(self._url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = kind(parts.hostname or "", parts.port, timeout=seconds or self._timeout)
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        if self._name:
            headers[NAME_HEADER] = self._name
        if body is not None:
            headers["Content-Type"] = "application/json"
        with closing(connection):
            try:
                connection.request(method, parts.path + path, body, headers)
                answer = connection.getresponse()
                return _Answer(answer.status, answer.read(MOST_BYTES))
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise KeySharedError(
                    f"{self._url}{path}: no answer: {reason}; see that the instance runs, with "
                    "http_port or console_port, and listens where it can be reached from here"
                ) from error

    def _read(self, path: str, answer: _Answer, kind: type[T]) -> T:
        """Return the decoded answer; raise with the reason for any other status."""
        if answer.status == 200:
            try:
                return msgspec.json.decode(answer.body, type=kind)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise KeySharedError(f"{self._url}{path}: {error}") from error
        try:
            why = msgspec.json.decode(answer.body, type=OrderRefused).refused
        except (msgspec.DecodeError, UnicodeDecodeError):
            why = answer.body[:2_000].decode("utf-8", "replace").strip()
        raise KeySharedError(f"{self._url}{path}: {why or answer.status}")


def _tuple(given: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if given is None else tuple(given)
