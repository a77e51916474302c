"""Regular expressions of MetricDefinitions, which anybody writes: each may take only so long.

``re`` has no time limit: one expression such as ``(a|aa)+$`` over one line holds whoever reads the
log for ever. ``regex`` has one, knows what ``re`` does and of AWS's dialect also ``\\p{L}`` and
``(?<name>…)``, and reads ``.*loss=(…).*`` over a long line without going through it at each place.
"""

import math
import re
import time

import regex

EACH = 0.005
"""Seconds of a processor that an expression may take for a line, on average."""

AHEAD = 0.2
"""Seconds by which it may be over that."""


REPEATED = 1_000_000
"""The least repetitions of an expression, multiplied, at most: ``regex`` writes them out."""

_LEAST = re.compile(r"\{(\d+)(?:,\d*)?\}")


class Expression:
    """A regular expression for lines of one log. Any thread may search.

    Raises:
        ValueError: it is no regular expression; says why.
    """

    def __init__(self, text: str) -> None:
        if math.prod(int(count) or 1 for count in _LEAST.findall(text)) > REPEATED:
            raise ValueError(f"{text!r} repeats more than {REPEATED:,} times")
        try:
            self._pattern = regex.compile(text)
        except (regex.error, RecursionError) as error:
            raise ValueError(str(error)) from error
        self.text = text
        self.groups: int = self._pattern.groups
        self._left = AHEAD

    @property
    def is_given_up(self) -> bool:
        """It took too long, and finds nothing any more."""
        return self._left <= 0

    def search(self, line: str) -> "regex.Match[str] | None":
        """The first match; None without one, and when the expression is given up."""
        if not self.is_given_up:
            self._left = min(AHEAD, self._left + EACH)
        while self._left > 0:
            began = time.thread_time()
            try:
                return self._pattern.search(line, timeout=self._left)
            except TimeoutError:
                continue  # its clock counts all threads of the process, ours this one
            finally:
                self._left -= time.thread_time() - began
        return None

    def told(self, metric: str) -> str:
        """What people are told of it once it is given up."""
        return (
            f"metric {metric}: its Regex {self.text!r} takes too long on a line of this log and is "
            "not looked for any more; leave out nested repetitions such as (a|aa)+"
        )
