"""The pages about the doctor and about errors say what the code says, all of it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kafka_keyshared import errors
from kafka_keyshared.cli import doctor
from kafka_keyshared.cli.arguments import RunArguments
from kafka_keyshared.cli.doctor_spark import check_spark
from kafka_keyshared.config.keys.sampled import TopicKeys
from kafka_keyshared.core.offsets.commit_metadata import encode
from kafka_keyshared.core.offsets.metadata_sections import STARTED, LaneNotes, RunningNote
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.doctor import (
    checks,
    client_checks,
    group_checks,
    instance,
    instance_checks,
    key_checks,
    rule_checks,
    view_checks,
)
from kafka_keyshared.observability.doctor.checks import PartitionFacts, Stamp, TopicFacts
from kafka_keyshared.observability.doctor.findings import (
    PAGE,
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
    page_of,
)
from kafka_keyshared.observability.doctor.group_checks import GroupFacts
from kafka_keyshared.observability.doctor.progress_checks import Nothing, UnreadPosition
from tests.support.commit_texts import here
from tests.support.doctor_survey import HELD, SILENT, URL, blocked, progress, worker
from tests.support.doctor_survey import instance as status_of
from tests.support.notice_lines import LINES
from tests.support.spark_parts import CONNECTOR, Machine, command, java_command
from tests.tidy.links import anchors
from tests.tidy.sources import ROOT, modules

DOCTOR_PAGE = ROOT / "docs" / PAGE
ERRORS_PAGE = ROOT / "docs" / "reference" / "errors.md"
PACKAGE = ROOT / "kafka_keyshared"

_QUOTE = re.compile(r"(?m)(?:^> ?.*\n?)+")


def quotes(text: str) -> list[str]:
    """Return the quoted sentences of a page, each on one line."""
    lines = (re.sub(r"(?m)^> ?", "", match.group()) for match in _QUOTE.finditer(text))
    return [" ".join(each.split()) for each in lines]


def as_pattern(quote: str) -> re.Pattern[str]:
    return re.compile(".*?".join(map(re.escape, quote.split("…"))), re.DOTALL)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the page's ``###`` sections by the ``##`` section that they are in."""
    found: dict[str, dict[str, str]] = {}
    check = ""
    for part in re.split(r"(?m)^(?=#{2,3} )", text):
        heading, _, body = part.partition("\n")
        if heading.startswith("### "):
            found[check][heading[4:].strip()] = body
        elif heading.startswith("## "):
            check = heading[3:].strip()
            found[check] = {}
    return found


# --- the doctor ---

ORDERS = TopicFacts(
    "orders", 4, 1_000_000, "delete", frozenset({"READ", "WRITE"}), compression="producer"
)
DLQ = TopicFacts("orders.dlq", 2, 1_000, "compact", frozenset())
MEMBERS = ("app at /10.0.0.7",)


def topics(*wanted: str, **there: TopicFacts) -> Check:
    return checks.topics(wanted, there)


def group(kind: str, assignor: str, may: set[str]) -> Check:
    facts = GroupFacts("STABLE", kind, assignor, MEMBERS, frozenset(may))
    return group_checks.group("billing", facts, {})


def positions(**facts: Any) -> Check:
    known = {"topic": "orders", "first": 0, "end": 10, "committed": 5, **facts}
    every = [PartitionFacts(partition=0, **known), PartitionFacts("orders", 1, 0, 9, None)]
    judge = checks.positions(every, {})
    return judge if judge.status is not CheckStatus.OK else checks.retention(every)


def letters(dlq: TopicFacts | None, *consumed: str) -> Check:
    there = {"orders": ORDERS} | ({} if dlq is None else {"orders.dlq": dlq})
    return checks.dead_letters(
        [(ORDERS, "orders.dlq")], there, consumed=("orders", *consumed), create=False
    )


def told_in(topic: TopicFacts | None) -> Check:
    return view_checks.group_view("beats", topic, create=False, unmade=None)


def keys(**seen: Any) -> Check:
    return key_checks.keys("json:/id", {"orders": TopicKeys(**seen)})


def broker(reason: str, *, tls: bool = False) -> Check:
    return client_checks.unanswered("there:9092", reason, lambda: tls)


def dangers(**conf: str) -> Check:
    named = {name.replace("_", "."): value for name, value in conf.items()}
    return conclude("configuration", "", client_checks.dangers(named))


