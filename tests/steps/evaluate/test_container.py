"""Our job's packages beside a script's image: the script sees its own, and nothing else."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.conftest import CHECKOUT

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


def wheel(folder: Path, name: str) -> Path:
    path = folder / f"{name}-1-py3-none-any.whl"
    info = f"{name}-1.dist-info"
    files = {
        f"{name}.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def code_of(tmp_path: Path, job: str) -> Path:
    """The job's folder of code, which requires a package whose wheel lies in ``tmp_path``."""
    code = tmp_path / "processing/input/code"
    for room in ("steps", "trainyard/common"):
        shutil.copytree(CHECKOUT / room, code / room)
    (code / "trainyard/__init__.py").touch()
    (code / "steps/evaluate/job.py").write_text(job)
    digest = hashlib.sha256(wheel(tmp_path, "lent_to_our_job").read_bytes()).hexdigest()
    (code / "requirements.txt").write_text(f"lent_to_our_job==1 --hash=sha256:{digest}\n")
    return code


def test_the_script_sees_its_own_packages_and_not_ours(tmp_path: Path):
    code, script = code_of(tmp_path, JOB), tmp_path / "processing/input/script"
    script.mkdir()
    (script / "evaluate.py").write_text(SCRIPT)
    wheel(tmp_path, "the_scripts_own")
    (script / "its.txt").write_text("the_scripts_own>=1\n")
    done = subprocess.run(
        ["bash", code / "steps/container.sh", "evaluate", script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(tmp_path),
            "PIP_TARGET": str(tmp_path / "image"),  # stands for the image's own site-packages
            "PYTHONPATH": str(tmp_path / "image"),
            "SCRIPT_REQUIREMENTS": "its.txt",
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == [
        "lent_to_our_job False",
        "the_scripts_own True",
        "steps True",
    ]


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
    code = code_of(tmp_path, "import lent_to_our_job")
    with ThreadingHTTPServer(("127.0.0.1", 0), CodeArtifact) as server:
        server.url, server.wheels = f"http://127.0.0.1:{server.server_port}", tmp_path
        server.asked = []
        Thread(target=server.serve_forever, daemon=True).start()
        done = subprocess.run(
            ["bash", code / "steps/container.sh", "evaluate"],
            cwd=tmp_path,
            env={
                **{n: v for n, v in os.environ.items() if not n.startswith(("AWS_", "PIP_"))},
                "AWS_ENDPOINT_URL_CODEARTIFACT": server.url,
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
                "HOME": str(tmp_path),
                "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
                "PIP_TARGET": str(tmp_path / "image"),
                "PYTHONPATH": str(tmp_path / "image"),
                "CA_REPOSITORY_ARN": REPOSITORY,
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        server.shutdown()
    assert done.returncode == 0, done.stderr
    token, *others = server.asked
    assert token[0] == "/v1/authorization-token?domain=corp&domain-owner=111122223333"
    basic = "Basic " + base64.b64encode(b"aws:secret").decode()
    assert [
        path for path, by in others if by == basic
    ] and "secret" not in done.stdout + done.stderr
