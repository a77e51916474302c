#!/usr/bin/env bash
# scripts/try-wheel.sh [--sdk VERSION]
# Builds the wheel, installs it into an empty environment outside the checkout, and uses it there as
# a user would without our application: a pipeline with boto3 alone, its test with the fixture, each
# verb of README. --sdk 3.27.0 also runs a pipeline written with that version of the SDK.
set -euo pipefail
cd "$(dirname "$0")/.."
checkout=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
pip() { "$place/env/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

mkdir "$place/source" "$place/work"
git ls-files -z pyproject.toml README.md LICENSE trainyard | xargs -0 cp --parents -t "$place/source"
cp scripts/wheel/*.py "$place/work"
mkdir "$place/scripts"
cp README.md "$place"
cp scripts/try_verbs.py "$place/scripts"
cd "$place/work"  # from here on nothing comes from the checkout
unset PYTHONPATH
python3 -m venv ../env
pip wheel --no-deps --wheel-dir ../dist ../source
before=$(du -sm ../env | cut -f1)
SECONDS=0
pip install ../dist/*.whl
echo "installed: $(($(du -sm ../env | cut -f1) - before)) MB in $SECONDS s"
"$place/env/bin/python" - <<'PYTHON'
from importlib.metadata import distributions, files
from importlib.util import find_spec

import trainyard

print(len(list(distributions())), "packages;", trainyard.__file__)
ours = {str(file).split("/")[0] for file in files("sagemaker-trainyard")}
top = {name for name in ours if name != ".." and not name.endswith(".dist-info")}
assert top == {"trainyard"}, top
heavy = [name for name in ("torch", "sagemaker", "numpy") if find_spec(name)]
assert not heavy, heavy
PYTHON
PATH="$place/env/bin:$PATH"
trainyard
echo "--- trainyard run"
trainyard run -- python pipeline.py
echo "--- every verb of README"
python ../scripts/try_verbs.py trainyard
echo "--- the fixture"
pip install pytest
python -m pytest -q check_pipeline.py
if [ "${1:-}" = --sdk ]; then
    echo "--- SageMaker SDK $2"
    pip install "sagemaker==$2"
    trainyard run --state sdk -- python sdk_pipeline.py
fi
echo "the wheel works outside $checkout"
