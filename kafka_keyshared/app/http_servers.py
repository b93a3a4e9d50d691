"""The HTTP servers of a running app: metrics, probes, admin API."""

from __future__ import annotations

import os
import platform
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from confluent_kafka import libversion

from kafka_keyshared.app.group import GroupLink
from kafka_keyshared.config import Layers, Options
from kafka_keyshared.config.core_settings import subscription_settings
from kafka_keyshared.config.http_options import LOOPBACK
from kafka_keyshared.config.show import effective_settings
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.logs import log_of
from kafka_keyshared.observability.diagnosis.findings import Diagnosis
from kafka_keyshared.observability.web.commands import Acting
from kafka_keyshared.observability.web.prometheus_collector import (
    Exposition,
    MetricSource,
    StatusCollector,
)
from kafka_keyshared.observability.web.server import HttpServer, Probes
from kafka_keyshared.observability.web.snapshot import Setting, SnapshotOrigin
from kafka_keyshared.platform.detached_call import Aside
from kafka_keyshared.runtime.status_board import StatusBoard
from kafka_keyshared.status import Status

if TYPE_CHECKING:
    from kafka_keyshared.observability.web.admin.server import AdminServer

log = log_of("kafka_keyshared.web")


def check_served(options: Options) -> None:
    """Raise :class:`ConfigError` for an admin API that other machines reach without a token."""
    if options.console_port is None or options.console_host in LOOPBACK:
        return
    if options.http_token_file is None:
        raise ConfigError(
            f"console_host={options.console_host!r}: other machines could connect; set "
            "http_token_file to a file with a token, or listen on 127.0.0.1"
        )


class Looked:
    """An app that can be observed while it runs, from any thread."""

    conf: dict[str, Any]
    options: Options
    _board: StatusBoard
    _served: Served

    def status(self, *, pending: bool = False) -> Status | None:
        """Return the current status of the instance, from any thread; None before it runs.

        It is at most a second old, or as old as the rebalance that the owner is in. With
        ``pending`` its subscriptions list every record that a worker was given and has not settled.
        """
        return self._board.read(pending=pending)

    @property
    def http(self) -> HttpServer | None:
        """Return the server of metrics and probes, None where there is none."""
        return self._served.http

    @property
    def admin(self) -> AdminServer | None:
        """Return the server of the admin API, None where there is none."""
        return self._served.admin

    def diagnosis(self) -> Diagnosis | None:
        """Return the current diagnosis, from any thread; None before the app runs."""
        return self._board.diagnosis()

    def collector(self, *others: Looked) -> StatusCollector:
        """Return the metrics for a ``prometheus_client`` registry of your own.

        A registry takes one collector. ``others`` are further apps of this process, whose metrics
        the collector has too. Raise :class:`ConfigError` for two apps of one group: only the label
        ``group`` distinguishes the metrics of two apps.
        """
        apps = (self, *others)
        groups = Counter(str(each.conf["group.id"]) for each in apps)
        if doubled := [group for group, count in groups.items() if count > 1]:
            raise ConfigError(
                f"two apps of group {doubled[0]!r} have the same metrics; give each app a group of "
                "its own, or export them from two processes"
            )
        return StatusCollector(
            *(MetricSource(each.status, each.options.partition_metrics) for each in apps)
        )


ENDED_WITHIN = 5.0
"""Seconds that a stop waits for the end of each server. Each limits itself to less."""


class Served:
    """The servers of one run; None for those that are not configured."""

    def __init__(self, options: Options, board: StatusBoard) -> None:
        self._options = options
        self._board = board
        self.http: HttpServer | None = None
        self.admin: AdminServer | None = None
        self.group: GroupLink | None = None

    def start(self, acting: Acting | None, layers: Layers, conf: Mapping[str, Any]) -> None:
        """Start the configured servers whose addresses are available.

        ``layers`` are the settings to show, ``conf`` the client's settings.
        """
        options, board = self._options, self._board
        token = None if acting is None else acting.token
        self.group = link = GroupLink(options, conf, board.glance, self._console, token)
        board.reports = link.reports
        link.start()
        # The admin API starts first: a reader may take answering probes for a complete start.
        if options.console_port is not None:
            self._start_admin(options.console_port, layers, acting, link)
        if options.http_port is not None:
            exposition = Exposition(board.read, partitions=options.partition_metrics)
            probes = Probes(board.live, board.ready, board.read, acting, keys=options.show_keys)
            server = HttpServer(options.http_host, options.http_port, exposition, probes)
            if server.start():
                self.http = server

    def _console(self) -> str:
        """Return the console's address as other hosts reach it; empty without one."""
        if self.admin is None:
            return ""
        url = self.admin.url
        for anywhere in ("//0.0.0.0:", "//[::]:"):
            url = url.replace(anywhere, f"//{socket.gethostname()}:")
        return url

    def _start_admin(
        self, port: int, layers: Layers, acting: Acting | None, link: GroupLink
    ) -> None:
        try:
            from kafka_keyshared.observability.web.admin.feed import Feed
            from kafka_keyshared.observability.web.admin.server import AdminServer
        except ModuleNotFoundError as error:
            log.error(  # noqa: TRY400 - a stack would say nothing more
                "no admin API: %s is not installed; records are still consumed. "
                "pip install 'kafka-keyshared[console]', or leave console_port out",
                error.name,
            )
            return
        options, board = self._options, self._board
        about_it, settings = about(options, layers.topics), settings_of(layers)
        feed = Feed(
            lambda: board.read(full=True),
            about_it,
            settings,
            keys=options.show_keys,
            routing=subscription_settings(options).routing,
        )
        server = AdminServer(options.console_host, port, feed, acting, link.group)
        if server.start():
            self.admin = server

    def part(self, over: Callable[[], bool]) -> None:
        """After a clean stop, let the group learn of it before the end, unless ``over``."""
        if self.group is not None and self.admin is not None:
            self.group.part(over)

    def close(self, *, wait: bool, clean: bool) -> None:
        """Stop serving. With ``wait``, return when that is done or after :data:`ENDED_WITHIN`.

        ``clean`` says whether the group is informed that this instance has stopped.
        """
        seconds = ENDED_WITHIN if wait else 0.0
        link, self.group = self.group, None
        if link is not None:
            Aside(lambda: link.close(clean=clean), name="keyshared-group-end").wait(seconds)
        servers = [each for each in (self.http, self.admin) if each is not None]
        self.http = self.admin = None
        for server in servers:
            Aside(server.close, name="keyshared-http-end").wait(seconds)


def about(options: Options, topics: Sequence[str]) -> SnapshotOrigin:
    """Return the identity of the instance: host, process, versions and topics."""
    letters = {} if options.dlq is False else {each: options.dlq_topic(each) for each in topics}
    return SnapshotOrigin(
        host=socket.gethostname(),
        pid=os.getpid(),
        version=version("kafka-keyshared"),
        python=platform.python_version(),
        librdkafka=libversion()[0],
        topics=tuple(topics),
        dlq=letters,
    )


def settings_of(layers: Layers) -> tuple[Setting, ...]:
    """Return the effective settings with their origins; secrets are masked."""
    settings, client = effective_settings(layers)
    return tuple(
        Setting(name=name, value=shown.value, origin=shown.origin)
        for name, shown in (*settings.items(), *client.items())
    )
