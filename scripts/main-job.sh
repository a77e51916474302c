#!/usr/bin/env bash
# scripts/main-job.sh RECIPE [--env NAME]
# From raw text to a registered model, against whatever AWS_ENDPOINT_URL points at. Its least-privilege roles come first,
# as the stack PIPELINE-roles, while the data is uploaded: the emulator holds what runs to them. Without them nothing starts.
set -euo pipefail
recipe=("$1" "${@:2}")
python -m pipelines.permissions --recipe "${recipe[@]}" --deploy & roles=$!
python -m pipelines.corpus --recipe "${recipe[@]}"
wait "$roles"
status=0
python -m pipelines.upsert --recipe "${recipe[@]}" --start --wait --stop-on-interrupt || status=$?
echo "drawing the report" >&2
python -m pipelines.report --recipe "${recipe[@]}" --out report.html
exit "$status"
