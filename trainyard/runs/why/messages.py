"""Messages of several lines: an exception whose first line only opens what the next ones tell."""

import re
from collections.abc import Sequence
from dataclasses import replace

from trainyard.runs.why.evidence import Line
from trainyard.runs.why.exceptions import Raised

FOLLOWING = 30
"""Lines after the exception's own in which its message may go on: TensorFlow writes the frames of a
graph's node before it."""

_OPENS = re.compile(r"(?:^|:)\s*$")
_FIELD = re.compile(r"^\d+ validation errors? for \S+$")
"""How pydantic opens a message: a line has the field's name, and the next what is wrong with it."""

_NO_MESSAGE = re.compile(
    r"^\W*$|^File \"|^\d+ root error|^Detected at node|^Traceback|^(?:return|raise|await) "
    r"|^\[\[\{\{node"
)
"""Lines of a message that tell nothing: rules, frames, headings."""

_ENDS = re.compile(r"Traceback \(most recent call last\)|^(?:The above|During handling)")
_NUMBERED = re.compile(r"^\(\d+\)\s+")


def completed(one: Raised, lines: Sequence[Line]) -> Raised:
    """The exception with the first lines that tell something, where its own only opens its message;
    else as it is. Lines of other machines and ranks are passed over."""
    if (
        one.is_of_a_launcher
        or not (_OPENS.search(one.message) or _FIELD.match(one.message))
        or one.line.text.rstrip().endswith(one.kind)
    ):
        return one
    deep, told = False, [one.message]
    wanted = 3 if _FIELD.match(one.message) else 2
    for each in lines[one.number + 1 : one.number + 1 + FOLLOWING]:
        if (each.host, each.rank) != (one.line.host, one.line.rank):
            continue
        text = each.bare.strip()
        if _ENDS.search(text):
            break
        is_code, deep = deep, text.startswith('File "')
        if not is_code and not _NO_MESSAGE.search(text):
            told.append(_NUMBERED.sub("", text))
            if len(told) == wanted:
                break
    return replace(one, message=" ".join(told).strip(), is_opened=True) if told[1:] else one
