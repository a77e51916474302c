#!/bin/sh
# scripts/fit-python.sh [PYTHON]
# Prints the Python that make uses: PYTHON, else the first fitting one on the PATH. python3 comes first,
# since an active environment provides it. If none fits, says how to get one.
# It uses only the shell's own commands, so the PATH may lead to nothing else.
new='import sys; sys.exit(sys.version_info < (3, 11))'
[ -n "$1" ] || set -- python3 python3.13 python3.12 python3.11
for name; do
    "$name" -c "$new" 2> /dev/null || continue
    if "$name" -c 'import ensurepip, venv' 2> /dev/null; then
        echo "$name"
        exit
    fi
    bare=${bare:-$name}
done
exec >&2
echo "Trainyard needs Python 3.11 or newer with the modules venv and ensurepip, which none of these is: $*."
if [ -n "$bare" ]; then
    echo "$bare lacks only the modules. On Debian and Ubuntu:"
    echo "    sudo apt install ${bare##*/}-venv && make run PYTHON=$bare"
    echo "Elsewhere, with uv:"
else
    echo "Get one with uv:"
fi
echo '    curl -LsSf https://astral.sh/uv/install.sh | sh && . "$HOME/.local/bin/env"'
echo '    uv python install 3.12 && make run PYTHON="$(uv python find 3.12)"'
exit 1
