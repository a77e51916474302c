"""Run each verb in a table of README once, in this Python's environment.

python scripts/try_verbs.py pipelines     in the checkout, after make run
python PATH/try_verbs.py trainyard        where trainyard run -- python pipeline.py ran

A verb may refuse its arguments, but must not end in a traceback or lack a package. It is an error
if the verbs of README and those of STARTS differ.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

README = Path(__file__).resolve().parents[1] / "README.md"
HEADINGS = {"trainyard": "for any pipeline", "pipelines": "for the training pipeline"}
"""Program → what the head of its table in README says."""
LIMIT_S = 300
"""Seconds that a verb may take, and one that serves until Ctrl-C until it prints its address."""

LAPTOP, PROD = "--recipe recipes/laptop.yaml", "--recipe recipes/prod.yaml"
SERVED = f"{LAPTOP} --set 'deploy={{endpoint: tried, capture_share: 1}}'"
PACKAGE = "arn:aws:sagemaker:us-east-1:123456789012:model-package/trainyard-laptop/1"
JOB_ROLE = "--pipeline-role arn:aws:iam::123456789012:role/pipeline --role job"
STARTS: dict[str, dict[str, str]] = {
    "trainyard": {
        "run": f"-- {sys.executable} -c pass",
        "emulator": "--state other",
        "validate": "definition.json",
        "plan": "definition.json --region us-east-1",
        "permissions": f"definition.json --name count --region us-east-1 {JOB_ROLE}",
        "equal": "definition.json definition.json",
        "migrate": "pipeline.py",
        "watch": "",
        "why": "",
        "report": "",
        "start": "--from Count --pipeline count",
        "console": "",
        "metrics": "grafana",
        "advise": "--model llama-3-8b --tokens 20B",
        "callback": "token --succeed",
        "prices": "--region us-east-1 --table prices.json",
        "prune": "",
    },
    "pipelines": {
        "new": "../tried-project --like table",
        "definition": LAPTOP,
        "validate": LAPTOP,
        "corpus": LAPTOP,
        "plan": LAPTOP,
        "upsert": LAPTOP,
        "start": f"{LAPTOP} --wait",
        "watch": LAPTOP,
        "report": f"{LAPTOP} --out report.html",
        "console": "",
        "permissions": f"{LAPTOP} --role job",
        "advise": PROD,
        "package": LAPTOP,
        "infra": f"{PROD} --as cloudformation",
        "verify": PACKAGE,
        "approve": f"{PACKAGE} --reason tried",
        "promote": f"{PACKAGE} {LAPTOP}",
        "deploy": f"{PACKAGE} {SERVED}",
        "monitor": f"{SERVED} --set monitor={{}}",
        "teardown": LAPTOP,
    },
}
SERVES = ("console", "emulator")
REFUSED = re.compile(r"Traceback|No module named|ModuleNotFoundError")


def main(program: str) -> None:
    """Run every verb in the program's table of README; exit with the output of those that fail."""
    starts = STARTS[program]
    if differs := read_verbs(program) ^ starts.keys():
        sys.exit(f"README's table and {__file__} differ in: {', '.join(sorted(differs))}")
    faults = [fault for verb in starts if (fault := try_verb(program, verb, starts[verb]))]
    if faults:
        sys.exit("\n".join(faults))


def read_verbs(program: str) -> set[str]:
    """Return the verbs in the first column of the program's table in README."""
    table = README.read_text(encoding="utf-8").partition(f"| {HEADINGS[program]} |")[2]
    rows = table.partition("\n\n")[0].splitlines()[2:]
    return {verb for row in rows for verb in re.findall(r"`([a-z]+)[^`]*`", row.split("|")[1])}


def try_verb(program: str, verb: str, arguments: str) -> str:
    """Run the verb; return its output if it has a traceback or lacks a package, otherwise ""."""
    words = ["trainyard", verb] if program == "trainyard" else [f"pipelines.{verb}"]
    command = [sys.executable, "-m", *words, *shlex.split(arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
    ) as process:
        alarm = Timer(LIMIT_S, process.kill)
        alarm.start()
        printed = ""
        for line in process.stdout or ():
            printed += line
            if verb in SERVES and "http://" in line:
                process.send_signal(signal.SIGINT)
        process.wait()
        alarm.cancel()
    end = printed.rstrip().rpartition("\n")[2] if process.returncode else ""
    print(f"{' '.join(words)}: exit status {process.returncode} {end}", flush=True)
    return f"--- {' '.join(command)}\n{printed}" if REFUSED.search(printed) else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
