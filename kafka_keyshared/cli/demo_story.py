"""``keyshared demo --story``: its output on the terminal."""

from __future__ import annotations

import logging

from kafka_keyshared.cli.output import OutputFormat, write_note, write_result, write_table
from kafka_keyshared.lab.demo.story import Story, StoryChapter
from kafka_keyshared.logs import only_from


def tell_story(output: OutputFormat, *, console: bool) -> int:
    """Run the story; the chapters are the result."""
    write_note(
        "An instance handles orders, on a Kafka inside this process. Four problems occur in\n"
        "it. Its diagnosis names each, and is healthy again once that is mended."
    )
    with only_from(logging.CRITICAL):  # the story itself reports the problems
        told = Story(write_note, console=console).run()
    if output is OutputFormat.TABLE:
        write_table(
            "problem",
            {"": "left", "cause": "left", "named after": "right", "gone after": "right"},
            [_row(each) for each in told],
        )
    else:
        write_result({"chapters": [each._asdict() for each in told]}, output, "")
    return 0


def _row(told: StoryChapter) -> tuple[str, ...]:
    return told.chapter, told.code, f"{told.named_s:.1f} s", f"{told.cleared_s:.1f} s"
