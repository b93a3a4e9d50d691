"""The file that passes ring weights from ``spark skew`` to ``run``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kafka_keyshared.errors import ConfigError

WEIGHTS = "weights"


def write_weights(path: Path, weights: Mapping[str, float]) -> None:
    """Write the file; raise :class:`ConfigError` if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({WEIGHTS: dict(weights)}, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--weights-file {path}: {error.strerror}") from error


def read_weights(path: Path | None) -> dict[str, float] | None:
    """Return the weights in the file, None without a file; the worker names are checked later.

    Raises :class:`ConfigError` for a missing file, or a file without weights.
    """
    if path is None:
        return None
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--ring-weights {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"--ring-weights {path}: not JSON: {error}") from error
    weights = found.get(WEIGHTS) if isinstance(found, dict) else None
    if not isinstance(weights, dict) or not weights:
        raise ConfigError(
            f'--ring-weights {path}: it has no "{WEIGHTS}"; give the file that spark skew '
            "wrote with --weights-file"
        )
    return weights
