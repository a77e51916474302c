#!/bin/bash
# bash steps/container.sh STEP ARGS...
# What every processing container of ours runs: bring in what the image lacks, then run the job.
set -euo pipefail
code=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -f "$code/requirements.txt" ]]; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        -r "$code/requirements.txt"
fi
step=$1
shift
exec python3 "$code/steps/$step/job.py" "$@"
