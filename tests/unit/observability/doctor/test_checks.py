"""What each check of the doctor makes of what it is given."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kafka_keyshared.config.keys.sampled import TopicKeys
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.doctor import (
    checks,
    client_checks,
    group_checks,
    key_checks,
    key_sample,
)
from kafka_keyshared.observability.doctor.checks import PartitionFacts, Stamp, TopicFacts
from kafka_keyshared.observability.doctor.findings import (
    Check,
    CheckStatus,
    DoctorFinding,
    FindingKind,
    conclude,
    is_healthy,
    page_of,
    skipped,
)
from kafka_keyshared.observability.doctor.group_checks import GroupFacts

ORDERS = TopicFacts("orders", 4, 1_000_000, "delete", frozenset({"READ", "WRITE"}))
DLQ = TopicFacts("orders.dlq", 2, 1_000_000, "delete", frozenset({"WRITE"}))
THERE = {"orders": ORDERS, "orders.dlq": DLQ}


def plain() -> bool:
    """A listener that speaks no TLS."""
    return False


def explained(check: Check) -> bool:
    """Whether a check that is not ok says why and what to do, and an ok one has no need to."""
    return (
        bool(check.why)
        == bool(check.cure)
        == (check.status in (CheckStatus.WARN, CheckStatus.FAIL))
    )


def test_the_worst_finding_decides_and_all_are_told_once() -> None:
    warn = DoctorFinding(FindingKind.DLQ_COMPACTED, CheckStatus.WARN, "a", "mend a")
    fail = DoctorFinding(FindingKind.DLQ_MISSING, CheckStatus.FAIL, "b", "mend b")
    assert conclude("dlq", "s") == Check("dlq", CheckStatus.OK, "s", "", "", page_of("dlq"))
    assert conclude("dlq", "s", [warn]).page == page_of("dlq-compacted")
    assert conclude("dlq", "s", [warn, fail, warn]) == Check(
        *(
            "dlq",
            CheckStatus.FAIL,
            "s",
            "a; b",
            "mend a; mend b",
            "reference/doctor.md#dlq-missing",
        ),
        (warn, fail, warn),
    )


def test_only_a_failure_is_unhealthy() -> None:
    warn = DoctorFinding(FindingKind.DLQ_COMPACTED, CheckStatus.WARN, "", "")
    fine = [conclude("n", ""), conclude("n", "", [warn]), skipped("n", "")]
    assert is_healthy(fine)
    assert not is_healthy([*fine, conclude("n", "", [warn._replace(status=CheckStatus.FAIL)])])


# --- the client's settings and the brokers ---


@pytest.mark.parametrize(
    ("setting", "value", "status"),
    [
        ("isolation.level", "read_uncommitted", CheckStatus.WARN),
        ("isolation.level", "read_committed", None),
        ("allow.auto.create.topics", True, CheckStatus.WARN),
        ("allow.auto.create.topics", "false", None),
        ("enable.ssl.certificate.verification", "false", CheckStatus.WARN),
        ("enable.ssl.certificate.verification", True, None),
        ("ssl.endpoint.identification.algorithm", "none", CheckStatus.WARN),
        ("session.timeout.ms", 5_999, CheckStatus.WARN),
        ("session.timeout.ms", "6000", None),
        ("socket.timeout.ms", 44_999, CheckStatus.WARN),
        ("socket.timeout.ms", "45000", None),
        ("socket.timeout.ms", "soon", None),
        ("statistics.interval.ms", 500, CheckStatus.WARN),
        ("statistics.interval.ms", 0, None),
        ("debug", "all", CheckStatus.WARN),
        ("bootstrap.servers", "host:99999", CheckStatus.FAIL),
        ("bootstrap.servers", "a:9092,b:kafka", CheckStatus.FAIL),
        ("bootstrap.servers", "a:9092, SSL://b:9093,[::1]:9092,c", None),
    ],
)
def test_settings_that_the_client_takes_although_they_are_dangerous(
    setting: str, value: object, status: CheckStatus | None
) -> None:
    found = client_checks.dangers({"bootstrap.servers": "host:9092", setting: value})
    assert [each.status for each in found] == ([] if status is None else [status])
    assert all(setting in each.why and each.cure for each in found)


@pytest.mark.parametrize(("session", "warns"), [(6_000, False), ("90000", True), ("soon", False)])
def test_the_socket_has_to_last_as_long_as_the_session_that_is_given(
    session: object, warns: bool
) -> None:
    conf = {"socket.timeout.ms": 60_000, "session.timeout.ms": session}
    assert bool(client_checks.dangers({"bootstrap.servers": "host:9092", **conf})) is warns


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("x:9092/bootstrap: Failed to resolve 'x:9092': Name or service not known", "not known"),
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused", "nothing listens"),
        (
            "SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
            "PLAINTEXT broker listener?",
            "plain one",
        ),
        (
            "ssl://127.0.0.1:1/bootstrap: Disconnected: SSL connection closed by peer (after 4ms "
            "in state SSL_HANDSHAKE)",
            "plain one",
        ),
        (
            "ssl://127.0.0.1:1/bootstrap: Disconnected: connection reset by peer (after 0ms in "
            "state SSL_HANDSHAKE, 1 identical error(s) suppressed)",
            "plain one",
        ),
        (
            "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL "
            "state: broker's supported mechanisms:  (after 1ms in state AUTH_HANDSHAKE)",
            "plain one",
        ),
        (
            "Disconnected while requesting ApiVersion: might be caused by incorrect "
            "security.protocol configuration (connecting to a SSL listener?)",
            "another protocol",
        ),
        ("SSL handshake failed: error:0A000086: certificate verify failed", "TLS handshake"),
        ("SASL authentication error: Authentication failed: Invalid username", "credentials"),
        ("0/2 brokers are down", "closed before there is an answer"),
        (
            "127.0.0.1:1/bootstrap: Send failed: Broken pipe (after 1ms in state UP)",
            "closed before there is an answer",
        ),
        (
            "127.0.0.1:1/bootstrap: Receive failed: Connection reset by peer (after 1ms in state "
            "APIVERSION_QUERY)",
            "closed before there is an answer",
        ),
        (
            "127.0.0.1:1/bootstrap: Disconnected: connection closed by peer: receive 0 after "
            "POLLIN (after 1ms in state APIVERSION_QUERY)",
            "closed before there is an answer",
        ),
        (
            "127.0.0.1:1/bootstrap: Disconnected (after 1ms in state UP)",
            "closed before there is an answer",
        ),
        ("Failed to get metadata: Local: Required feature not supported by broker", "no broker"),
        ("Connection setup timed out in state APIVERSION_QUERY", "no answer"),
        ("something new", "no broker answers"),
    ],
)
def test_the_clients_reason_is_explained(reason: str, why: str) -> None:
    check = client_checks.unanswered("there:9092", reason, plain)
    assert check.status is CheckStatus.FAIL
    assert check.seen == f"there:9092: {reason}"
    assert why in check.why
    assert check.cure


@pytest.mark.parametrize("reason", ["1/1 brokers are down", "Send failed: Broken pipe"])
def test_a_listener_that_closes_is_tried_for_tls_and_no_other_is(reason: str) -> None:
    tried: list[str] = []

    def tls() -> bool:
        tried.append("tls")
        return True

    check = client_checks.unanswered("there:9092", reason, tls)
    assert check.page == page_of("tls-listener")
    assert "wants TLS" in check.why
    client_checks.unanswered("there:9092", "Connect to there:9092 failed: Connection refused", tls)
    assert tried == ["tls"]


def test_a_listener_that_never_answers_is_told_from_one_that_closes() -> None:
    """Where the client has waited for it long enough it says the same of both."""
    mute = client_checks.unanswered("there:9092", "1/1 brokers are down", plain, lambda: True)
    assert mute.page == page_of("no-answer")
    reason = "Disconnected (after 0ms in state APIVERSION_QUERY)"
    closed = client_checks.unanswered("there:9092", reason, plain, lambda: True)
    assert closed.page == page_of("connection-closed"), "it has said so"


@pytest.mark.parametrize("scheme", ["", "sasl_ssl://"])
def test_an_address_that_the_cluster_gave_is_told_from_the_one_that_was_given(scheme: str) -> None:
    failed = "Connect to ipv4#10.0.0.1:9092 failed: Connection refused"
    check = client_checks.unanswered("there:9092", f"{scheme}kafka-0:9092/1: {failed}", plain)
    assert check.status is CheckStatus.FAIL
    assert "a broker is at kafka-0:9092, where none answers: nothing listens there" in check.why
    assert "advertised.listeners" in check.cure
    check = client_checks.unanswered("there:9092", f"{scheme}there:9092/bootstrap: {failed}", plain)
    assert check.why == "nothing listens there"


def test_a_broker_that_does_not_answer_where_it_says_it_is() -> None:
    assert client_checks.brokers({"a:1": None, "b:1": None}).status is CheckStatus.OK
    check = client_checks.brokers({"a:1": None, "b:1": "Connection refused"})
    assert (check.status, check.seen) == (CheckStatus.FAIL, "1 of 2 brokers answered: a:1, b:1")
    assert "b:1" in check.why
    assert "Connection refused" in check.why
    assert "advertised.listeners" in check.cure


# --- topics and group ---


@pytest.mark.parametrize(
    ("wanted", "status", "said"),
    [
        (["orders"], CheckStatus.OK, "orders: 4 partitions"),
        (["orders", "ordres"], CheckStatus.FAIL, "'ordres' does not exist"),
        (["^ord.*"], CheckStatus.OK, "^ord.*: 2 topics (orders, orders.dlq)"),
        (["^nix.*", "orders"], CheckStatus.WARN, "pattern '^nix.*' matches no topic"),
        (["^no[t"], CheckStatus.FAIL, "'^no[t' is no regular expression"),
        (["secret"], CheckStatus.FAIL, "may not read 'secret'"),
    ],
)
def test_topics(wanted: list[str], status: CheckStatus, said: str) -> None:
    secret = TopicFacts("secret", 1, may=frozenset({"DESCRIBE"}))
    shown = {**THERE, "secret": secret} if wanted == ["secret"] else THERE
    check = checks.topics(wanted, shown)
    assert check.status is status
    assert said in check.seen + check.why
    assert explained(check)


MEMBER = ("rdkafka at /10.0.0.7",)
MAY = frozenset({"READ"})


@pytest.mark.parametrize(
    ("facts", "conf", "status", "said"),
    [
        (GroupFacts("DEAD", "CLASSIC", "", ()), {}, CheckStatus.OK, "new"),
        (
            GroupFacts("EMPTY", "CLASSIC", "", (), MAY),
            {},
            CheckStatus.OK,
            "empty (classic), 0 members",
        ),
        (GroupFacts("STABLE", "CLASSIC", "range", MEMBER, MAY), {}, CheckStatus.OK, "1 member"),
        (
            GroupFacts("STABLE", "CLASSIC", "cooperative-sticky", MEMBER, MAY),
            {},
            CheckStatus.WARN,
            "assignor 'cooperative-sticky' (rdkafka at /10.0.0.7), ours: range,roundrobin",
        ),
        (
            GroupFacts("STABLE", "CLASSIC", "cooperative-sticky", MEMBER, MAY),
            {"partition.assignment.strategy": "range, cooperative-sticky"},
            CheckStatus.OK,
            "cooperative-sticky",
        ),
        # Nobody is there whose assignor could be another one.
        (GroupFacts("EMPTY", "CLASSIC", "sticky", ()), {}, CheckStatus.OK, "0 members"),
        (
            GroupFacts("STABLE", "CLASSIC", "sticky", MEMBER),
            {"partition.assignment.strategy": "cooperative-sticky"},
            CheckStatus.WARN,
            "assignor 'sticky'",
        ),
        (
            GroupFacts("STABLE", "CONSUMER", "uniform", MEMBER),
            {},
            CheckStatus.WARN,
            "group.protocol=consumer",
        ),
        (
            GroupFacts("STABLE", "CONSUMER", "uniform", MEMBER),
            {"group.protocol": "consumer"},
            CheckStatus.OK,
            "uniform",
        ),
        (GroupFacts("EMPTY", "CLASSIC", "", (), frozenset()), {}, CheckStatus.FAIL, "may not join"),
        (
            GroupFacts("PREPARING_REBALANCING", "CLASSIC", "", MEMBER),
            {},
            CheckStatus.WARN,
            "a killed member stays until its session.timeout.ms (45 s) is over",
        ),
    ],
)
def test_group(facts: GroupFacts, conf: dict[str, Any], status: CheckStatus, said: str) -> None:
    check = group_checks.group("billing", facts, conf)
    assert check.status is status
    assert said in check.seen + check.why
    assert explained(check)


@pytest.mark.parametrize(
    ("members", "counts", "assignor", "said"),
    [
        (6, {"orders": 4}, "range", "only 4 partitions of orders can be assigned"),
        (6, {"orders": 4}, "range", "run 4 members and give each more workers"),
        (6, {"orders": 4, "more": 4}, "range", "partition.assignment.strategy=roundrobin"),
        (6, {"orders": 8}, "roundrobin", "check which topics these members subscribe to"),
    ],
)
def test_members_without_partitions(
    members: int, counts: dict[str, int], assignor: str, said: str
) -> None:
    names = tuple(f"app-{number} at /10.0.0.7" for number in range(members))
    facts = GroupFacts("STABLE", "CLASSIC", assignor, names, MAY, idle=names[4:])
    check = group_checks.group("billing", facts, {}, counts)
    assert (check.status, check.page) == (CheckStatus.WARN, page_of("member-without-partitions"))
    assert "2 of 6 members have no partition (app-4 at /10.0.0.7, app-5" in check.why
    assert said in check.why + check.cure


def test_members_are_not_idle_while_partitions_are_given_out() -> None:
    facts = GroupFacts("PREPARING_REBALANCING", "CLASSIC", "", MEMBER, MAY, idle=MEMBER)
    check = group_checks.group("billing", facts, {}, {"orders": 4})
    assert (check.status, check.page) == (CheckStatus.WARN, page_of("group-rebalancing"))


# --- positions ---


def test_lag_is_told_per_topic() -> None:
    partitions = [
        PartitionFacts("a", 0, 0, 1_500, 500),
        PartitionFacts("a", 1, 0, 10, 10),
        PartitionFacts("b", 0, 5, 9, 9),
    ]
    check = checks.positions(partitions, {})
    assert check == conclude("positions", "a: lag 1,000; b: lag 0")


def test_a_partition_that_is_not_known_hides_no_other() -> None:
    partitions = [
        PartitionFacts("a", 0, 0, 1_500, 500),
        PartitionFacts("a", 1, 0, 0, None, "Broker: Leader not available"),
        PartitionFacts("b", 0, 0, 0, None, "Broker: Leader not available"),
    ]
    check = checks.positions(partitions, {"auto.offset.reset": "latest"})
    assert (check.status, check.seen) == (
        CheckStatus.WARN,
        "a: lag 1,000 in 1 of 2 partitions; b: not known",
    )
    assert check.why.startswith("a-1, b-0: not looked at")
    assert check.why.endswith("Leader not available")
    assert check.page == page_of("partition-unknown")
    check = checks.retention(partitions)
    assert (check.status, check.seen) == (CheckStatus.OK, "1 committed position looked at")


@pytest.mark.parametrize(
    ("committed", "reset", "status", "said"),
    [
        (
            (None, None),
            "latest",
            CheckStatus.WARN,
            "a: 2 of 2 partitions have no committed position",
        ),
        (
            (None, None),
            "latest",
            CheckStatus.WARN,
            "30 records already in them would never be read",
        ),
        (
            (None, None),
            "latest",
            CheckStatus.WARN,
            "2 of 2 partitions, 30 records, start at the end",
        ),
        ((None, None), "earliest", CheckStatus.OK, "start at the beginning"),
        ((3, None), "earliest", CheckStatus.OK, "start at the beginning"),
        ((3, None), "latest", CheckStatus.WARN, "20 records already in them would never be read"),
    ],
)
def test_partitions_without_a_position(
    committed: tuple[int | None, int | None], reset: str, status: CheckStatus, said: str
) -> None:
    partitions = [
        PartitionFacts("a", 0, 0, 10, committed[0]),
        PartitionFacts("a", 1, 5, 25, committed[1]),
    ]
    check = checks.positions(partitions, {"auto.offset.reset": reset})
    assert check.status is status
    assert said in check.seen + check.why
    assert explained(check)


def test_a_group_that_starts_at_the_end_of_an_empty_topic_misses_nothing() -> None:
    check = checks.positions([PartitionFacts("a", 0, 7, 7, None)], {"auto.offset.reset": "latest"})
    assert check.status is CheckStatus.OK


@pytest.mark.parametrize(
    ("first", "end", "committed", "said"),
    [
        (0, 10, 10, None),
        (5, 10, 5, None),
        (0, 10, None, None),
        (6, 10, 5, "a-0: from the committed position 5 on, 1 record"),
        (10, 10, 0, "on, 10 records were deleted"),
        (0, 10, 11, "committed position 11 is beyond the end 10"),
    ],
)
def test_what_retention_took_before_it_was_read(
    first: int, end: int, committed: int | None, said: str | None
) -> None:
    check = checks.retention([PartitionFacts("a", 0, first, end, committed)])
    assert check.status is (CheckStatus.OK if said is None else CheckStatus.FAIL)
    assert (said or "") in check.why
    assert explained(check)


# --- dead letters, metadata, clock ---


@pytest.mark.parametrize(
    ("change", "create", "status", "said"),
    [
        ({}, False, CheckStatus.OK, "orders.dlq: 2 partitions"),
        (None, False, CheckStatus.FAIL, "'orders.dlq' does not exist"),
        (None, True, CheckStatus.OK, "would be made at start"),
        ({"max_message_bytes": 999_999}, False, CheckStatus.WARN, "999,999 bytes at most"),
        ({"max_message_bytes": None}, False, CheckStatus.OK, "2 partitions"),
        ({"cleanup": "compact,delete"}, False, CheckStatus.WARN, "is compacted"),
        ({"may": frozenset({"READ"})}, False, CheckStatus.FAIL, "may not write"),
        ({"may": None}, False, CheckStatus.OK, "2 partitions"),
    ],
)
def test_dead_letters(
    change: dict[str, Any] | None, create: bool, status: CheckStatus, said: str
) -> None:
    there = {"orders": ORDERS}
    if change is not None:
        there["orders.dlq"] = DLQ._replace(**change)
    pairs = [(ORDERS, "orders.dlq")]
    check = checks.dead_letters(pairs, there, consumed=["orders"], create=create)
    assert check.status is status
    assert said in check.seen + check.why
    assert explained(check)


@pytest.mark.parametrize(
    ("source", "dlq", "codec", "most", "warned"),
    [
        ("producer", "producer", "zstd", 1_000_000, False),
        ("producer", "producer", "none", 1_000_000, True),
        ("producer", "uncompressed", "zstd", 1_000_000, True),
        ("producer", "uncompressed", "zstd", 50_000_000, False),
        ("producer", "lz4", "zstd", 1_000_000, False),
        ("zstd", "producer", "lz4", 1_000_000, True),
        ("zstd", "gzip", "zstd", 1_000_000, True),
        ("snappy", "producer", "lz4", 1_000_000, False),
        ("uncompressed", "uncompressed", "none", 1_000_000, False),
        (None, "uncompressed", "none", 1_000_000, False),
        ("producer", None, "none", 1_000_000, False),
    ],
)
def test_a_dead_letter_topic_in_which_a_record_takes_more_bytes_than_in_its_source(
    source: str | None, dlq: str | None, codec: str, most: int, warned: bool
) -> None:
    letters = DLQ._replace(compression=dlq, max_message_bytes=most)
    check = checks.dead_letters(
        [(ORDERS._replace(compression=source), "orders.dlq")],
        {"orders.dlq": letters},
        consumed=["orders"],
        create=False,
        codec=codec,
    )
    assert (check.status is CheckStatus.WARN) is warned
    assert ("its key would wait" in check.why) is warned
    assert explained(check)


def test_dead_letters_that_a_pattern_would_read_again() -> None:
    pairs = [(ORDERS, "orders.dlq"), (DLQ, "orders.dlq.dlq")]
    check = checks.dead_letters(pairs, THERE, consumed=["orders", "orders.dlq"], create=True)
    assert check.status is CheckStatus.FAIL
    assert "'orders.dlq' is consumed here too" in check.why


def test_metadata_that_a_settled_set_does_not_fit_into() -> None:
    assert checks.commit_metadata({"a:1": 4_096}).status is CheckStatus.OK
    check = checks.commit_metadata({"a:1": 4_096, "b:1": 4_095})
    assert check.status is CheckStatus.WARN
    assert "b:1" in check.why
    assert "a:1" not in check.why
    assert explained(check)


@pytest.mark.parametrize(
    ("ahead_ms", "status", "said"),
    [
        (-60_000, CheckStatus.OK, "60 s old"),
        (4_000, CheckStatus.OK, "4.0 s in the future"),
        (65_000, CheckStatus.WARN, "orders: a record was written 65 s from now"),
    ],
)
def test_a_clock_that_is_behind_a_records_time(
    ahead_ms: int, status: CheckStatus, said: str
) -> None:
    now = 1_800_000_000_000
    check = checks.clock({"orders": now + ahead_ms, "old": now - 10**9}, [], now)
    assert check.status is status
    assert said in check.seen + check.why
    assert explained(check)


NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("stamped", "page", "said"),
    [
        (NOW - 300, "clock", "agree"),
        # Written before the doctor looked first, by the broker's clock.
        (NOW - 5_900, "clock", "agree"),
        (NOW - 66_000, "clock-ahead", "65 s ahead of that of a broker"),
        (NOW + 4_000, "clock", "agree"),
        (NOW + 65_000, "clock-behind", "65 s behind that of a broker"),
    ],
)
def test_what_a_broker_writes_meanwhile_shows_a_clock_either_way(
    stamped: int, page: str, said: str
) -> None:
    stamps = [Stamp(NOW - 1_000, NOW - 500, NOW), Stamp(NOW - 1_000, stamped, NOW)]
    check = checks.clock({}, stamps, NOW)
    assert check.page == page_of(page)
    assert said in check.seen + check.why
    assert explained(check)


def test_without_a_brokers_time_nothing_is_said_of_a_clock_that_is_ahead() -> None:
    check = checks.clock({"orders": NOW - 60_000}, [], NOW)
    assert check.status is CheckStatus.OK
    assert (
        "no broker wrote a time in this run, so a clock that is ahead would not show" in check.seen
    )


# --- keys ---


def test_keys_that_all_can_be_read_are_no_finding() -> None:
    check = key_checks.keys("json:/id", {"b": TopicKeys(keyed=3), "a": TopicKeys(keyed=1)})
    seen = "with a key by key='json:/id': a: 1 of 1 sampled record, b: 3 of 3 sampled records"
    assert (check.status, check.seen) == (CheckStatus.OK, seen)


def test_a_topic_of_another_format_fails_and_one_with_some_of_it_is_a_warning() -> None:
    other = Counter({"gzip; the setting says plain JSON": 2})
    failed = key_checks.keys("json:/id", {"a": TopicKeys(unknown=other)})
    warned = key_checks.keys("json:/id", {"a": TopicKeys(keyed=1, unknown=other)})
    assert (failed.status, warned.status) == (CheckStatus.FAIL, CheckStatus.WARN)
    assert "a: the keys of 2 of 3 sampled records cannot be read" in warned.why
    assert warned.why.endswith("gzip; the setting says plain JSON")


def test_the_partitions_with_most_records_are_sampled_from_near_their_ends() -> None:
    bounds = {TopicPartition("a", number): (5, 5 + 10 * number) for number in range(8)}
    bounds[TopicPartition("b", 0)] = (0, 1_000)
    assert key_sample.newest(bounds) == {
        TopicPartition("b", 0): 950,
        TopicPartition("a", 7): 25,
        TopicPartition("a", 6): 15,
        TopicPartition("a", 5): 5,
        TopicPartition("a", 4): 5,
    }