def handler(spec: str) -> Check:
    """Look at a handler of this file, without any cluster."""
    arguments = RunArguments(
        handler=spec,
        bootstrap="x:1",
        topics=[],
        group=None,
        workers=None,
        dlq=None,
        dlq_create=False,
        config=None,
        app_dir=Path(__file__).parent,
        client=[],
    )
    return doctor.Doctor(arguments)._check_handler()


def spark(
    version: str = "4.0.0", java: str = "17", connector: str = "4.0.0", python: str | None = None
) -> Check:
    """Look at a machine with these parts."""
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        machine = Machine(Path(place), patch)
        machine.installed(version)
        java_command(machine.root / "java", java)
        (machine.cache / CONNECTOR).rename(machine.cache / CONNECTOR.replace("4.0.0", connector))
        if python is not None:
            other = command(machine.root / "python", f"print({python!r})")
            patch.setenv("PYSPARK_PYTHON", str(other))
        return check_spark(asked=True)


def wrong(finding: DoctorFinding | None) -> Check:
    assert finding is not None
    return conclude("instance", URL, [finding])


def of_instance(**told: Any) -> Check:
    return instance_checks.instance(URL, status_of(**told), "billing", 60.0)


def unasked(kind: FindingKind) -> Check:
    error = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    return client_checks.unasked("", kind, "billing", error, "see")


UNCOMPRESSED = ORDERS._replace(name="orders.dlq", compression="uncompressed")
RAN = RunningNote({3: STARTED, 5: STARTED}, 1)
ENDED = PartitionFacts(
    "orders",
    0,
    0,
    9,
    3,
    metadata=encode(
        here(3, TopicPartition("orders", 0)), {}, notes={"default": LaneNotes(running=RAN)}
    ).text,
)
SMALL = DLQ._replace(cleanup="delete", may=None)
COMPACTED = DLQ._replace(max_message_bytes=None, may=None)
NOW = 1_800_000_000_000

