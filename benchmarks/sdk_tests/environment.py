"""The venv in which a version of the SDK, its tests, and the jobs of their pipelines run."""

import shutil
import subprocess
import sys
from pathlib import Path

INSIDE = Path(__file__).parent / "inside"
SDK = {2: "sagemaker==2.257.1", 3: "sagemaker==3.27.0"}
_BOTH = (
    *("pytest", "pytest-timeout", "ipython", "awscli"),
    # AWS's models of XGBoost 0.90 and 1.3 are in a format that 3.1 no longer reads
    *("torch==2.13.0", "scikit-learn", "pandas<3", "pytz", "xgboost-cpu<3.1"),
    *("setuptools>=77,<81", "stopit", "awslogs", "nbformat", "cloudpickle"),
    *("gevent", "paramiko", "retrying", "inotify_simple==1.2.1", "werkzeug", "psutil", "scipy"),
)
_NOTEBOOKS = ("sagemaker-headless-execution-driver", "ipykernel")
"""What the tests of NotebookJob install into AWS's image."""
_TOOLKITS = ("sagemaker-training", "sagemaker-pytorch-training==3.0.0", "sagemaker-inference")
"""AWS's own, of its images; without what they ask for, which is for older Pythons."""


def major(checkout: Path) -> int:
    """2 or 3: which SDK the checkout is of."""
    version = (checkout / "VERSION").read_text()
    if version[:1] not in ("2", "3"):
        raise SystemExit(f"{checkout}/VERSION: {version.strip()!r}; expected 2.x or 3.x")
    return int(version[0])


def python(folder: Path, version: int) -> Path:
    """The interpreter of ``folder/sdk<version>``, which is made when it is not there."""
    venv = folder / f"sdk{version}"
    found = venv / "bin/python"
    done = venv / "complete"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        wanted = [SDK[version], *_BOTH, *_NOTEBOOKS]
        for what in (wanted, ["--no-deps", *_TOOLKITS]):
            command = [found, "-m", "pip", "install", "--quiet", *what]
            subprocess.run(command, check=True, stdout=sys.stderr)
        packages = next(venv.glob("lib/python3.*/site-packages"))
        shutil.copytree(INSIDE / "torchvision", packages / "torchvision")
        shutil.copy(INSIDE / "joblib_of_old.py", packages / "sklearn/externals/joblib.py")
        done.touch()
    return found
