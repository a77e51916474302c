#!/bin/bash
# bash steps/container.sh JOB ARGS...
# Entry point of all our processing containers: install the lock's packages that the image lacks, or
# has at another version, then run the job.
#
# A job beside a user's own script (its folder is the input "script") does not change the image:
# its packages go into a folder that the script does not see. SCRIPT_REQUIREMENTS names the
# script's own requirements file in that folder, which pip installs as AWS's training driver does.
set -euo pipefail
code=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=$(dirname "$code")/script
path=$code
target=()
if [[ -d "$script" ]]; then
    export PACKAGES_APART=${code%/input/code}/packages
    target=(--target "$PACKAGES_APART")
    path=$PACKAGES_APART:$code
fi
login() {  # let pip ask the CodeArtifact repository, if the recipe names one
    [[ -n "${CA_REPOSITORY_ARN:-}" ]] || return 0
    local region owner domain name  # arn:aws:codeartifact:REGION:OWNER:repository/DOMAIN/NAME
    IFS=:/ read -r _ _ _ region owner _ domain name <<<"$CA_REPOSITORY_ARN"
    aws codeartifact login --tool pip --region "$region" --domain-owner "$owner" \
        --domain "$domain" --repository "$name" >/dev/null
}
install() {  # install REQUIREMENTS OPTIONS...: unless all are installed
    PYTHONPATH="$code${PYTHONPATH:+:$PYTHONPATH}" python3 -m steps.installed "$1" ||
        { login && python3 -m pip install --quiet --disable-pip-version-check \
            --root-user-action=ignore "${@:2}" -r "$1"; } || {
        echo "packages: cannot be installed: the job needs a way to pip's index, an image that holds" \
            "them, or the recipe's packages.wheelhouse; on the emulator it runs in this machine's" \
            "Python: make .venv/installed" >&2
        exit 1
    }
}
if [[ -f "$code/requirements.txt" ]]; then
    install "$code/requirements.txt" --require-hashes "${target[@]}"
fi
if [[ -n "${SCRIPT_REQUIREMENTS:-}" ]]; then
    install "$script/$SCRIPT_REQUIREMENTS"
fi
job=$1
shift
# As a module: a script would put its own folder on the path, before the standard library.
PYTHONPATH="$path${PYTHONPATH:+:$PYTHONPATH}" exec python3 -m "steps.$job.job" "$@"
