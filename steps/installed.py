"""Check a requirements file against the installed packages: pip takes seconds to find all
satisfied.

python3 -m steps.installed requirements.txt      # exit status 0: all as required
"""

import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def differences(requirements: Path) -> Iterator[str]:
    """Yield one sentence for each line that is not satisfied, or that only pip can check."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ModuleNotFoundError:
        yield "packaging is not installed, so pip has to look"
        return
    text = requirements.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in filter(None, (line.partition("#")[0].strip() for line in text.splitlines())):
        try:
            wanted = Requirement(line.partition(" --hash")[0])
        except InvalidRequirement:
            yield f"{line} is for pip to read"
            continue
        if wanted.extras or wanted.url:
            yield f"{wanted} is for pip to resolve"
        elif wanted.marker is None or wanted.marker.evaluate():
            try:
                found = version(wanted.name)
            except PackageNotFoundError:
                yield f"{wanted.name} is not installed, wanted is {wanted.specifier or 'any'}"
                continue
            if not wanted.specifier.contains(found, prereleases=True):
                yield f"{wanted.name} {found} is installed, wanted is {wanted.specifier}"


if __name__ == "__main__":
    found = list(differences(Path(sys.argv[1])))
    for difference in found:
        print(f"packages: {difference}", file=sys.stderr)
    sys.exit(bool(found))
