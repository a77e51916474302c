#!/usr/bin/env bash
# scripts/newcomer.sh
# Does what README tells a newcomer: a fresh clone of the commit, an empty HOME, a bare PATH, an environment of its own
# from locks/run.txt, make run twice, every verb once. Fails when a command fails, no package is registered, or a traceback
# is printed. Of this shell's environment only what leads pip and uv to their indexes is kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/home"
git -c safe.directory='*' clone --quiet "$PWD" "$place/clone"
mapfile -t kept < <(env | grep -iE '^(PIP_|UV_|[a-z]+_proxy=|SSL_CERT|REQUESTS_CA)' || true)
bare() { (cd "$place/clone" && env -i HOME="$place/home" PATH=/usr/bin:/bin "${kept[@]}" "$@"); }
timed() {
  local log="$place/log" begun=$SECONDS
  "$@" 2>&1 | tee "$log"
  ! grep -q Traceback "$log" || { echo "newcomer: $* printed a traceback" >&2; exit 1; }
  echo "newcomer: $* took $((SECONDS - begun)) s"
}

timed bare make .venv/run
timed bare make run
grep -q "^model package arn:" "$place/log" || { echo "newcomer: no package is registered" >&2; exit 1; }
timed bare make run
timed bare .venv/bin/python -m trainyard run -- .venv/bin/python scripts/try_verbs.py pipelines
timed bare scripts/try-wheel.sh
