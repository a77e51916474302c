"""AWS's own algorithms, for the images that are started without a script: what runs in the job.

A module here runs under the interpreter that stands in for the image, not under the emulator's, so
it imports the standard library, this room, and what that interpreter has of the image.
"""

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent.parent
_START = (
    "import runpy, sys, types; "
    "package = types.ModuleType('trainyard'); package.__path__ = [sys.argv.pop(1)]; "
    "sys.modules.update(trainyard=package, sklearn=None); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def command(python: Path, module: str, *arguments: str) -> list[str]:
    """What runs ``module`` of ``trainyard`` under ``python``, where it need not be installed.

    Nothing else that lies beside ``trainyard`` comes onto the job's path. scikit-learn seems not to
    be there: xgboost would take it in, and with it pandas and SciPy's statistics, for estimators
    that no algorithm uses. It is 1.4 of 1.9 seconds of processor time that a job needs to start.
    """
    return [str(python), "-c", _START, str(_PACKAGE), module, *arguments]
