"""Tools for any SageMaker pipeline: trainyard VERB ..., or python -m trainyard VERB ...

Without a verb it lists the verbs. Each is a module of :mod:`trainyard.commands`, found by its name;
only the requested one is imported.
"""

import sys
import tomllib
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from pkgutil import iter_modules

from trainyard import commands
from trainyard.terminal import errors, list_verbs, run

DISTRIBUTION = "sagemaker-trainyard"


def main() -> None:
    """Run the verb that the first argument names."""
    program = "trainyard" if Path(sys.argv[0]).name != "__main__.py" else "python -m trainyard"
    verb, *rest = sys.argv[1:] or ["--help"]
    if verb == "--version":
        print(f"trainyard {_read_version()}")
    elif verb in ("--help", "-h"):
        folder = commands.__path__[0]
        list_verbs(f"{program} VERB", {name: Path(folder, f"{name}.py") for name in find_verbs()})
    elif verb in find_verbs():
        module = import_module(f"{commands.__name__}.{verb}")
        run(module.main, f"{program} {verb}", rest, getattr(module, "SETTINGS", {}))
    else:
        close = get_close_matches(verb, find_verbs(), n=1)
        hint = f"did you mean {close[0]}?" if close else f"{program} lists them"
        errors.print(f"error: there is no verb {verb!r}; {hint}", markup=False, highlight=False)
        sys.exit(2)


def _read_version() -> str:
    """Return the installed distribution's version; in a checkout, the one in pyproject.toml."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        project = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def find_verbs() -> list[str]:
    """Return the names of all verbs, sorted."""
    return sorted(module.name for module in iter_modules(commands.__path__))


if __name__ == "__main__":
    main()
