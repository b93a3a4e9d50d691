"""``keyshared doctor``: ordered checks of everything that a run needs.

The doctor changes nothing. Each check names the checks it needs. When one of those failed it is
skipped, so that one mistake is reported once. The order follows Karafka's status page: from this
machine to remote systems.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.doctor_spark import check_spark
from kafka_keyshared.cli.output import OutputFormat, write_note, write_result
from kafka_keyshared.cli.run import gather, missing, refuse_flags_beside_app, settle_app
from kafka_keyshared.cli.settings import client_settings, file_here, load_object
from kafka_keyshared.client.patterns import BadPatternError, topics_meant
from kafka_keyshared.config import Layers, SettingsError, refuse
from kafka_keyshared.config.keys.sampled import KeySample
from kafka_keyshared.dlq.publish import codec_of
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.handlers import awaits, maker
from kafka_keyshared.model import TopicPartition, counted
from kafka_keyshared.observability.doctor import (
    checks,
    client_checks,
    group_checks,
    instance_checks,
    key_checks,
    key_sample,
    progress_checks,
    rule_checks,
    view_checks,
)
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    FindingKind,
    conclude,
    is_healthy,
    skipped,
)
from kafka_keyshared.observability.doctor.instance import ask_status, status_address
from kafka_keyshared.observability.doctor.progress import (
    AS_USUAL,
    Looking,
    ProgressQueries,
    observe,
)
from kafka_keyshared.observability.doctor.progress_checks import InstanceAnswer, Standing
from kafka_keyshared.observability.doctor.report import write_report
from kafka_keyshared.observability.doctor.survey import Look, Survey

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

UNHEALTHY = 3
STAMP_PATIENCE = 1.0
"""Seconds that the clock check waits for a commit of the group's members."""

TOLD = ("name", "status", "seen", "why", "cure", "page")
"""The fields of a check in JSON and YAML."""

_NOT_NAMED = "not-named"


CHECKS: Mapping[str, tuple[str, ...]] = {
    "handler": (),
    "configuration": (),
    "broker": ("configuration",),
    "topics": ("broker",),
    "keys": ("topics",),
    "group": ("broker",),
    "positions": ("topics", "group"),
    "retention": ("positions",),
    "progress": ("positions",),
    "dlq": ("broker",),
    "group-view": ("broker",),
    "metadata": ("broker",),
    "clock": ("topics",),
    "instance": (),
    "rules": (),
    "spark": (),
}
"""Each check in its order, with the checks that must not have failed before it."""


def doctor_verb(arguments: RunArguments, looking: Looking, output: OutputFormat) -> int:
    """Run all checks and print them; return 0 unless one failed, then 3."""
    found = Doctor(arguments, looking).run()
    healthy = is_healthy(found)
    if output is OutputFormat.TABLE:
        write_report(found)
    else:
        result = {
            "healthy": healthy,
            "checks": [
                {name: str(value) for name, value in zip(TOLD, check, strict=False)}
                for check in found
            ],
        }
        write_result(result, output, "doctor")
    return 0 if healthy else UNHEALTHY


