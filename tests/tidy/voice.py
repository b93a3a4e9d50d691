"""A checker for plain language in docstrings, comments, messages, help texts and documents.

``python -m tests.tidy.voice [FOLDER…]`` prints the rate of wordy phrases by folder, and the worst
files. ``test_voice.py`` holds the limits. The rules:

- The first sentence of a module docstring is a noun phrase of at most 12 words.
- A message starts with the object and has no full stop at its end.
- Phrases of :data:`WORDY` are rare.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tests.tidy.habits import dotted
from tests.tidy.sources import PACKAGE, ROOT, Finding, Module, modules, walk

FIRST_WORDS = 12
"""Most words of the first sentence of a module docstring."""

RATE = 2.0
"""Wordy phrases in 1,000 words, over all."""

FOLDER_RATE = 3.5
"""The same, in one folder."""

FEW_WORDS = 300
"""Words below which the rate of a folder says nothing."""

WORST = 10
"""Files that a report names."""

WORDY: Mapping[str, str] = {
    "name the actor": r"(?:some|no|any|every)(?:body|one)(?:'s)?|who(?:m)?ever|he|him|his",
    "name the object": (
        r"what(?:ever|soever)|whichever|what (?:is|was|it|they|the|of|has|runs|comes|goes|waits)"
    ),
    "say it directly": (
        r"(?:is|are|was|were|be|been) told|told (?:of|that)|tells? of|(?:see|sees|seen|seeing) to"
        r"|held up|puts? off|sent home|in hand|through with|no more than that|be had"
    ),
    "give the time": r"meanwhile|by now|just now|so many|time and again",
    "begin with the subject": r"(?<=[.:;] )(?:of (?:which|whom)|whose|for whom|so that)",
}
"""Wordy phrases, by what to do instead. Case does not count."""

_WORDY = {advice: re.compile(rf"\b(?:{words})\b", re.I) for advice, words in WORDY.items()}

OPENERS = {
    *("what", "whatever", "whether", "how", "who", "whoever", "where", "when", "which", "why"),
    *("of", "for", "if", "so", "that", "there", "it", "this", "these"),
}
"""Words that begin no noun phrase which names the contents of a module."""

DETERMINERS = {"the", "a", "an", "each", "every", "all", "its", "their", "one", "no", "some"}
"""Words behind which a noun follows. A bare word before one of them is a verb."""

BAD_STARTS = {
    *("what", "whatever", "whoever", "nobody", "somebody", "everybody", "you", "we", "i"),
    *("please", "sorry", "oops", "cannot", "could", "unable", "failed", "error:"),
}
"""Words that begin no message, because they do not name the object."""

_LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}
_FENCED = re.compile(r"^\s*(```|~~~).*?^\s*\1", re.M | re.S)
_SPANS = re.compile(r"`[^`\n]*`|<!--.*?-->", re.S)
_SENTENCE = re.compile(r"(?<=[.:;])\s+")


class Rate(NamedTuple):
    """Wordy phrases and words of a file or folder."""

    where: str
    phrases: int
    words: int

    @property
    def rate(self) -> float:
        return 1000 * self.phrases / max(1, self.words)

    def __str__(self) -> str:
        return f"{self.rate:6.1f}  {self.phrases:4} in {self.words:6} words  {self.where}"


# --- texts ---


def prose_of(module: Module) -> Iterator[str]:
    """Yield the docstrings, comments and texts of a module. A text has a space in it."""
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")
    for node in walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def prose_in(document: str) -> str:
    """Return a document without code and hidden comments."""
    return _SPANS.sub("x", _FENCED.sub("", document))


def documents() -> Iterator[tuple[str, str]]:
    """Yield path and text of the documents."""
    for path in sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def message_of(node: ast.AST) -> str | None:
    """Return the text of a message that is raised or logged; None for any other node."""
    call = node.exc if isinstance(node, ast.Raise) else node
    if not isinstance(call, ast.Call) or not call.args:
        return None
    logged = isinstance(call.func, ast.Attribute) and call.func.attr in _LOGGED
    if not (isinstance(node, ast.Raise) or (logged and "log" in dotted(call.func))):
        return None
    first = call.args[0]
    if isinstance(first, ast.JoinedStr):
        parts = [each.value if isinstance(each, ast.Constant) else "{}" for each in first.values]
        return "".join(map(str, parts))
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


# --- rules ---


def check_first_sentence(module: Module) -> list[Finding]:
    """Find a module whose docstring does not begin with a short noun phrase."""
    docstring = ast.get_docstring(module.tree)
    if docstring is None:
        return [Finding(module.path, "no docstring; name what the module contains")]
    first = docstring.splitlines()[0].split(". ")[0]
    words = first.split()
    found = []
    if len(words) > FIRST_WORDS:
        found.append(f"{len(words)} words ({first!r}); at most {FIRST_WORDS}")
    bare = words[0].isalpha() and words[0].lower() not in DETERMINERS
    if words[0].lower() in OPENERS or (bare and words[1:2] and words[1].lower() in DETERMINERS):
        found.append(f"{first!r} is no noun phrase; name what the module contains")
    return [Finding(module.path, what) for what in found]


def check_messages(module: Module) -> list[Finding]:
    """Find messages that do not start with the object, or end with a full stop."""
    found = []
    for node in walk(module.tree):
        if not (message := message_of(node)):
            continue
        where = f"{module.path}:{getattr(node, 'lineno', 0)}"
        if message.split()[:1] and message.split()[0].lower() in BAD_STARTS:
            found.append(Finding(where, f"{message!r:.60} does not start with the object"))
        if message.rstrip().endswith(".") and not message.rstrip().endswith("..."):
            found.append(Finding(where, f"…{message[-50:]!r} ends with a full stop"))
    return found


def phrases(text: str) -> Counter[str]:
    """Count the wordy phrases of a text, by what to do instead."""
    flat = " ".join(text.split())
    return Counter({advice: len(rule.findall(flat)) for advice, rule in _WORDY.items()})


def rate_of(where: str, texts: Iterable[str]) -> Rate:
    """Return the rate of wordy phrases in texts."""
    kept = [*texts]
    return Rate(where, sum(phrases(each).total() for each in kept), sum(map(_count, kept)))


def _count(text: str) -> int:
    return len(text.split())


def by_file(tree: Iterable[Module], pages: Iterable[tuple[str, str]]) -> list[Rate]:
    """Return the rate of each module and document."""
    found = [rate_of(module.path, prose_of(module)) for module in tree]
    return found + [rate_of(path, [prose_in(text)]) for path, text in pages]


def by_folder(files: Iterable[Rate]) -> list[Rate]:
    """Return the rate of each folder, the worst first. Files at the top of one are together."""
    hits: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for each in files:
        parts = each.where.split("/")
        folder = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        hits[folder] += each.phrases
        words[folder] += each.words
    found = [Rate(folder, hits[folder], words[folder]) for folder in words]
    return sorted(found, key=lambda each: -each.rate)


def beyond(files: Iterable[Rate]) -> list[str]:
    """Return what is beyond the limits, with the worst files; nothing when all is in order."""
    kept = [*files]
    total = Rate("all", sum(each.phrases for each in kept), sum(each.words for each in kept))
    found = [f"{total}: at most {RATE}"] if total.rate > RATE else []
    for folder in by_folder(kept):
        if folder.rate > FOLDER_RATE and folder.words >= FEW_WORDS:
            found.append(f"{folder}: at most {FOLDER_RATE}")
            found += [f"    {each}" for each in worst(kept, folder.where)]
    return found


def worst(files: Iterable[Rate], under: str = "") -> list[Rate]:
    """Return the files with the most wordy phrases, in a folder or all."""
    some = [each for each in files if each.phrases and each.where.startswith(under)]
    return sorted(some, key=lambda each: (-each.phrases, each.where))[:WORST]


def main(under: list[str]) -> int:
    """Print the rates by folder and the worst files; 1 when a limit is exceeded."""
    files = by_file(modules(PACKAGE), documents())
    chosen = [each for each in files if not under or each.where.startswith(tuple(under))]
    lines = [*map(str, by_folder(chosen)), "", *map(str, worst(chosen))]
    too_much = beyond(chosen)
    sys.stdout.write("\n".join([*lines, "", *too_much]) + "\n")
    return int(bool(too_much))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
