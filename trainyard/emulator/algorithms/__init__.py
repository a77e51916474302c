"""AWS's own algorithms, which run in the job for images that are started without a script.

A module here runs under the interpreter that stands in for the image, not under the emulator's, so
it imports the standard library, this room, and what that interpreter has of the image.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent.parent
_START = (
    "import runpy, sys, types; package = types.ModuleType('trainyard'); package.__path__ = "
    "[sys.argv.pop(1)]; sys.modules.update(trainyard=package, sklearn=None); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def command(python: Path, module: str, *arguments: str) -> list[str]:
    """Return the command that runs ``module`` of ``trainyard`` under ``python``.

    ``trainyard`` need not be installed there, and nothing else beside it comes onto the job's path.
    scikit-learn is hidden: xgboost would import it, and with it pandas and SciPy's statistics, for
    estimators that no algorithm uses. That is 1.4 of the 1.9 seconds of processor time that a job
    needs to start.
    """
    return [str(python), "-c", _START, str(_PACKAGE), module, *arguments]
