"""What `keyshared spark run` refuses before anything of Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import in_process, own_modules


def test_a_server_of_its_own_is_refused_and_so_is_a_log_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    (tmp_path / "file").write_text("")
    given = ("spark", "run", "app:handle", "--app-dir", tmp_path, "-b", "127.0.0.1:1")
    names = ("-t", "t", "-g", "g")
    with own_modules(tmp_path):
        served = in_process(capsys, *given, *names, "--http-port", 8787)
        assert served.status == 2
        assert "--http-port: a run on Spark has no server of its own" in served.err
        logged = in_process(capsys, *given, *names, "--audit-log", tmp_path / "file")
        assert logged.status == 2
        assert "give a folder that can be written" in logged.err
