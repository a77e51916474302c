"""AWS's own algorithms. They run in the job if its image is started without a user's script.

A module here runs in the interpreter that replaces the image, not in the emulator's. So it imports
only the standard library, this package, and what that interpreter has of the image's packages.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent.parent
_START = (
    "import runpy, sys, types; package = types.ModuleType('trainyard'); package.__path__ = "
    "[sys.argv.pop(1)]; sys.modules.update(trainyard=package, sklearn=None); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def build_module_command(python: Path, module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` of ``trainyard`` with the interpreter ``python``.

    ``trainyard`` need not be installed there, and nothing else from its folder gets onto the job's
    path. scikit-learn is hidden: otherwise xgboost would import it, and with it pandas and SciPy's
    statistics, for estimators that no algorithm uses. That takes 1.4 of the 1.9 seconds of
    processor time that a job needs to start.
    """
    return [str(python), "-c", _START, str(_PACKAGE), module, *arguments]
