"""Replace ``/opt/ml`` in the constants of every module that a relocated job's Python imports.

This file is in a job's layer as ``sitecustomize.py``, which Python imports first. AWS's libraries
also contain paths below /opt/ml, for example that of the file in which a function step leaves its
failure. The libraries' files are not changed. Uses only the standard library.
"""

import importlib.util
import re
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

THIS_FILE = Path(__file__)
ML = str(THIS_FILE.parents[5] / "ml")
"""Path that replaces /opt/ml: ``<node>/ml``. The layer is
``<node>/home/layer/lib/python3.x/site-packages``.
"""
ROOT = re.compile(r"(?<![\w.-])/opt/ml(?![\w.-])")  # as in install_layer.py


def relocate_code(code: CodeType) -> CodeType:
    return code.replace(co_consts=tuple(map(relocate_constant, code.co_consts)))


def relocate_constant(constant: object) -> object:
    """Return a constant of compiled code with /opt/ml replaced, including in nested constants."""
    if isinstance(constant, str):
        return ROOT.sub(lambda _: ML, constant) if "/opt/ml" in constant else constant
    if isinstance(constant, CodeType):
        return relocate_code(constant)
    if type(constant) is tuple:
        return tuple(map(relocate_constant, constant))
    return constant


def install_loader() -> None:
    """Make Python's loader replace /opt/ml in every module that it loads from now on."""
    load = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        """Return the module's code with /opt/ml replaced; Python's loader calls this."""
        code = load(self, fullname)
        return relocate_code(code) if code and mentions_opt_ml(code) else code

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def mentions_opt_ml(constant: object) -> bool:
    if isinstance(constant, CodeType):
        return any(map(mentions_opt_ml, constant.co_consts))
    if type(constant) is tuple:
        return any(map(mentions_opt_ml, constant))
    return isinstance(constant, str) and "/opt/ml" in constant


def run_next_sitecustomize() -> None:
    """Run the next sitecustomize on sys.path, which this file hides. It may be a copy of this file,
    which then runs the one after it.
    """
    ran = sys.__dict__.setdefault("_trainyard_ran", {THIS_FILE.resolve()})
    for folder in sys.path:
        path = Path(folder, "sitecustomize.py").resolve()
        if path.is_file() and path not in ran:
            ran.add(path)
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            if spec and spec.loader:
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


if __name__ == "sitecustomize":
    if "_trainyard_ran" not in sys.__dict__:
        install_loader()
    run_next_sitecustomize()
