"""One endpoint: the instance that serves its model, and the requests to it."""

import http.client
import threading
import time
import uuid
from collections.abc import Sequence

from trainyard.emulator.access import granted
from trainyard.emulator.api import ApiError, make_arn
from trainyard.emulator.jobs.job import Place
from trainyard.emulator.serving.instance import Answer, Instance
from trainyard.emulator.serving.models import Container


class Endpoint:
    """An instance that serves one model. Every method may be called from any thread."""

    def __init__(
        self, place: Place, name: str, variant: str, model: dict, containers: Sequence[Container]
    ) -> None:
        self.arn = make_arn("sagemaker", f"endpoint/{name.lower()}")
        self.status, self.failure = "Creating", ""
        self.created = self.modified = time.time()
        self._place, self._name = place, name
        self.stream = f"{variant}/i-{uuid.uuid4().hex[:17]}"
        folder = place.jobs.parent / "endpoints" / name
        role, isolated = model.get("ExecutionRoleArn", ""), model.get("EnableNetworkIsolation")
        grant = granted(place.aws, role, bool(isolated))
        self._instance = Instance(place, folder, containers, self._line, grant)

    def start(self) -> None:
        """Returns at once; ``status`` becomes ``InService`` or ``Failed``."""
        self._instance.start()
        threading.Thread(target=self._decide, name=self._name, daemon=True).start()

    def stop(self) -> None:
        """Returns when no process of the container is left."""
        self._instance.stop()

    def invoke(self, body: bytes, headers: dict[str, str]) -> Answer:
        """``POST /invocations``. Raises :class:`ApiError` when no answer comes."""
        try:
            return self._instance.invoke(body, headers)
        except (OSError, http.client.HTTPException) as error:
            message = f"the container of {self._name} did not answer: {error}"
            raise ApiError("ModelError", message, 424) from None

    def _decide(self) -> None:
        self._instance.wait()
        self.failure, self.modified = self._instance.failure, time.time()
        self.status = "InService" if self._instance.status == "Ready" else "Failed"

    def _line(self, host: str, line: str) -> None:
        group = f"/aws/sagemaker/Endpoints/{self._name}"
        self._place.logs.append(group, self.stream, (line,))
