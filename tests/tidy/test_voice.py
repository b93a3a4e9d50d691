"""Texts are in plain language, and every term, option and metric is explained once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from kafka_keyshared.config.fields import fields
from kafka_keyshared.observability.web.metric_catalog import FAMILIES
from tests.tidy.sources import PACKAGE, ROOT, modules, parse, report
from tests.tidy.voice import (
    FOLDER_RATE,
    RATE,
    WORDY,
    Rate,
    beyond,
    by_file,
    by_folder,
    check_first_sentence,
    check_messages,
    documents,
    phrases,
    prose_in,
    prose_of,
    rate_of,
    worst,
)

HELP_WORDS = 2
"""Least words of a help text: fewer could only repeat the name."""

_TERMS = re.compile(r"^- \*\*(.+?)\.\*\*", re.M)
_INNER_TERMS = re.compile(r"(?<!^- )\*\*([A-Z][^*]+?)\*\*[:(. ]", re.M)


def test_wordy_phrases_are_rare() -> None:
    too_much = beyond(by_file(modules(PACKAGE), documents()))
    assert not too_much, "\n".join(too_much)


def test_each_module_begins_with_a_noun_phrase_of_what_it_contains() -> None:
    found = [each for module in modules(PACKAGE) for each in check_first_sentence(module)]
    assert not found, report(found)


def test_messages_start_with_their_object_and_have_no_full_stop() -> None:
    found = [each for module in modules(PACKAGE) for each in check_messages(module)]
    assert not found, report(found)


# --- terms, options, metrics ---


def terms() -> list[str]:
    """The terms of the glossary, also those that share an entry."""
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    entries = [term.lower().strip() for entry in _TERMS.findall(page) for term in entry.split(",")]
    return entries + [term.lower().strip() for term in _INNER_TERMS.findall(page)]


def test_each_term_stands_once_in_the_glossary() -> None:
    found = Counter(terms())
    assert len(found) > 60
    assert {"lag", "backlog", "joining", "dead-letter topic (dlq)", "stuck"} <= set(found)
    assert [term for term, times in found.items() if times > 1] == []


# The glossary has the words of the house. The name of an option or a metric mostly has words of the
# field, such as timeout and retry, and a glossary of those would hide its own. So the help explains
# them, at the place where a reader meets the name.


def unexplained(helps: dict[str, str]) -> list[str]:
    """The names whose help is missing, or says no more than the name."""
    found = []
    for name, text in helps.items():
        words = {word.lower() for word in re.findall(r"\w+", text)}
        said = {part for part in re.split(r"[_.]", name.lower()) if part}
        if len(words) < HELP_WORDS or words <= said | {"the", "of", "a", "in", "and"}:
            found.append(name)
    return found


def test_each_option_and_each_metric_is_explained_by_its_own_help() -> None:
    options = {field.name: field.meaning for field in fields().values()}
    metrics = {family.name: family.help for family in FAMILIES}
    assert len(options) > 50
    assert len(metrics) > 50
    assert unexplained(options | metrics) == []


def test_a_help_that_repeats_the_name_is_found() -> None:
    helps = {
        "ack_timeout": "The ack timeout.",
        "keyshared_lag_offsets": "",
        "revoke_deadline": "Seconds that a revocation waits for running records.",
    }
    assert unexplained(helps) == ["ack_timeout", "keyshared_lag_offsets"]


# --- planted faults ---

PLANTED = [
    "Whoever holds the record settles it.",
    "The owner is told of each rebalance.",
    "What is no worker's just now waits here.",
    "A stuck record is held up until somebody looks.",
    "The partition is paused; meanwhile nobody fetches from it.",
]


@pytest.mark.parametrize("sentence", PLANTED)
def test_a_planted_sentence_is_found_wherever_it_stands(sentence: str) -> None:
    filler = "The worker runs the record. " * 20
    docstring = parse(f'def f():\n    """{filler}{sentence}"""')
    comment = parse(f"x = 1  # {sentence}")
    message = parse(f'log.warning("{sentence} %s", x)')
    for module in (docstring, comment, message):
        assert beyond([rate_of(module.path, prose_of(module))])
    assert beyond([rate_of("docs/page.md", [prose_in(filler + sentence)])])
    assert not beyond([rate_of("docs/page.md", [prose_in(filler)])])


def test_a_plain_text_of_the_same_things_is_in_order() -> None:
    plain = """
    The worker that holds the record settles it. The owner is notified of each rebalance.
    Records that no worker accepts wait here. A stuck record waits for an operator.
    The partition is paused, so the client does not fetch from it. For example, what a test needs.
    """
    assert phrases(plain).total() == 0


def test_code_in_a_document_and_names_in_a_module_do_not_count() -> None:
    assert phrases(prose_in("```sh\necho nobody\n```\nUse `nobody`.")).total() == 0
    assert rate_of("x.py", prose_of(parse("nobody = 'nobody'"))).phrases == 0


@pytest.mark.parametrize("advice", WORDY)
def test_each_kind_of_phrase_is_found(advice: str) -> None:
    examples = {
        "name the actor": "nobody's",
        "name the object": "What runs here.",
        "say it directly": "The owner sees to it.",
        "give the time": "They wait just now.",
        "begin with the subject": "It ends; of which two run.",
    }
    assert phrases(examples[advice]) == Counter({advice: 1})


def test_the_limits_are_over_all_and_by_folder_and_the_worst_files_are_named() -> None:
    plain = [Rate(f"docs/guide/{n}.md", 0, 10_000) for n in range(3)]
    wordy = Rate("kafka_keyshared/cli/acting.py", 20, 5_000)
    folder, file = beyond([*plain, wordy])
    assert f"at most {FOLDER_RATE}" in folder
    assert file.strip() == str(wordy).strip()
    total, *_ = beyond([plain[0], wordy._replace(phrases=40)])
    assert f"at most {RATE}" in total
    assert beyond([plain[0], wordy._replace(words=200, phrases=2)]) == [], "too few words to judge"
    assert worst([*plain, wordy]) == [wordy]
    assert [each.where for each in by_folder([*plain, wordy])] == [
        "kafka_keyshared/cli",
        "docs/guide",
    ]


@pytest.mark.parametrize(
    "docstring",
    [
        "What is seen of instances from outside.",
        "Runs the records of a slice.",
        "Write a dead letter.",
        "How a worker is made.",
        "For tests of handlers.",
        "A long list of all the words that a module docstring must never begin with.",
    ],
)
def test_a_module_that_begins_otherwise_is_found(docstring: str) -> None:
    (finding,) = check_first_sentence(parse(f'"""{docstring}"""'))
    assert finding.where == f"{PACKAGE}/planted.py"


@pytest.mark.parametrize(
    "docstring",
    [
        "Positions, and settled sets. Each is derived when a commit is due, from held records.",
        "``KeyShared``: a handler with its settings and topics, ready to run.",
        "Commands that the core returns to its caller, as values.",
        "All metrics: name, kind, help.",
        "Bounds, the lowest first.",
    ],
)
def test_a_noun_phrase_is_in_order(docstring: str) -> None:
    assert check_first_sentence(parse(f'"""{docstring}"""')) == []


def test_a_module_without_a_docstring_is_found() -> None:
    assert len(check_first_sentence(parse("x = 1"))) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "raise ConfigError('nobody knows what to do')",
        "raise ConfigError(f'cannot read {path}')",
        "raise ConfigError('topic orders: no such topic.')",
        "log.warning('what the loop holds: %s', x)",
        "self._log.error('worker-0 has died.')",
    ],
)
def test_a_message_of_another_shape_is_found(statement: str) -> None:
    assert len(check_messages(parse(statement))) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "raise ConfigError(f'{name}: no such topic; create it')",
        "raise ConfigError('topics=[]: give a list with at least one topic name')",
        "log.info('worker-0: its thread has ended; another one is started')",
        "print('What is this?')",
        "raise error",
        "log.warning(text, name)",
    ],
)
def test_a_message_about_its_object_is_in_order(statement: str) -> None:
    assert check_messages(parse(statement)) == []
