"""Our job's packages beside a script's image: the script sees its own, and nothing else."""

import base64
import json
import os
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.conftest import CHECKOUT
from tests.scripts.wheels import wheel

pytestmark = pytest.mark.long

JOB = """
import os, sys
from pathlib import Path
import lent_to_our_job
from steps.evaluate.script_process import Script
Script(Path(sys.argv[1]), "evaluate.py", [], {}).run(Path("model"), Path("output"))
"""
SCRIPT = """
import os, importlib.util, the_scripts_own
for name in ("lent_to_our_job", "the_scripts_own", "steps"):
    print(name, importlib.util.find_spec(name) is not None)
"""


def code_of(tmp_path: Path, job: str) -> None:
    """The job's folder of code, which requires a package whose wheel lies in ``tmp_path``."""
    code = tmp_path / "processing/input/code"
    for room in ("steps", "trainyard/common"):
        shutil.copytree(CHECKOUT / room, code / room)
    (code / "trainyard/__init__.py").touch()
    (code / "steps/evaluate/job.py").write_text(job)
    digest = wheel(tmp_path, "lent_to_our_job", "1")
    (code / "requirements.txt").write_text(f"lent_to_our_job==1 --hash=sha256:{digest}\n")


def start(tmp_path: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess:
    """Run the container's script; ``image`` stands for the image's own site-packages."""
    clean = {n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "PIP_"))}
    image = dict.fromkeys(("PIP_TARGET", "PYTHONPATH"), str(tmp_path / "image"))
    command = ["bash", tmp_path / "processing/input/code/steps/container.sh", "evaluate", *words]
    return subprocess.run(command, cwd=tmp_path, env=clean | image | environment,
                          capture_output=True, text=True, check=False)  # fmt: skip


def test_the_script_sees_its_own_packages_and_not_ours(tmp_path: Path):
    code_of(tmp_path, JOB)
    script = tmp_path / "processing/input/script"
    script.mkdir()
    (script / "evaluate.py").write_text(SCRIPT)
    wheel(tmp_path, "the_scripts_own", "1")
    (script / "its.txt").write_text("the_scripts_own>=1\n")
    links = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    done = start(tmp_path, script, **links, SCRIPT_REQUIREMENTS="its.txt")
    assert done.returncode == 0, done.stderr
    said = ["lent_to_our_job False", "the_scripts_own True", "steps True"]
    assert done.stdout.splitlines()[-3:] == said


INDEX = "/pypi/pypi/simple/"
REPOSITORY = "arn:aws:codeartifact:eu-west-1:111122223333:repository/corp/pypi"


class CodeArtifact(BaseHTTPRequestHandler):
    """The two calls of a login, and the repository's index, which asks for the token."""

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        place = self.path.removeprefix(INDEX)
        if self.path.startswith("/v1/repository/endpoint"):
            found = {"repositoryEndpoint": f"{self.server.url}/pypi/pypi/"}
            self._answer(json.dumps(found).encode())
        elif place.endswith(".whl"):
            self._answer((self.server.wheels / place.rpartition("/")[2]).read_bytes())
        else:
            name = place.strip("/").replace("-", "_")
            self._answer(f'<a href="{name}-1-py3-none-any.whl">{name}</a>'.encode(), "text/html")

    def do_POST(self) -> None:
        self.server.asked.append((self.path, None))
        self._answer(json.dumps({"authorizationToken": "secret", "expiration": 2e9}).encode())

    def _answer(self, body: bytes, kind: str = "application/json") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_a_job_logs_in_to_code_artifact_as_it_starts(tmp_path: Path):
    code_of(tmp_path, "import lent_to_our_job")
    with ThreadingHTTPServer(("127.0.0.1", 0), CodeArtifact) as server:
        server.url, server.wheels = f"http://127.0.0.1:{server.server_port}", tmp_path
        server.asked = []
        Thread(target=server.serve_forever, daemon=True).start()
        aws = {"AWS_ENDPOINT_URL_CODEARTIFACT": server.url, "AWS_ACCESS_KEY_ID": "x",
               "AWS_SECRET_ACCESS_KEY": "x", "CA_REPOSITORY_ARN": REPOSITORY}  # fmt: skip
        mine = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
        done = start(tmp_path, **aws, **mine)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    token, *others = server.asked
    assert token[0] == "/v1/authorization-token?domain=corp&domain-owner=111122223333"
    basic = "Basic " + base64.b64encode(b"aws:secret").decode()
    assert [path for path, by in others if by == basic]
    assert "secret" not in done.stdout + done.stderr
