import io
import json
import subprocess
from pathlib import Path

import pytest
import typer

from trainyard.commands.why import main

pytestmark = pytest.mark.long

FULL = "step 4\nOSError: [Errno 28] No space left on device: 'x'\n"


def test_standard_input_is_a_file_too_and_what_is_not_known_is_status_2(monkeypatch, capsys):
    stdin = io.TextIOWrapper(io.BytesIO(b"all is well\n\xff\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(typer.Exit) as ended:
        main(text=Path("-"))
    assert ended.value.exit_code == 2
    assert "nothing that is known here says why" in capsys.readouterr().out


@pytest.mark.parametrize("is_piped", [False, True])
def test_of_a_long_log_the_end_is_read(tmp_path: Path, monkeypatch, capfd, is_piped: bool):
    monkeypatch.setattr("trainyard.commands.why.LONGEST", 1 << 20)
    log = tmp_path / "log"
    log.write_text("MemoryError: of long ago\n" + "step 4, all is well\n" * 200_000 + FULL)
    with (
        subprocess.Popen(["cat", log], stdout=subprocess.PIPE) as cat,
        pytest.raises(typer.Exit) as ended,
    ):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(cat.stdout))
        main(text=Path("-") if is_piped else log, as_json=True)
    assert ended.value.exit_code == 0
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert (told["name"], told["certainty"]) == ("memory/disk", "certain")
    assert "only its last 1 MiB are examined" in err
