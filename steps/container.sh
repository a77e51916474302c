#!/bin/bash
# bash steps/container.sh STEP ARGS...
# What every processing container of ours runs: bring in what the image lacks of the lock, or has at
# another version, then run the job.
set -euo pipefail
code=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ -f "$code/requirements.txt" ]] &&
    ! PYTHONPATH="$code" python3 -m steps.installed "$code/requirements.txt"; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --require-hashes -r "$code/requirements.txt" || {
        echo "packages: cannot be installed: the job needs a way to pip's index, or an image that" \
            "holds them; on the emulator it runs in this machine's Python: make .venv/installed" >&2
        exit 1
    }
fi
step=$1
shift
# As a module: a script would put its own folder on the path, before the standard library.
PYTHONPATH="$code" exec python3 -m "steps.$step.job" "$@"
