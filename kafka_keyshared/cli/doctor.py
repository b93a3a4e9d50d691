"""``keyshared doctor``: looks at everything that a run needs, in order, and changes nothing.

Each check names the ones it needs; when one of those failed it is skipped, so that one mistake is
told once. The order follows Karafka's status page: from what is on this machine to what is far.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError

from kafka_keyshared.cli import checks, client_checks
from kafka_keyshared.cli.checks import Check, Finding, Status
from kafka_keyshared.cli.output import Justify, Output, write_result, write_table
from kafka_keyshared.cli.run import Layers, RunArguments, layer, refuse_flags_beside_app
from kafka_keyshared.cli.settings import client_settings, load_object
from kafka_keyshared.cli.survey import Survey
from kafka_keyshared.config import load_file
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.runtime.handlers import maker
from kafka_keyshared.runtime.patterns import BadPatternError, matching
from kafka_keyshared.runtime.service import KeyShared

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

UNHEALTHY = 3
_NOT_NAMED = "not-named"
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skipped": "dim"}


class _Step(NamedTuple):
    name: str
    needs: tuple[str, ...]
    look: Callable[[], Check]


def doctor_verb(arguments: RunArguments, output: Output) -> int:
    """Run all checks, print them, and return 0 unless one failed, then 3."""
    found = Doctor(arguments).run()
    healthy = checks.is_healthy(found)
    if output is Output.TABLE:
        _write(found)
    else:
        result = {
            "healthy": healthy,
            "checks": [{**check._asdict(), "status": check.status.value} for check in found],
        }
        write_result(result, output, "doctor")
    return 0 if healthy else UNHEALTHY


def _write(found: Sequence[Check]) -> None:
    rows = []
    for check in found:
        lines = [check.seen]
        if check.why:
            lines += [f"why: {check.why}", f"cure: {check.cure}"]
        rows.append((check.name, check.status.value, "\n".join(lines)))
    columns: dict[str, Justify] = {"check": "left", "status": "left", "seen": "left"}
    write_table("doctor", columns, rows, _STYLES)


class Doctor:
    """The checks of one run and what the earlier ones found for the later ones.

    Raises :class:`ConfigError` for a command line that names nothing to look at.
    """

    def __init__(self, arguments: RunArguments) -> None:
        self._arguments = arguments
        self._layers = Layers({}, [], {}, {})
        self._app: KeyShared | None = None
        self._group: str | None = None
        self._topics: list[str] = []
        self._survey: Survey | None = None
        self._metadata: ClusterMetadata | None = None
        self._limits: dict[str, int] = {}
        self._there: dict[str, checks.TopicFacts] = {}
        self._counts: dict[str, int] = {}
        self._partitions: list[checks.PartitionFacts] = []
        self._target: Any = None
        own = client_settings(arguments.client)
        self._named = arguments.bootstrap or arguments.config or own.get("bootstrap.servers")
        if arguments.handler is None and not self._named:
            raise ConfigError(
                "doctor: nothing to look at; name an app (MODULE:ATTR), or give -b host:port, or "
                "a file with --config"
            )
        if arguments.config is not None and not arguments.config.is_file():
            load_file(arguments.config)  # says what is wrong with the path

    def run(self) -> list[Check]:
        """Return every check in order."""
        steps = (
            _Step("handler", (), self._check_handler),
            # What could not be imported may have been an app, with all the rest in it.
            _Step("configuration", () if self._named else ("handler",), self._check_configuration),
            _Step("broker", ("configuration",), self._check_broker),
            _Step("topics", ("broker",), self._check_topics),
            _Step("group", ("broker",), self._check_group),
            _Step("positions", ("topics", "group"), self._check_positions),
            _Step("retention", ("positions",), self._check_retention),
            _Step("dlq", ("topics",), self._check_dead_letters),
            _Step("metadata", ("broker",), self._check_metadata),
            _Step("clock", ("topics",), self._check_clock),
        )
        found: list[Check] = []
        failed: set[str] = set()
        try:
            for step in steps:
                blocking = [name for name in step.needs if name in failed]
                if blocking:
                    text = f"not looked at: needs {blocking[0]}"
                    check = Check(step.name, Status.SKIPPED, text)
                else:
                    check = step.look()
                if blocking or check.status is Status.FAIL:
                    failed.add(step.name)
                found.append(check)
        finally:
            if self._survey is not None:
                self._survey.close()
        return found

    # --- on this machine ---

    def _check_handler(self) -> Check:
        spec = self._arguments.handler
        if spec is None:
            return Check("handler", Status.SKIPPED, "none was named")
        try:
            # What the module prints when it is imported is not this command's result.
            with contextlib.redirect_stdout(sys.stderr):
                self._target = load_object(spec, self._arguments.app_dir)
            if not isinstance(self._target, KeyShared):
                maker(self._target)
        except ConfigError as error:
            return checks.conclude("handler", spec, [_from(error)])
        if isinstance(self._target, KeyShared):
            refuse_flags_beside_app(self._arguments)
            self._app = self._target
            return Check("handler", Status.OK, f"{spec}: an app")
        kind = "class" if isinstance(self._target, type) else "function"
        return Check("handler", Status.OK, f"{spec}: a {kind}")

    def _check_configuration(self) -> Check:
        try:
            app = self._app or self._build()
            self._survey = Survey(app.conf)
        except ConfigError as error:
            return checks.conclude("configuration", "refused", [_from(self._layers.told(error))])
        self._app = app
        if self._target is not app:
            self._group, self._topics = self._layers.conf.get("group.id"), self._layers.topics
        else:
            self._group, self._topics = app.conf["group.id"], app.topics
        seen = f"{len(app.conf)} client settings, workers={app.options.workers}"
        return checks.conclude("configuration", seen, client_checks.dangers(app.conf))

    def _build(self) -> KeyShared:
        """Build what a run would, with stand-ins for group and topics, which need not be named."""
        self._layers = layer(self._arguments)
        if not self._layers.conf.get("bootstrap.servers"):
            raise ConfigError("no broker is named: give -b host:port, or bootstrap in the file")
        conf = {"group.id": _NOT_NAMED, **self._layers.conf}
        return KeyShared(conf, self._layers.topics or [_NOT_NAMED], **self._layers.options)

    # --- on the cluster ---

    @property
    def _asked(self) -> Survey:
        if self._survey is None:
            raise ConfigError("doctor: the cluster is asked before the configuration is known")
        return self._survey

    @property
    def _running(self) -> KeyShared:
        if self._app is None:
            raise ConfigError("doctor: the app is asked for before the configuration is known")
        return self._app

    def _check_broker(self) -> Check:
        answer = self._asked.metadata()
        if isinstance(answer, str):
            return client_checks.unanswered(self._asked.address, answer)
        self._metadata = answer
        facts = self._asked.brokers(answer)
        self._limits = facts.metadata_limits
        return client_checks.brokers(facts.silent)

    def _check_topics(self) -> Check:
        if not self._topics or self._metadata is None:
            return Check("topics", Status.SKIPPED, "none was named (-t)")
        options = self._running.options
        names = [name for name in self._metadata.topics if not name.startswith("__")]
        sources: list[str] = []
        for topic in self._topics:
            with contextlib.suppress(BadPatternError):
                sources += matching(topic, names) if topic.startswith("^") else [topic]
        closer = {*sources, *(options.dlq_topic(name) for name in sources)}
        self._there = self._asked.topics(self._metadata, closer)
        visible = {name: facts for name, facts in self._there.items() if name[:2] != "__"}
        found = checks.topics(self._topics, visible)
        self._counts = {
            name: self._there[name].partitions for name in sources if name in self._there
        }
        return found

    def _check_group(self) -> Check:
        if self._group is None:
            return Check("group", Status.SKIPPED, "none was named (-g)")
        answer = self._asked.group(self._group)
        if isinstance(answer, KafkaError):
            return _unasked("group", self._group, answer, "see that this user may DESCRIBE it")
        return checks.group(self._group, answer, self._running.conf)

    def _check_positions(self) -> Check:
        if self._group is None or not self._counts:
            return Check("positions", Status.SKIPPED, "needs a group (-g) and a topic (-t)")
        answer = self._asked.partitions(self._counts, of_group=True)
        if isinstance(answer, KafkaError):
            cure = "see that this user may READ the topics and the group"
            return _unasked("positions", self._group, answer, cure)
        self._partitions = answer
        return checks.positions(answer, self._running.conf)

    def _check_retention(self) -> Check:
        if not self._partitions:
            return Check("retention", Status.SKIPPED, "no positions to look at")
        return checks.retention(self._partitions)

    def _check_dead_letters(self) -> Check:
        options = self._running.options
        if options.dlq is False:
            return Check("dlq", Status.SKIPPED, "no dead-letter topic is asked for (--dlq)")
        pairs = [(self._there[name], options.dlq_topic(name)) for name in self._counts]
        if not pairs:
            return Check("dlq", Status.SKIPPED, "needs a topic (-t)")
        return checks.dead_letters(
            pairs, self._there, consumed=self._counts, create=options.dlq_create
        )

    def _check_metadata(self) -> Check:
        if not self._limits:
            text = "the brokers do not tell their offset.metadata.max.bytes"
            return Check("metadata", Status.SKIPPED, text)
        return checks.commit_metadata(self._limits)

    def _check_clock(self) -> Check:
        newest = self._asked.newest(self._counts) if self._counts else {}
        if not newest:
            return Check("clock", Status.SKIPPED, "no timestamp to compare with")
        return checks.clock(newest, int(time.time() * 1000))


def _from(error: ConfigError) -> Finding:
    return Finding(Status.FAIL, str(error), "mend it there; `keyshared run` would refuse it too")


def _unasked(name: str, what: str, error: KafkaError, cure: str) -> Check:
    """Return the check for a question that the cluster did not answer, or does not know."""
    if error.code() == KafkaError._UNSUPPORTED_FEATURE:
        text = f"{what}: this cluster does not answer that question"
        return Check(name, Status.SKIPPED, text)
    finding = Finding(Status.FAIL, f"no answer about {what}: {error.str()}", cure)
    return checks.conclude(name, what, [finding])
