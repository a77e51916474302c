"""Wheels that hold next to nothing."""

import hashlib
import zipfile
from pathlib import Path


def files(name: str, version: str, **more: str) -> dict[str, str]:
    """Return the files of a wheel; ``more``: module → its text."""
    info = f"{name}-{version}.dist-info"
    wheel = "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return {
        **{f"{module}.py": text for module, text in ({name: ""} | more).items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": wheel,
        f"{info}/RECORD": "",
    }


def wheel(folder: Path, name: str, version: str, **more: str) -> str:
    """Write a wheel with modules; its hash."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for member, text in files(name, version, **more).items():
            made.writestr(member, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()
