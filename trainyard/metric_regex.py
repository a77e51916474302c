r"""Regular expressions of MetricDefinitions, from untrusted sources: each gets a time limit.

``re`` has no time limit: one expression such as ``(a|aa)+$`` over one line blocks the reader of the
log for ever. ``regex`` has one, accepts what ``re`` does and of AWS's dialect also ``\p{L}`` and
``(?<name>…)``, and reads ``.*loss=(…).*`` over a long line without going through it at each place.
"""

import math
import re
import time

import regex

SECONDS_PER_LINE = 0.005
"""Processor seconds that an expression may take per line, on average."""

SECONDS_AHEAD = 0.2
"""Seconds by which it may exceed that."""


MAX_REPETITIONS = 1_000_000
"""Largest product of an expression's minimum repetitions: ``regex`` writes them out."""

_LEAST = re.compile(r"\{(\d+)(?:,\d*)?\}")


class Expression:
    """A regular expression for lines of one log. Any thread may search.

    Raises:
        ValueError: it is not a regular expression; says why.
    """

    def __init__(self, text: str) -> None:
        if math.prod(int(count) or 1 for count in _LEAST.findall(text)) > MAX_REPETITIONS:
            raise ValueError(f"{text!r} repeats more than {MAX_REPETITIONS:,} times")
        try:
            self._pattern = regex.compile(text)
        except (regex.error, RecursionError) as error:
            raise ValueError(str(error)) from error
        self.text = text
        self.groups: int = self._pattern.groups
        self._seconds_left = SECONDS_AHEAD

    @property
    def is_given_up(self) -> bool:
        """True if it took too long, and finds nothing any more."""
        return self._seconds_left <= 0

    def search(self, line: str) -> "regex.Match[str] | None":
        """Return the first match; None without one, and when the expression is given up."""
        if not self.is_given_up:
            self._seconds_left = min(SECONDS_AHEAD, self._seconds_left + SECONDS_PER_LINE)
        while self._seconds_left > 0:
            began = time.thread_time()
            try:
                return self._pattern.search(line, timeout=self._seconds_left)
            except TimeoutError:
                # Its clock counts all threads of the process, ours only this one.
                continue
            finally:
                self._seconds_left -= time.thread_time() - began
        return None

    def given_up_message(self, metric: str) -> str:
        """Return the message for people about an expression that is given up."""
        return (
            f"metric {metric}: its Regex {self.text!r} takes too long on a line of this log and is "
            "not looked for any more; leave out nested repetitions such as (a|aa)+"
        )
