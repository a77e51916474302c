"""List the verbs of our pipeline: python -m pipelines; python -m pipelines.VERB runs one."""

from pathlib import Path

from trainyard.terminal import list_verbs


def find_verb_modules() -> dict[str, Path]:
    """Return a mapping of each verb to the module that ``python -m pipelines.VERB`` runs."""
    folder = Path(__file__).parent
    modules = {path.stem: path for path in folder.glob("*.py") if path != Path(__file__)}
    rooms = {path.parent.name: path for path in folder.glob("*/__main__.py")}
    verb_files = {
        name: path
        for name, path in (modules | rooms).items()
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
    }
    return dict(sorted(verb_files.items()))


if __name__ == "__main__":
    list_verbs("python -m pipelines.VERB", find_verb_modules())
