"""``keyshared init``: a handler, its configuration and a passing test."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from kafka_keyshared.cli.advice.starter import CONFIG, HANDLER, files
from kafka_keyshared.cli.output import write_note
from kafka_keyshared.errors import ConfigError

ADDRESS = "localhost:9092"


def init_verb(directory: Path, bootstrap: str | None, topic: str, group: str | None) -> int:
    """Write the files, never over existing ones; print their paths and the next commands."""
    address = bootstrap or ADDRESS
    texts = files(address, topic, group or f"{topic.strip('^')}-app")
    paths = {directory / name: text for name, text in texts.items()}
    if there := [path for path in paths if path.exists()]:
        raise ConfigError(
            f"nothing was written: {', '.join(map(str, there))} already "
            f"exist{'' if there[1:] else 's'}"
            "; move the files, or give another directory: keyshared init DIR"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            sys.stdout.write(f"{path}\n")
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; give a writable directory"
        ) from error
    commands = {
        "pytest": "passes without Kafka",
        f"keyshared doctor {HANDLER}:handle --config {CONFIG}": "checks the setup",
        f"keyshared run {HANDLER}:handle --config {CONFIG}": "until Ctrl-C",
    }
    if find_spec("pytest") is None:
        commands = {"python -m pip install pytest": "for the test", **commands}
    if directory.resolve() != Path.cwd():
        commands = {f"cd {directory}": "", **commands}
    width = max(map(len, commands))
    write_note("next:")
    for command, why in commands.items():
        write_note(f"  {command.ljust(width)}  # {why}" if why else f"  {command}")
    return 0
