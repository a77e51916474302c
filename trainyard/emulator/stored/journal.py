"""Takes over the journal of a state directory of before November 2026, when moto kept these."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from trainyard.emulator.api import ApiError
from trainyard.emulator.stored.kinds import KINDS

log = logging.getLogger(__name__)
_KEPT = ("Model", "EndpointConfig", "Tags", *(kind.name for kind in KINDS))


def take_over(journal: Path, answer: Callable[[str, dict], dict]) -> None:
    """Have each line of ``journal`` answered again, and rename it; say what is lost.

    moto's journal has jobs, too, which nobody had run: these stay unrun.
    """
    if not journal.exists():
        return
    for number, line in enumerate(journal.read_text(errors="replace").splitlines(), start=1):
        try:
            entry = json.loads(line)
            operation, request = entry["operation"], entry["request"]
            if operation.endswith(_KEPT):
                answer(operation, request)
            else:
                log.warning("%s:%d is lost: nobody had done %s", journal, number, operation)
        except (ValueError, KeyError, TypeError, AttributeError) as torn:
            log.warning("%s:%d is lost, it cannot be read: %r", journal, number, torn)
        except ApiError as failure:
            log.warning("%s:%d is not made again: %s", journal, number, failure)
    journal.rename(journal.with_name(f"{journal.name}.taken-over"))
