"""Object stores where a folder of this machine is meant: refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import in_process, own_modules

RUN = ("run", "app:handle", "-b", "127.0.0.1:1", "-t", "t", "-g", "g")
TOPIC = ("-b", "127.0.0.1:1", "-t", "t")
OPTIONS = {
    "run --audit-log": (*RUN, "--audit-log"),
    "run --outputs": (*RUN, "--outputs"),
    "demo --audit-log": ("demo", "--audit-log"),
    "spark run --audit-log": ("spark", *RUN, "--audit-log"),
    "spark run --state": ("spark", *RUN, "--state"),
    "spark run --spark-log": ("spark", *RUN, "--spark-log"),
    "spark audit LOG": ("spark", "audit"),
    "spark audit --out": ("spark", "audit", ".", "--out"),
    "spark skew --log": ("spark", "skew", "--log"),
    "spark skew --out": ("spark", "skew", *TOPIC, "--out"),
    "spark skew --weights-file": ("spark", "skew", *TOPIC, "--weights-file"),
    "spark dlq --out": ("spark", "dlq", *TOPIC, "--out"),
    "spark dlq --select": ("spark", "dlq", *TOPIC, "--select"),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_an_object_store_is_no_folder_of_this_machine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text("def handle(record): ...\n")
    with own_modules(tmp_path):
        ended = in_process(capsys, *OPTIONS[option], "s3a://bucket/place")
    assert (ended.status, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert f"{option.rpartition(' ')[2]} s3a:/" in line
    assert "s3a: is not supported here; give a" in line
    assert {each.name for each in tmp_path.iterdir()} <= {"app.py", "__pycache__"}