EXAMPLES: dict[FindingKind, Callable[[], Check]] = {
    FindingKind.GROUP_REBALANCING: lambda: group_checks.group(
        "billing", GroupFacts("PREPARING_REBALANCING", "CLASSIC", "", MEMBERS), {}
    ),
    FindingKind.HANDLER_IMPORT: lambda: handler("no_such_module:handle"),
    FindingKind.HANDLER_UNUSABLE: lambda: handler("json:JSONDecoder.decode"),
    FindingKind.SETTING_REFUSED: lambda: conclude(
        "configuration",
        "",
        [client_checks.refused(FindingKind.SETTING_REFUSED, errors.ConfigError("no"))],
    ),
    FindingKind.SETTING_DANGEROUS: lambda: dangers(debug="all"),
    FindingKind.NO_SUCH_PORT: lambda: dangers(bootstrap_servers="x:99999"),
    FindingKind.HOST_UNKNOWN: lambda: broker("Failed to resolve 'there:9092'"),
    FindingKind.NO_LISTENER: lambda: broker("Connection refused"),
    FindingKind.PLAIN_LISTENER: lambda: broker("connecting to a PLAINTEXT broker listener?"),
    FindingKind.TLS_LISTENER: lambda: broker("1/1 brokers are down", tls=True),
    FindingKind.OTHER_PROTOCOL: lambda: broker("might be caused by incorrect security.protocol"),
    FindingKind.TLS_REFUSED: lambda: broker("SSL handshake failed: certificate verify failed"),
    FindingKind.CREDENTIALS_REFUSED: lambda: broker("SASL authentication error"),
    FindingKind.CONNECTION_CLOSED: lambda: broker("1/1 brokers are down"),
    FindingKind.NOT_A_BROKER: lambda: broker("Local: Required feature not supported by broker"),
    FindingKind.NO_ANSWER: lambda: broker("Local: Broker transport failure"),
    FindingKind.MISLEADING_ADDRESS: lambda: broker("there:1/1: Connection refused"),
    FindingKind.TOPIC_MISSING: lambda: topics("orders"),
    FindingKind.TOPIC_READ_DENIED: lambda: topics(
        "orders", orders=ORDERS._replace(may=frozenset())
    ),
    FindingKind.PATTERN_INVALID: lambda: topics("^no[t"),
    FindingKind.PATTERN_MATCHES_NOTHING: lambda: topics("^nix", orders=ORDERS),
    FindingKind.PATTERN_MATCHES_INTERNAL: lambda: topics(
        "^.*", orders=ORDERS, __consumer_offsets=ORDERS._replace(name="__consumer_offsets")
    ),
    FindingKind.KEY_UNREAD: lambda: keys(unread=Counter({"ConnectionError: no route": 3})),
    FindingKind.KEY_FORMAT_UNKNOWN: lambda: keys(
        unknown=Counter({"gzip; the setting says plain JSON": 3})
    ),
    FindingKind.KEY_UNDECODABLE: lambda: keys(
        keyed=1, broken=Counter({"the value is not JSON": 3})
    ),
    FindingKind.KEY_MISSING: lambda: keys(keyed=1, keyless=2),
    FindingKind.GROUP_UNKNOWN: lambda: unasked(FindingKind.GROUP_UNKNOWN),
    FindingKind.GROUP_DENIED: lambda: group("CLASSIC", "range", set()),
    FindingKind.OTHER_GROUP_PROTOCOL: lambda: group("CONSUMER", "uniform", {"READ"}),
    FindingKind.OTHER_ASSIGNOR: lambda: group("CLASSIC", "cooperative-sticky", {"READ"}),
    FindingKind.MEMBER_WITHOUT_PARTITIONS: lambda: group_checks.group(
        "billing",
        GroupFacts("STABLE", "CLASSIC", "range", ("a at /1", "b at /2"), idle=("b at /2",)),
        {},
        {"orders": 1},
    ),
    FindingKind.POSITIONS_UNKNOWN: lambda: unasked(FindingKind.POSITIONS_UNKNOWN),
    FindingKind.PARTITION_UNKNOWN: lambda: positions(unknown="Broker: Leader not available"),
    FindingKind.STARTS_AT_END: positions,
    FindingKind.ENDED_UNCLEANLY: lambda: checks.positions([ENDED], {}, owners=()),
    FindingKind.DELETED_UNREAD: lambda: checks.retention([PartitionFacts("orders", 0, 7, 9, 3)]),
    FindingKind.POSITION_BEYOND_END: lambda: checks.retention(
        [PartitionFacts("orders", 0, 0, 9, 10)]
    ),
    FindingKind.DLQ_MISSING: lambda: letters(None),
    FindingKind.DLQ_CONSUMED: lambda: letters(ORDERS._replace(name="orders.dlq"), "orders.dlq"),
    FindingKind.DLQ_WRITE_DENIED: lambda: letters(DLQ),
    FindingKind.DLQ_TOO_SMALL: lambda: letters(SMALL),
    FindingKind.DLQ_UNCOMPRESSED: lambda: letters(UNCOMPRESSED),
    FindingKind.DLQ_COMPACTED: lambda: letters(COMPACTED),
    FindingKind.GROUP_VIEW_MISSING: lambda: told_in(None),
    FindingKind.GROUP_VIEW_DENIED: lambda: told_in(TopicFacts("beats", 1, None, None, frozenset())),
    FindingKind.GROUP_VIEW_KEPT: lambda: told_in(TopicFacts("beats", 1, None, "delete")),
    FindingKind.METADATA_TOO_SMALL: lambda: checks.commit_metadata({"there:9092": 100}),
    FindingKind.LAG_NOT_MOVING: lambda: progress(SILENT, age=5.0),
    FindingKind.OFFSETS_HELD: lambda: progress(HELD, age=5.0),
    FindingKind.POSITION_HELD: lambda: progress(HELD._replace(seconds=60.0), age=720.0),
    FindingKind.TRANSACTION_OPEN: lambda: progress(SILENT, found=Nothing(20)),
    FindingKind.RECORD_UNKNOWN: lambda: progress(
        SILENT, found=UnreadPosition("it did not come within 4 s")
    ),
    FindingKind.INSTANCE_SILENT: lambda: wrong(instance._silent(URL, OSError("refused"))),
    FindingKind.NOT_AN_INSTANCE: lambda: wrong(instance._read(URL, b"hello").wrong),
    FindingKind.OTHER_STATUS: lambda: wrong(
        instance._read(URL, b'{"version": 99, "group": "billing"}').wrong
    ),
    FindingKind.OTHER_GROUP: lambda: of_instance(group="other"),
    FindingKind.NOT_READY: lambda: of_instance(phase="stopping"),
    FindingKind.KEY_BLOCKED: lambda: of_instance(lanes={"blocked": 2}, blocked=[blocked(4)]),
    FindingKind.RECORD_RUNNING_LONG: lambda: of_instance(workers=[worker(0, 17, 61.0)]),
    FindingKind.METRIC_RENAMED: lambda: rule_checks.rules(
        "rules.yaml", "keyshared_draining_hashes > 0"
    ),
    FindingKind.SPARK_UNFIT: lambda: spark("3.5.6"),
    FindingKind.SPARK_JAVA_UNFIT: lambda: spark(java="25"),
    FindingKind.SPARK_JARS_UNFIT: lambda: spark(connector="3.5.6"),
    FindingKind.SPARK_PYTHON_UNFIT: lambda: spark(python="3.9"),
    FindingKind.RECORD_FROM_FUTURE: lambda: checks.clock({"orders": NOW + 60_000}, [], NOW),
    FindingKind.CLOCK_BEHIND: lambda: checks.clock({}, [Stamp(NOW, NOW + 60_000, NOW)], NOW),
    FindingKind.CLOCK_AHEAD: lambda: checks.clock({}, [Stamp(NOW, NOW - 60_000, NOW)], NOW),
}


