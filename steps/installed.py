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
            requirement = Requirement(line.partition(" --hash")[0])
        except InvalidRequirement:
            yield f"{line} is for pip to read"
            continue
        if requirement.extras or requirement.url:
            yield f"{requirement} is for pip to resolve"
        elif requirement.marker is None or requirement.marker.evaluate():
            try:
                installed_version = version(requirement.name)
            except PackageNotFoundError:
                yield (
                    f"{requirement.name} is not installed, wanted is "
                    f"{requirement.specifier or 'any'}"
                )
                continue
            if not requirement.specifier.contains(installed_version, prereleases=True):
                yield (
                    f"{requirement.name} {installed_version} is installed, wanted is "
                    f"{requirement.specifier}"
                )


if __name__ == "__main__":
    mismatches = list(differences(Path(sys.argv[1])))
    for difference in mismatches:
        print(f"packages: {difference}", file=sys.stderr)
    sys.exit(bool(mismatches))
