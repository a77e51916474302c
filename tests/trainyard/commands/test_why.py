import io
import json
from pathlib import Path

import pytest
import typer

from trainyard.commands.why import main

FULL = "step 4\nOSError: [Errno 28] No space left on device: 'x'\n"


def test_a_log_from_elsewhere_is_read(tmp_path: Path, capsys):
    (tmp_path / "log").write_text(FULL)
    with pytest.raises(typer.Exit) as ended:
        main(text=tmp_path / "log", as_json=True)
    assert ended.value.exit_code == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["certainty"]) == ("memory/disk", "certain")


def test_standard_input_is_a_file_too_and_what_is_not_known_is_status_2(monkeypatch, capsys):
    stdin = io.TextIOWrapper(io.BytesIO(b"all is well\n\xff\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(typer.Exit) as ended:
        main(text=Path("-"))
    assert ended.value.exit_code == 2
    assert "nothing that is known here says why" in capsys.readouterr().out