@pytest.mark.parametrize("kind", FindingKind)
def test_every_finding_has_its_sentence_cause_and_cure_on_the_page(kind: FindingKind) -> None:
    check = EXAMPLES[kind]()
    assert check.page == page_of(kind), "the example is not of this kind"
    by_check = sections(DOCTOR_PAGE.read_text("utf-8"))
    (body,) = [own[kind] for own in by_check.values() if kind in own]
    if check.name:
        assert kind in by_check[check.name], "it stands under another check"
    (quote,) = quotes(body)
    status, _, sentence = quote.partition(" ")
    assert status == f"**{check.status}**"
    assert as_pattern(sentence).fullmatch(check.why), (sentence, check.why)
    assert check.cure
    assert len(re.sub(_QUOTE, "", body).split()) >= 4, "no word of its cause or cure"


def test_the_page_has_every_check_in_order_and_no_finding_that_there_is_not() -> None:
    text = DOCTOR_PAGE.read_text("utf-8")
    by_check = sections(text)
    assert list(by_check) == list(doctor.CHECKS)
    assert {kind for own in by_check.values() for kind in own} == set(FindingKind)
    there = anchors(text)
    assert {page_of(name).partition("#")[2] for name in (*doctor.CHECKS, *FindingKind)} <= there


def test_every_dangerous_setting_is_in_the_pages_table() -> None:
    body = sections(DOCTOR_PAGE.read_text("utf-8"))["configuration"][FindingKind.SETTING_DANGEROUS]
    rows = [line.split("|")[1] for line in body.splitlines() if line.startswith("| `")]
    told = {re.split(r"[`=]", row)[1] for row in rows}
    assert told == {danger.setting for danger in client_checks.DANGERS}


# --- errors ---


def texts_in(tree: ast.AST) -> Iterator[str]:
    """Every text of a module, with an ellipsis for what is put into it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%(?:\.\d+)?[a-z]", "…", node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield "".join(map(str, parts))


def held(quote: str, said: list[str]) -> bool:
    """Whether one text of the sources has all parts of the quoted sentence, in their order.

    What the sources put in may itself be a sentence, so an ellipsis there matches anything.
    """
    pattern = as_pattern(quote.strip("… "))
    return any(pattern.search(text) for text in said)


@pytest.fixture(scope="module")
def said() -> list[str]:
    written = [text for module in modules("kafka_keyshared") for text in texts_in(module.tree)]
    # Lines about facts of the core are put together from several texts.
    return [*written, *(text for _, _, text in LINES)]


def test_every_quoted_error_is_one_that_the_package_says(said: list[str]) -> None:
    quoted = quotes(ERRORS_PAGE.read_text("utf-8"))
    assert len(quoted) > 40
    assert [quote for quote in quoted if not held(quote, said)] == []


@pytest.mark.parametrize(
    "quote",
    ["topic … does not exist on the moon", "there is no handler: give one", "… lost: nothing"],
)
def test_an_error_that_nobody_says_is_found(said: list[str], quote: str) -> None:
    assert not held(quote, said)


def test_the_errors_page_names_every_error_class_with_its_exit_status() -> None:
    text = ERRORS_PAGE.read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (\d) \|$", text, re.MULTILINE))
    there = {
        name: str(each.exit_code)
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.KeySharedError)
    }
    assert rows == there
