"""Ask a champion's inference script for probabilities, in a process of its own.

python -P served_probabilities.py SCRIPT MODEL_FOLDER REQUESTS CONTENT_TYPE OUT

REQUESTS has a JSON object a line, ``{"rows": 3, "body": "…"}``; OUT gets a list of so many
probabilities a line. The process is the script's: only the standard library is imported.
"""

import json
import sys
from pathlib import Path
from typing import Any

from steps.evaluate_script.served_script import Served

ACCEPT = "application/json"
LISTS = ("predictions", "probabilities", "instances")
"""Names under which an answer may hold the list."""


def probabilities(answer: Any, rows: int) -> list[float]:
    """Return the probability of the label 1 for each of ``rows`` records.

    An answer is JSON or CSV as text, or what ``predict_fn`` gave: a number, ``[p]``, ``[p0, p1]``
    or ``{"probability": p}`` for each record, in a list, perhaps under a name of LISTS.

    Raises:
        ValueError: it is something else, or of another number of records.
    """
    found = _plain(answer)
    while isinstance(found, dict) and (names := [name for name in LISTS if name in found]):
        found = found[names[0]]
    if not isinstance(found, list):
        found = [found]
    if rows == 1 and len(found) == 2 and not any(isinstance(one, list) for one in found):
        found = [found]  # [p0, p1] of one record
    if len(found) != rows:
        raise ValueError(f"{rows} records were asked, and the answer has {len(found)}")
    return [_probability(one) for one in found]


def _plain(answer: Any) -> Any:
    if isinstance(answer, tuple):  # (body, content type)
        answer = answer[0]
    if hasattr(answer, "tolist"):  # NumPy, pandas, torch
        return answer.tolist()
    if not isinstance(answer, str | bytes):
        return answer
    text = answer.decode() if isinstance(answer, bytes) else answer
    try:
        return json.loads(text)
    except ValueError:
        return [[float(part) for part in line.split(",")] for line in text.split()]


def _probability(one: Any) -> float:
    value = one.get("probability") if isinstance(one, dict) else one
    if isinstance(value, list) and len(value) in (1, 2):
        value = value[-1]
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(
            f"the answer for a record is {str(one)[:80]}; expected p, [p], [p0, p1] or "
            '{"probability": p}, with the probability of the label 1 from 0 to 1'
        )
    return float(value)


def main(script: str, model: str, requests: str, content_type: str, out: str) -> None:
    served = Served(Path(script), Path(model), ("predict_fn",))
    with open(requests, encoding="utf-8") as asked, open(out, "w", encoding="utf-8") as answers:
        for line in asked:
            request = json.loads(line)
            answer = served.answer(request["body"], content_type, ACCEPT)
            print(json.dumps(probabilities(answer, request["rows"])), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