class Doctor:
    """The checks of one run, with the results that later checks use.

    Raises :class:`ConfigError` for a command line that names nothing to check.
    """

    def __init__(self, arguments: RunArguments, looking: Looking = AS_USUAL) -> None:
        self._arguments = arguments
        self._looking = looking
        self._layers = Layers({}, [], {}, {})
        self._app: KeyShared | None = None
        self._group: str | None = None
        self._topics: list[str] = []
        self._survey: Survey | None = None
        self._metadata: ClusterMetadata | None = None
        self._limits: dict[str, int] = {}
        self._there: dict[str, checks.TopicFacts] = {}
        self._sources: list[str] = []
        self._counts: dict[str, int] = {}
        self._partitions: list[checks.PartitionFacts] = []
        self._look: Look | None = None
        self._members: group_checks.GroupFacts | None = None
        self._patience = 0.0
        self._gone: str | None = None
        self._target: Any = None
        url = looking.status_url
        self._address = None if url is None else status_address(url)
        client_settings(arguments.client)  # a setting without '=' is a mistake of the command line
        self._unread: ConfigError | None = None
        try:
            self._layers = gather(arguments)
        except ConfigError as error:
            if arguments.config is not None and not arguments.config.is_file():
                raise
            self._unread = error
        brokers = self._layers.conf.get("bootstrap.servers")
        self._named = bool(brokers or arguments.config or self._unread)
        self._rules = None if looking.rules is None else _text_of(looking.rules)
        alone = looking.spark or self._rules is not None
        if arguments.handler is None and not self._named and not alone:
            raise ConfigError(
                "doctor: nothing to check; name an app (MODULE:ATTR), or give -b host:port, or "
                "a file with --config, or set KEYSHARED_BOOTSTRAP"
            )

    def run(self) -> list[Check]:
        """Return every check in order."""
        if self._arguments.handler is None and not self._named:
            local = self._local()
            return [
                local[name]() if name in local else skipped(name, "nothing was named")
                for name in CHECKS
            ]
        looks: tuple[Callable[[], Check], ...] = (
            self._check_handler,
            self._check_configuration,
            self._check_broker,
            self._check_topics,
            self._check_keys,
            self._check_group,
            self._check_positions,
            self._check_retention,
            self._check_progress,
            self._check_dead_letters,
            self._check_group_view,
            self._check_metadata,
            self._check_clock,
            self._check_instance,
            *self._local().values(),
        )
        # A failed import may have been an app, which has all other settings.
        more = {} if self._named else {"configuration": ("handler",)}
        found: list[Check] = []
        failed: set[str] = set()
        try:
            for (name, needs), look in zip({**CHECKS, **more}.items(), looks, strict=True):
                blocking = [needed for needed in needs if needed in failed]
                if self._gone is not None and needs:
                    blocking = ["broker"]
                check = skipped(name, f"needs {blocking[0]}") if blocking else look()
                if needs and not blocking and self._lost(name, found):
                    check = skipped(name, "needs broker")
                if blocking or check.status is CheckStatus.FAIL:
                    failed.add(name)
                found.append(check)
        finally:
            if self._survey is not None:
                self._survey.close()
        return found

    def _local(self) -> dict[str, Callable[[], Check]]:
        """Return the checks that need neither an app nor a cluster."""
        return {
            "rules": self._check_rules,
            "spark": lambda: check_spark(asked=self._looking.spark),
        }

    def _lost(self, name: str, found: list[Check]) -> bool:
        """Return whether the brokers went away during a check; if so, correct the broker check."""
        if name == "broker" or self._survey is None:
            return False
        self._gone = self._survey.lost()
        if self._gone is None:
            return False
        said = client_checks.unanswered(self._survey.address, self._gone, lambda: False)
        at = list(CHECKS).index("broker")
        found[at] = said._replace(seen=f"answered at first, but not again: {said.seen}")
        return True

    # --- on this machine ---

    def _check_handler(self) -> Check:
        spec = self._arguments.handler
        if spec is None:
            return skipped("handler", "none was given")
        try:
            # Output of the module during its import is not part of this command's result.
            with contextlib.redirect_stdout(sys.stderr):
                self._target = load_object(spec, self._arguments.app_dir)
        except ConfigError as error:
            return conclude(
                "handler", spec, [client_checks.refused(FindingKind.HANDLER_IMPORT, error)]
            )
        if isinstance(self._target, KeyShared):
            refuse_flags_beside_app(self._arguments)
            self._app = self._target
            return conclude("handler", f"{spec}: an app")
        try:
            maker(self._target, self._layers.pool_for(awaited=awaits(self._target)))
        except ConfigError as error:
            return conclude(
                "handler", spec, [client_checks.refused(FindingKind.HANDLER_UNUSABLE, error)]
            )
        kind = "class" if isinstance(self._target, type) else "function"
        return conclude("handler", f"{spec}: a {kind}")

    def _check_configuration(self) -> Check:
        try:
            if self._app is not None:
                settle_app(self._app, self._arguments)
            app = self._app or self._build()
            self._survey = Survey(app.conf)
        except ConfigError as error:
            told = self._layers.with_origins(error)
            every = told.faults if isinstance(told, SettingsError) else (told,)
            findings = [client_checks.refused(FindingKind.SETTING_REFUSED, each) for each in every]
            return conclude("configuration", "refused", findings)
        self._app = app
        if self._target is not app:
            self._group, self._topics = self._layers.conf.get("group.id"), self._layers.topics
        else:
            self._group, self._topics = app.conf["group.id"], app.topics
        seen = f"{len(app.conf)} client settings, workers={app.options.workers}"
        if self._arguments.config is None and (path := file_here()) is not None:
            seen += f"; with {path} of this folder"
        return conclude("configuration", seen, client_checks.dangers(app.conf))

    def _build(self) -> KeyShared:
        """Build the app of a run, with placeholders for a missing group or topics."""
        if self._unread is not None:
            raise self._unread
        self._layers.check()
        refuse(each for each in missing(self._layers) if "bootstrap" in each.settings)
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
            return client_checks.unanswered(
                self._asked.address, answer, self._asked.speaks_tls, self._asked.is_mute
            )
        self._metadata = answer
        facts = self._asked.brokers(answer)
        self._limits = facts.metadata_limits
        return client_checks.brokers(facts.silent)

    def _check_topics(self) -> Check:
        if not self._topics or self._metadata is None:
            return skipped("topics", "none was given (-t)")
        options = self._running.options
        names = list(self._metadata.topics)
        meant: set[str] = set()
        for topic in self._topics:
            with contextlib.suppress(BadPatternError):
                meant.update(topics_meant([topic], names))
        self._sources = sources = sorted(meant)
        closer = {*sources, *(options.dlq_topic(name) for name in sources)}
        closer |= {options.group_view_topic or ""}
        self._there = self._asked.topics(self._metadata, closer)
        found = checks.topics(self._topics, self._there)
        self._counts = {
            name: self._there[name].partitions for name in sources if name in self._there
        }
        stamped = [name for name in self._counts if self._there[name].broker_time]
        self._look = self._asked.look(self._metadata, stamped)
        return found

    def _check_keys(self) -> Check:
        app = self._running
        key_of = app.subscription.key_of
        if key_of is None:
            return skipped("keys", "the key is the record's own (--key record)")
        if not self._counts:
            return skipped("keys", "needs a topic (-t)")
        starts = key_sample.newest(self._asked.bounds(self._counts))
        found = KeySample(key_of)
        records = key_sample.sample(app.conf, starts) if starts else []
        for topic, those in key_sample.by_topic(records).items():
            found.keys(topic, list[Any](those))
        if not found.topics:
            return skipped("keys", "no record arrived to check")
        named = app.options.key
        return key_checks.keys("a function" if named == "record" else named, found.topics)

    def _check_group(self) -> Check:
        if self._group is None:
            return skipped("group", "none was given (-g)")
        answer = self._asked.group(self._group)
        if isinstance(answer, KafkaError):
            cure = "see that this user may DESCRIBE it"
            return client_checks.unasked(
                "group", FindingKind.GROUP_UNKNOWN, self._group, answer, cure
            )
        self._members = answer
        # Members commit, and a broker stamps each commit. For the clock check a short wait is
        # worthwhile.
        self._patience = STAMP_PATIENCE if answer.members else 0.0
        return group_checks.group(self._group, answer, self._running.conf, self._counts)

    def _check_positions(self) -> Check:
        if self._group is None or not self._counts:
            return skipped("positions", "needs a group (-g) and a topic (-t)")
        answer = self._asked.partitions(self._counts)
        if isinstance(answer, KafkaError):
            cure = "see that this user may READ the topics and the group"
            return client_checks.unasked(
                "positions", FindingKind.POSITIONS_UNKNOWN, self._group, answer, cure
            )
        self._partitions = answer
        members = self._members
        if members is None or members.rebalancing:  # any partition may have an owner
            return checks.positions(answer, self._running.conf)
        return checks.positions(answer, self._running.conf, members.owners)

    def _check_retention(self) -> Check:
        if not self._partitions:
            return skipped("retention", "no positions to check")
        return checks.retention(self._partitions)

    def _check_progress(self) -> Check:
        behind = [
            each
            for each in self._partitions
            if each.committed is not None and not each.unknown and each.first <= each.committed
            if each.committed < each.end
        ]
        members = self._members
        if not behind:
            unknown = sum(bool(each.unknown) for each in self._partitions)
            more = f"; {counted(unknown, 'partition')} could not be checked" if unknown else ""
            return skipped("progress", f"there is no lag, or no position{more}")
        if members is None:
            return skipped("progress", "the members of the group are unknown")
        if not members.members:
            return skipped(
                "progress", f"the group {self._group} has no member, so no position moves"
            )
        if members.rebalancing:
            return skipped("progress", "a rebalance is in progress, so no position moves")
        asked = self._asked
        ask = ProgressQueries(asked.watch, asked.read, self._told, asked.now_ms, write_note)
        seen = observe(behind, self._looking, ask)
        watched = progress_checks.Watched(
            *(seen.seconds, seen.standing, seen.records, members.owners, asked.now_ms()),
            *(self._address, seen.told),
        )
        return progress_checks.progress(watched, self._looking.held_after)

    def _told(self, standing: Sequence[Standing]) -> Mapping[TopicPartition, InstanceAnswer]:
        """Return the named instance's explanation of positions that do not move."""
        if self._address is None or not standing:
            return {}
        seen = ask_status(self._address).status
        return {} if seen is None else instance_checks.told(seen, self._group, standing)

    def _check_dead_letters(self) -> Check:
        options = self._running.options
        if options.dlq is False:
            return skipped("dlq", "no dead-letter topic was given (--dlq)")
        # A missing topic still has a dead-letter topic, for the time when it is created.
        pairs = [
            (self._there.get(name, checks.TopicFacts(name, 0)), options.dlq_topic(name))
            for name in self._sources
        ]
        if not pairs:
            return skipped("dlq", "needs a topic (-t)")
        return checks.dead_letters(
            pairs,
            self._there,
            consumed=self._counts,
            create=options.dlq_create,
            codec=codec_of(self._running.conf),
        )

    def _check_group_view(self) -> Check:
        options = self._running.options
        topic = options.group_view_topic
        if topic is None:
            return skipped("group-view", "no topic was given (group_view_topic)")
        if not self._there:
            return skipped("group-view", "needs a topic (-t)")
        there, create = self._there.get(topic), options.group_view_create
        unmade = self._asked.may_not_make(topic) if there is None and create else None
        return view_checks.group_view(topic, there, create=create, unmade=unmade)

    def _check_metadata(self) -> Check:
        if not self._limits:
            text = "the brokers do not return offset.metadata.max.bytes"
            return skipped("metadata", text)
        return checks.commit_metadata(self._limits)

    def _check_clock(self) -> Check:
        newest = self._asked.newest(self._counts) if self._counts else {}
        look = self._look
        stamps = [] if look is None else self._asked.stamps(look, self._patience)
        if not newest and not stamps:
            return skipped("clock", "no timestamp to compare with")
        return checks.clock(newest, stamps, self._asked.now_ms())

    def _check_instance(self) -> Check:
        if self._address is None:
            return skipped("instance", "no address was given (--status-url)")
        answer = ask_status(self._address)
        if answer.status is None:
            return conclude("instance", self._address, filter(None, [answer.wrong]))
        return instance_checks.instance(
            self._address, answer.status, self._group, self._looking.held_after
        )

    def _check_rules(self) -> Check:
        if self._rules is None:
            return skipped("rules", "no file of rules was given (--rules)")
        return rule_checks.rules(str(self._looking.rules), self._rules)


def _text_of(path: Path) -> str:
    """Return the text of a file that the command line names."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--rules {path}: cannot be read: {error}") from error
