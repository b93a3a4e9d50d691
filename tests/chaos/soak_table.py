"""A soak in words and figures."""

from __future__ import annotations

from collections import Counter

from tests.chaos.soak_evidence import Evidence, Life
from tests.chaos.soak_judge import CONTRACT, SHOWN, Verdict
from tests.chaos.soak_schedule import Scenario

OWN_RULES = (
    *("lost", "repeats", "stragglers", "letters"),
    *("stand-still", "behind", "stops", "ends", "memory", "drain"),
)


def opening(scenario: Scenario) -> str:
    """Return what is about to be done, in one line."""
    steps = Counter(step.what for step in scenario.steps)
    named = ", ".join(f"{count} {what}" for what, count in sorted(steps.items()))
    return (
        f"{scenario.seconds:.0f} s, {scenario.brokers} broker(s), group protocol "
        f"{scenario.protocol}, {scenario.partitions} partitions, {scenario.keys} keys "
        f"(Zipf {scenario.exponent:.2f}): {named}"
    )


def table(evidence: Evidence, verdict: Verdict) -> str:
    """Return the figures and what was found."""
    sections = (_totals, _faults, _repeated, _still, _memory, _rules)
    return "\n".join(line for section in sections for line in section(evidence, verdict))


def _totals(evidence: Evidence, verdict: Verdict) -> list[str]:
    totals = verdict.judgement.totals
    seconds = evidence.seconds(evidence.end)
    return [
        "",
        f"records    written {totals.produced:,}; handler calls {totals.attempts:,}, of which "
        f"failed {totals.failed_attempts:,} and cut short {totals.unfinished_attempts:,}",
        f"           done {totals.ok:,}, dead letters {totals.dead_lettered:,}; "
        f"{totals.ok / seconds:,.0f} done a second over {seconds:.0f} s",
        f"commits    {totals.commits:,} of a partition, {totals.accepted_commits:,} accepted",
        f"work       next to none was left for {evidence.dry:.0f} s",
    ]


def _faults(evidence: Evidence, _verdict: Verdict) -> list[str]:
    faults = Counter(fault.what for fault in evidence.faults)
    named = ", ".join(f"{what} {count}" for what, count in sorted(faults.items())) or "none"
    stops = [life for life in evidence.lives if life.asked is not None]
    clean = [life for life in stops if life.status == 0]
    killed = sum(life.killed for life in evidence.lives)
    slowest = max((_stop_seconds(life) for life in stops), default=0.0)
    return [
        f"faults     {named}",
        f"members    {len(evidence.lives)} processes; {len(stops)} stopped, {len(clean)} of them "
        f"with status 0, the slowest in {slowest:.1f} s; {killed} killed",
    ]


def _stop_seconds(life: Life) -> float:
    return (life.end - (life.asked or life.end)) / 1e9


def _repeated(_evidence: Evidence, verdict: Verdict) -> list[str]:
    lines = [f"repeats    {verdict.repeats.total():,} that a fault excuses"]
    for settler, count in verdict.repeats.most_common():
        lines.append(f"           {count:,} settled by {settler}: {verdict.cut_off[settler]}")
    return lines


def _still(evidence: Evidence, verdict: Verdict) -> list[str]:
    lines = ["longest stand-still without excuse, by partition"]
    for each in sorted(verdict.still, key=lambda each: -each.seconds):
        lines.append(
            f"           {each.partition}: {each.seconds:.1f} s, at "
            f"{evidence.seconds(each.start):.1f} s, {each.waiting:,} records waiting"
        )
    return lines


def _memory(_evidence: Evidence, _verdict: Verdict) -> list[str]:
    lines = ["memory (MiB) at first, at last, at most"]
    for life in _evidence.lives:
        if life.memory:
            sizes = [mib for _, mib in life.memory]
            lines.append(
                f"           {life.name}: {sizes[0]:.0f}, {sizes[-1]:.0f}, {max(sizes):.0f}"
            )
    return lines


def _rules(_evidence: Evidence, verdict: Verdict) -> list[str]:
    broken: Counter[str] = Counter()
    for each in verdict.violations:
        broken[each.rule] += each.count
    lines = ["judged"]
    lines += [f"           {rule}: {broken[rule]:,}" for rule in (*CONTRACT, *OWN_RULES)]
    for rule in broken:
        some = [each for each in verdict.violations if each.rule == rule][:SHOWN]
        lines += [f"  {rule}: {each.text}" for each in some]
    return lines
