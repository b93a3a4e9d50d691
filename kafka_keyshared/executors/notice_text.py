"""Log lines of the facts that the core reports.

The core reports typed facts (:mod:`kafka_keyshared.core.contract.facts`). Their log levels are
decided here, in one table; :mod:`.notice_words` and :mod:`.commit_words` have their texts.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka_keyshared.core.contract import commit_facts, facts
from kafka_keyshared.core.contract.commands import Notice
from kafka_keyshared.core.contract.facts import Fact, HaltCause
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.telemetry.failure_kinds import named_kind, printable
from kafka_keyshared.executors import commit_words
from kafka_keyshared.executors import notice_words as words
from kafka_keyshared.executors.notice_words import FactWords
from kafka_keyshared.model import About

LATELY = 1.0
"""Age in seconds from which a line states how old its event is."""


class Level(enum.IntEnum):
    """Log level of a fact; the numbers are those of the standard library's logging."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """The log line of a notice.

    ``running`` names a running record (subscription, worker, slice, index). Its place in the
    handler's code belongs behind the text, as far as its pool can see that. ``about`` is the one
    record that the line is about. ``traceback`` has the lines that follow.
    """

    level: Level
    text: str
    about: About | None = None
    running: tuple[str, int, int, int] | None = None
    traceback: str = ""


def line_of(notice: Notice) -> NoticeLine:
    """Return the log line of a notice."""
    fact, repeats = notice.fact, notice.repeats
    level, plural, put = _FORMS[type(fact)]
    text, follows = put(fact)
    if repeats is not None:
        about = None if repeats.count > 1 else getattr(fact, "about", None)
        return NoticeLine(level, _repeated(text, plural, repeats), about)
    return NoticeLine(
        level,
        text + follows,
        getattr(fact, "about", None),
        getattr(fact, "running", None),
        _traceback(fact),
    )


def halt_text(cause: HaltCause) -> str:
    """Return the reason for which the instance stops."""
    return "".join(_FORMS[type(cause)].put(cause))


def traceback_of(failure: Failure) -> str:
    """Return the traceback lines of a failure; none where it has no place."""
    if not failure.where:
        return ""
    text = f"{failure.error_type}: {failure.message}" if failure.message else failure.error_type
    return printable(f"Traceback (most recent call last):\n{failure.stack}{text}")


def _traceback(fact: Fact) -> str:
    if isinstance(fact, facts.AttemptFailed | facts.LaneBlocked) and fact.traceback:
        return traceback_of(fact.failure)
    return ""


def _repeated(text: str, plural: str, repeats: facts.Repeats) -> str:
    """Return the line for several events, or for one that happened some time ago."""
    old = repeats.last_ago
    ago = f"{old:.0f} s ago" if old >= LATELY else ""
    if repeats.count == 1:
        return f"{ago}: {text}" if ago else text
    more = f"{repeats.count:,} more {plural} in {repeats.seconds:.0f} s{_kinds(repeats)}"
    ago = ago and f", the last {ago}"
    return f"{more}{ago}, the first: {text}"


def _kinds(repeats: facts.Repeats) -> str:
    kinds = [f"{named_kind(each)} {count:,}" for each, count in repeats.kinds]
    if repeats.others:
        kinds.append(f"others {repeats.others:,}")
    return f" ({', '.join(kinds)})" if kinds else ""


class _Form(NamedTuple):
    """Log level of a kind of fact, its name in a line for several, and its words."""

    level: Level
    plural: str
    put: Callable[[Any], FactWords]


_I, _W, _E = Level.INFO, Level.WARNING, Level.ERROR
_HELD_BACK = "times a partition was held back"
_NO_PLURAL = ""

_FORMS: Mapping[type[Any], _Form] = {
    facts.AttemptFailed: _Form(_W, "attempts failed", words.attempt_failed),
    facts.RetryRequested: _Form(_I, "attempts asked to be made again", words.attempt_failed),
    facts.RecordDeadLettered: _Form(
        _W, "records went to the dead-letter topic", words.record_dead_lettered
    ),
    facts.RecordDiverted: _Form(
        _W, "records of diverted keys went to the dead-letter topic", words.record_diverted
    ),
    facts.DeadLetterRefused: _Form(_E, "dead letters were not written", words.dead_letter_refused),
    facts.LaneDiverted: _Form(_E, "keys are diverted", words.lane_diverted),
    facts.LaneBlocked: _Form(_E, "keys are blocked", words.lane_blocked),
    facts.LanesStillBlocked: _Form(_E, _NO_PLURAL, words.lanes_still_blocked),
    facts.LaneOrderDone: _Form(_I, _NO_PLURAL, words.lane_order_done),
    facts.DiversionEnded: _Form(_I, _NO_PLURAL, words.diversion_ended),
    facts.KeyUnreadable: _Form(_W, "records had no readable key", words.key_unreadable),
    facts.UnreadableKeyBlocked: _Form(_E, "keys are blocked", words.unreadable_key_blocked),
    facts.KeyNotYetReadable: _Form(
        _E, "times a key could not be read yet", words.key_not_yet_readable
    ),
    facts.KeysMissing: _Form(_W, _NO_PLURAL, words.keys_missing),
    facts.RecordRunsLong: _Form(_W, _NO_PLURAL, words.record_runs_long),
    facts.LongRunEnded: _Form(_I, _NO_PLURAL, words.long_run_ended),
    facts.RecordStuck: _Form(_E, "records are stuck", words.record_stuck),
    facts.SettledSetFull: _Form(_I, _HELD_BACK, words.settled_set_full),
    facts.OutageBegan: _Form(_E, _NO_PLURAL, words.outage_began),
    facts.OutageEnded: _Form(_W, _NO_PLURAL, words.outage_ended),
    facts.DlqLimitReached: _Form(_E, _NO_PLURAL, words.dlq_limit_reached),
    facts.BlockedRecordsFull: _Form(_E, _NO_PLURAL, words.blocked_records_full),
    facts.WaitingRecordsFull: _Form(_I, _HELD_BACK, words.waiting_records_full),
    facts.RecordsShed: _Form(_W, "times a worker was full and records dropped", words.records_shed),
    facts.RecordHeld: _Form(_W, "times records were held for a worker", words.record_held),
    facts.RecordUnmatched: _Form(_E, _NO_PLURAL, words.record_unmatched),
    facts.WorkerEvicted: _Form(_E, _NO_PLURAL, words.worker_evicted),
    facts.LastWorkerDead: _Form(_E, _NO_PLURAL, words.last_worker_dead),
    facts.WorkerDeparted: _Form(_I, _NO_PLURAL, words.worker_departed),
    facts.WorkersAllLeft: _Form(_W, _NO_PLURAL, words.workers_all_left),
    facts.SlotStateLost: _Form(_E, _NO_PLURAL, words.slot_state_lost),
    commit_facts.CommitFailed: _Form(_W, _NO_PLURAL, commit_words.commit_failed),
    commit_facts.SettledSetCut: _Form(_W, _NO_PLURAL, commit_words.settled_set_cut),
    commit_facts.MetadataLimitLowered: _Form(_W, _NO_PLURAL, commit_words.metadata_limit_lowered),
    commit_facts.PositionRemoved: _Form(_W, _NO_PLURAL, commit_words.position_removed),
    commit_facts.MetadataIgnored: _Form(_W, _NO_PLURAL, commit_words.metadata_ignored),
    commit_facts.UncleanStops: _Form(_W, _NO_PLURAL, commit_words.unclean_stops),
    commit_facts.SuspectsStarting: _Form(_I, _NO_PLURAL, commit_words.suspects_starting),
    commit_facts.ProgressRegained: _Form(_I, _NO_PLURAL, commit_words.progress_regained),
}
