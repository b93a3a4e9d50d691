"""Words for the facts about commits and the starts of partitions (:mod:`.notice_words`)."""

from __future__ import annotations

from kafka_keyshared.core.contract import commit_facts as facts
from kafka_keyshared.executors.notice_words import FactWords, place_of
from kafka_keyshared.model import counted, some

PARTITIONS_NAMED = 5
"""Partitions that the line of a failed commit names."""

RECORDS_NAMED = 10
"""Records that one line names."""

REGAINED_NAMED = 8
"""Partitions that the line of regained progress names."""


def commit_failed(fact: facts.CommitFailed) -> FactWords:
    """Return the words for failed commits."""
    where = ", ".join(map(str, fact.partitions[:PARTITIONS_NAMED]))
    if fact.refused:
        return FactWords(
            f"commit for {where} was refused: {fact.error}; a rebalance has completed; "
            "positions of partitions that stay here are committed again, other unsettled records "
            "run at their new owners"
        )
    return FactWords(f"commit for {where} failed: {fact.error}; its positions are sent again")


def settled_set_cut(fact: facts.SettledSetCut) -> FactWords:
    """Return the words for cut settled sets."""
    return FactWords(
        f"{fact.partition}: the settled set does not fit in the commit metadata; its lowest part "
        "is written, the other settled records would run again at the next start"
    )


def metadata_limit_lowered(fact: facts.MetadataLimitLowered) -> FactWords:
    """Return the words for lowered metadata limits."""
    what = (
        f"refuse commit metadata of {fact.refused} characters"
        if fact.accepted is None
        else f"take {fact.accepted} bytes of commit metadata"
    )
    follows = (
        "too few for a settled set: after every restart, also a clean one, records settled beyond "
        "the position run again"
        if fact.without_sets
        else "so records ahead of a slow record are held back until the settled set fits"
    )
    cure = "set offset.metadata.max.bytes=4096 on the brokers"
    return FactWords(f"the brokers {what}, {follows}; {cure}")


def position_removed(fact: facts.PositionRemoved) -> FactWords:
    """Return the words for positions that retention removed."""
    return FactWords(
        f"{fact.partition}: retention has removed the log up to {fact.log_start}, past the "
        f"committed position {fact.position}; {fact.log_start - fact.position} offsets are gone, "
        "reading goes on at the start of the log"
    )


def metadata_ignored(fact: facts.MetadataIgnored) -> FactWords:
    """Return the words for ignored commit metadata."""
    return FactWords(f"{fact.partition}: {fact.problem}")


def unclean_stops(fact: facts.UncleanStops) -> FactWords:
    """Return the words for unclean stops."""
    suspects = fact.suspects
    shown = ", ".join(map(place_of, suspects[:RECORDS_NAMED]))
    more = fact.more + max(0, len(suspects) - RECORDS_NAMED)
    return FactWords(
        f"{some(fact.partitions, 3)}: the last owner ended without a clean stop; records that were "
        f"likely running: {shown}{f' (+{more} more)' if more else ''}; starting with small "
        "batches, these records last"
    )


def suspects_starting(fact: facts.SuspectsStarting) -> FactWords:
    """Return the words for starting suspects."""
    names = some(map(place_of, fact.suspects), RECORDS_NAMED)
    records = counted(len(fact.suspects), "record")
    return FactWords(f"{names}: {records} starting that ran when the last owner ended")


def progress_regained(fact: facts.ProgressRegained) -> FactWords:
    """Return the words for regained progress."""
    names = some(fact.partitions, REGAINED_NAMED)
    return FactWords(
        f"{names}: assigned again, and no other member has committed; settled records do not run "
        "again"
    )
