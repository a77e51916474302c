#!/usr/bin/env bash
# scripts/main-job.sh RECIPE [--env NAME]
# From raw text to a registered model, against whatever AWS_ENDPOINT_URL points at.
set -euo pipefail
recipe=("$1" "${@:2}")
python -m pipelines.corpus --recipe "${recipe[@]}"
status=0
python -m pipelines.upsert --recipe "${recipe[@]}" --start --wait --stop-on-interrupt || status=$?
echo "drawing the report" >&2
python -m pipelines.report --recipe "${recipe[@]}" --out report.html
exit "$status"
