"""Orders about dead letters: list the newest, and replay."""

from __future__ import annotations

import time
from typing import Any

from kafka_keyshared.app.commands import Orderable
from kafka_keyshared.client.patterns import is_pattern, topics_meant
from kafka_keyshared.config import Options
from kafka_keyshared.config.options import DLQ_SUFFIX
from kafka_keyshared.dlq.json_view import in_a_line
from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay import ReplayOutcome
from kafka_keyshared.dlq.replay_plan import ReplayPlan
from kafka_keyshared.dlq.service import Desk, ReplayRequest
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.model import counted, some
from kafka_keyshared.observability.web.command_list import LettersOrder, ReplayOrder


def newest(app: Orderable, order: LettersOrder, *, keys: bool) -> tuple[str, dict[str, Any]]:
    """List the newest letters of the app's group; without ``keys`` the keys are hidden."""
    dlq = _topic(app, order.dlq)
    found = _desk(app, dlq).newest(order.most)
    shown = [{**in_a_line(letter), "replayed": replayed} for letter, replayed in found]
    if not keys:
        shown = [each | {"key": None} for each in shown]
    return f"{dlq} has {counted(len(shown), 'letter')} of this group", {"dlq": dlq, "newest": shown}


def replay(app: Orderable, order: ReplayOrder) -> tuple[str, dict[str, Any]]:
    """Replay letters of the app's group, or report what would be replayed.

    Raises :class:`KeySharedError` when there are none or some are left. Raises
    :class:`TimeoutError` when not all are sent in time. Both say how many were sent.
    """
    dlq = _topic(app, order.dlq)
    desk = _desk(app, dlq)
    at = LetterPlace(*map(int, order.at.split(":"))) if order.at else None
    wanted = ReplayRequest(at, order.max_replays, order.rate)
    if not order.execute:
        plan = desk.plan(wanted)
        return _would(plan), _told(dlq, plan)
    ends = time.monotonic() + order.timeout
    plan, outcome = desk.replay(wanted, lambda: time.monotonic() > ends)
    _would(plan)
    if not outcome.whole:
        why = f"{_sent(outcome)}; {_left(outcome)}"
        late = outcome.halted is None and not outcome.refused
        raise (TimeoutError if late else KeySharedError)(why)
    return _sent(outcome), _told(dlq, plan) | {"replayed": outcome.replayed, "gone": outcome.gone}


def _desk(app: Orderable, dlq: str) -> Desk:
    return Desk(app.conf, dlq, str(app.conf["group.id"]))


def _topic(app: Orderable, named: str) -> str:
    """Return the dead-letter topic of the order; raise if it is not one of the app's."""
    options = app.options
    if options.dlq is False:
        raise ConfigError("there is no dead-letter topic; set dlq")
    own = sorted({options.dlq_topic(each) for each in app.topics if not _unknown(options, each)})
    source = named.removesuffix(DLQ_SUFFIX)
    meant = [options.dlq_topic(each) for each in topics_meant(app.topics, [source])]
    if named in own or named in meant:
        return named
    if named or len(own) != 1:
        which = some([*own, *filter(is_pattern, app.topics)])
        said = f"{named!r} is not a dead-letter topic of this instance" if named else "name it"
        raise ConfigError(f"dlq: {said}: {which}")
    return own[0]


def _unknown(options: Options, topic: str) -> bool:
    """Return whether this topic's dead-letter topic is unknown until there are letters."""
    return is_pattern(topic) and options.dlq_topic(topic) == f"{topic}{DLQ_SUFFIX}"


def _would(plan: ReplayPlan) -> str:
    """Describe what a replay would send; raise if that is nothing."""
    refused = plan.refused
    left = _those(
        (refused.already, "replayed before"),
        (refused.copies, "another letter of the same record"),
        (refused.guarded, "replayed too often"),
    )
    if not plan.rows:
        raise KeySharedError(f"there is nothing to replay: {left or 'no letter'}")
    lanes, _ = plan.keys()
    where = some(sorted(plan.targets()))
    besides = f"; not sent: {left}" if left else ""
    each = f" ({counted(lanes, 'key')}, each in its order)" if lanes else ""
    return f"{counted(len(plan.rows), 'letter')} would go to {where}{each}{besides}"


def _told(dlq: str, plan: ReplayPlan) -> dict[str, Any]:
    refused = plan.refused
    return {
        "dlq": dlq,
        "letters": len(plan.rows),
        "to": dict(sorted(plan.targets().items())),
        "already_replayed": refused.already,
        "copies": refused.copies,
        "guarded": refused.guarded,
    }


def _sent(outcome: ReplayOutcome) -> str:
    return f"{counted(outcome.replayed, 'letter')} sent back"


def _left(outcome: ReplayOutcome) -> str:
    why = [each for each, _ in outcome.why.most_common(3)]
    if outcome.halted is not None:
        why.append(outcome.halted)
    told = _those(
        (outcome.refused, "refused"),
        (outcome.behind, "behind a refused record of the same key"),
        (outcome.left, "left for the next replay"),
    )
    return f"{told}{': ' if why else ''}{'; '.join(why)}"


def _those(*counts: tuple[int, str]) -> str:
    """Return the non-zero counts as text."""
    return ", ".join(f"{count:,} {what}" for count, what in counts if count)
