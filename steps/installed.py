"""Whether all of a requirements file is installed: pip takes seconds to find that it is.

python3 -m steps.installed requirements.txt      # exit status 0: nothing is missing
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def installed(requirements: Path) -> bool:
    """Whether every line is fulfilled. False too where that cannot be told: pip will tell."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ModuleNotFoundError:
        return False
    lines = requirements.read_text(encoding="utf-8").splitlines()
    for line in filter(None, (line.partition("#")[0].strip() for line in lines)):
        try:
            wanted = Requirement(line)
            fits = wanted.specifier.contains(version(wanted.name), prereleases=True)
        except (InvalidRequirement, PackageNotFoundError):
            return False
        if not fits or wanted.extras or wanted.url or wanted.marker:
            return False
    return True


if __name__ == "__main__":
    sys.exit(not installed(Path(sys.argv[1])))
