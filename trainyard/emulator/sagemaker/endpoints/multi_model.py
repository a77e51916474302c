"""The models of a multi-model container, which it loads when a request first names them.

The contract is the developer guide's "Custom Containers Contract for Multi-Model Endpoints": a
model is unpacked to ``/opt/ml/models/<name>/model``, loaded by ``POST /models``, asked at
``/models/<name>/invoke`` and unloaded by ``DELETE``. Only an image's own server in a container
engine speaks it.
"""

import hashlib
import json
import shutil
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.emulator.request_scope import ApiError
from trainyard.emulator.sagemaker.jobs.transfers import ClientFault, join_key, split_uri

FOLDER = "/opt/ml/models"
TARGET = "X-Amzn-Sagemaker-Target-Model"
LOADED, NO_MEMORY = 409, 507
_JSON = {"Content-Type": "application/json", "Accept": "application/json"}

Ask = Callable[[str, str, bytes, dict[str, str], float], Any]
"""Sends method, path, body, headers within seconds to the container; returns its ``Answer``."""


class ModelTable:
    """The models that a container has loaded. Its methods are thread-safe.

    ``folder``: FOLDER as this machine sees it; ``prefix``: S3 URI of the archives; ``fetch(uri,
    target)`` unpacks one.
    """

    def __init__(
        self, ask: Ask, folder: Path, prefix: str, fetch: Callable[[str, Path], None]
    ) -> None:
        self._ask, self._folder, self._prefix, self._fetch = ask, folder, prefix, fetch
        self._names: list[str] = []  # the one that was used last comes last
        self._lock = threading.Lock()

    def invoke(self, body: bytes, headers: dict[str, str], seconds: float) -> Any:
        """Return the answer of the model that TARGET names, or the container's refusal to load it.

        Raises ``ValidationError`` without that header, or without such an archive.
        """
        target = headers.get(TARGET)
        if not target:
            raise ApiError("ValidationError", "The request is missing a target model header")
        name = hashlib.sha256(target.encode()).hexdigest()
        with self._lock:
            if refusal := self._load(name, target, seconds):
                return refusal
        return self._ask("POST", f"/models/{name}/invoke", body, headers, seconds)

    def forget(self) -> None:
        """Forget what was loaded: the container starts anew."""
        with self._lock:
            self._names.clear()

    def _load(self, name: str, target: str, seconds: float) -> Any:
        """Load the model unless it is; return the container's refusal, or None."""
        if name in self._names:
            self._names.remove(name)
            self._names.append(name)
            return None
        self._download(target, self._folder / name / "model")
        place = {"model_name": name, "url": f"{FOLDER}/{name}/model"}
        headers = _JSON | {TARGET: target}
        while True:
            answer = self._ask("POST", "/models", json.dumps(place).encode(), headers, seconds)
            if answer.status != NO_MEMORY or not self._names:
                break
            self._ask("DELETE", f"/models/{self._names.pop(0)}", b"", {}, seconds)
        if answer.is_error and answer.status != LOADED:
            return answer
        self._names.append(name)
        return None

    def _download(self, target: str, folder: Path) -> None:
        """Unpack the model's archive, unless it was before: as on AWS, a later one is not seen."""
        if folder.exists():
            return
        bucket, prefix = split_uri(self._prefix)
        key = join_key(prefix, target)
        part = folder.with_name("part")
        part.mkdir(parents=True)
        try:
            self._fetch(f"s3://{bucket}/{key}", part)
            part.rename(folder)
        except (ApiError, ClientFault, tarfile.TarError, OSError) as error:
            raise ApiError(
                "ValidationError",
                f"Failed to download model data(bucket: {bucket}, key: {key}). Please ensure that "
                "there is an object located at the URL and that the role passed to CreateModel "
                f"has permissions to download the model. ({getattr(error, 'message', error)})",
            ) from None
        finally:
            shutil.rmtree(part, ignore_errors=True)
