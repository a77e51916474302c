"""Name what the recipe's section ``champion`` gives to the evaluate job: a table, or a script.

The section names one model package; while another is the champion, nothing of it is used.
"""

from pathlib import Path

from steps.evaluate.evaluation_document import ScoredBy
from trainyard.common.errors import DataError
from trainyard.common.hashes import file_sha256, json_sha256

TABLE = "champion_scores"
"""Input with the table, and nothing else."""


def table_in(inputs: Path) -> Path:
    """Return the table among the job's inputs. Raises: DataError: there is none, or several."""
    found = sorted(path for path in (inputs / TABLE).rglob("*") if path.is_file())
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "nothing"
        raise DataError(f"champion.scores: holds {names}; expected the URI of one file")
    return found[0]


def of_table(table: Path) -> ScoredBy:
    """Return what evaluation.json says of a table."""
    size, sha256 = table.stat().st_size, file_sha256(table)
    return {"kind": "scores", "name": table.name, "bytes": size, "sha256": sha256}


def of_script(folder: Path, entry: str) -> ScoredBy:
    """Return what evaluation.json says of a script and its folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    hashes = {path.relative_to(folder).as_posix(): file_sha256(path) for path in files}
    size = sum(path.stat().st_size for path in files)
    return {"kind": "script", "name": entry, "bytes": size, "sha256": json_sha256(hashes)}
