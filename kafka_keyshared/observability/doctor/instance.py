"""A query for a running instance's status at ``/status``."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from typing import NamedTuple

import msgspec

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.observability.doctor.findings import CheckStatus as Level
from kafka_keyshared.observability.doctor.findings import DoctorFinding, FindingKind
from kafka_keyshared.status import VERSION, Status

ANSWER_SECONDS = 4.0
"""Timeout in seconds. An instance waits up to a second for a fresh status."""

MOST_BYTES = 16 << 20
PATH = "/status"


class _StatusLayout(msgspec.Struct):
    """Fields that distinguish a status of any version from other JSON."""

    version: int
    group: str


class Answer(NamedTuple):
    """The answer: the status, or the problem instead."""

    status: Status | None
    wrong: DoctorFinding | None = None


def status_address(text: str) -> str:
    """Return the status address for user input: ``8787``, ``host:port`` or a URL.

    Raises :class:`ConfigError` for an invalid address.
    """
    given = f"127.0.0.1:{text}" if text.isdecimal() else text
    url = given if "://" in given else f"http://{given}"
    try:
        parts = urllib.parse.urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(
            f"--status-url {text}: give the address of an instance's --http-port, such as "
            "http://127.0.0.1:8787"
        )
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith(PATH) else path + PATH).geturl()


def ask_status(url: str, timeout: float = ANSWER_SECONDS) -> Answer:
    """Return the status of an instance at ``url``, or the reason why there is none."""
    # Connect directly: a proxy from the environment does not know this machine's ports.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as answer:
            text: bytes = answer.read(MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            return Answer(None, _refused(url, error.code, error.read(200)))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Answer(None, _silent(url, error))
    return _read(url, text)


def _read(url: str, text: bytes) -> Answer:
    try:
        version = msgspec.json.decode(text, type=_StatusLayout).version
        if version == VERSION:
            return Answer(msgspec.json.decode(text, type=Status))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Answer(None, _stranger(url, _shown(text)))
    why = f"{url}: the status is of version {version}, and this release reads version {VERSION}"
    cure = "run the doctor of the release that the instance is of"
    return Answer(None, DoctorFinding(FindingKind.OTHER_STATUS, Level.WARN, why, cure))


def _refused(url: str, code: int, text: bytes) -> DoctorFinding:
    if code == http.HTTPStatus.SERVICE_UNAVAILABLE and b"no status yet" in text:
        why = f"{url}: {_shown(text)}"
        return DoctorFinding(FindingKind.NOT_READY, Level.WARN, why, "ask again in a moment")
    return _stranger(url, f"{code} {_shown(text)}")


def _stranger(url: str, said: str) -> DoctorFinding:
    why = f"{url}: what answers there gives no status ({said})"
    cure = (
        "give the address that the instance logs at its start (metrics and health checks at …); "
        "releases before this one have no /status"
    )
    return DoctorFinding(FindingKind.NOT_AN_INSTANCE, Level.FAIL, why, cure)


def _silent(url: str, error: Exception) -> DoctorFinding:
    reason = getattr(error, "reason", None) or error
    said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    why = f"{url}: no answer: {said}"
    cure = (
        "see that the instance runs with --http-port, and that it listens where it can be reached "
        "from here (http_host; by default only on its own machine)"
    )
    return DoctorFinding(FindingKind.INSTANCE_SILENT, Level.FAIL, why, cure)


def _shown(text: bytes) -> str:
    """Return the beginning of an answer on one line, without terminal control characters."""
    words = " ".join(text[:200].decode("utf-8", "replace").split())
    return "".join(each if each.isprintable() else "\ufffd" for each in words)[:80] or "nothing"
