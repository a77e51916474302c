r"""Regular expressions of MetricDefinitions, which are not trusted: each has a time limit.

``re`` has no time limit: an expression such as ``(a|aa)+$`` can block the reader of a log forever
on one line. ``regex`` has one. It accepts what ``re`` accepts, and of AWS's dialect also ``\p{L}``
and ``(?<name>…)``. It also matches ``.*loss=(…).*`` in a long line without trying each position.
"""

import math
import re
import time

import regex

SECONDS_PER_LINE = 0.005
"""Processor seconds that an expression may take per line, on average."""

SECONDS_AHEAD = 0.2
"""Processor seconds by which it may exceed that average in total."""


MAX_REPETITIONS = 1_000_000
"""Largest product of an expression's minimum repetitions, which ``regex`` expands when it compiles
the expression."""

_LEAST = re.compile(r"\{(\d+)(?:,\d*)?\}")


class Expression:
    """A regular expression for the lines of one log, with a time limit for all of them.

    It may be used by several threads.

    Raises:
        ValueError: it is not a valid regular expression, or repeats too often; the message says
            why.
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
    def is_abandoned(self) -> bool:
        """True if it took too long; ``search`` then always returns None."""
        return self._seconds_left <= 0

    def search(self, line: str) -> "regex.Match[str] | None":
        """Return the first match in the line; None if there is none or the expression took too
        long.
        """
        if not self.is_abandoned:
            self._seconds_left = min(SECONDS_AHEAD, self._seconds_left + SECONDS_PER_LINE)
        while self._seconds_left > 0:
            began = time.thread_time()
            try:
                return self._pattern.search(line, timeout=self._seconds_left)
            except TimeoutError:
                # The timeout of ``regex`` counts the time of all threads, ours only that of this
                # thread: try again if there is time left.
                continue
            finally:
                self._seconds_left -= time.thread_time() - began
        return None

    def explain_timeout(self, metric: str) -> str:
        """Return the message for the user that the expression of ``metric`` took too long."""
        return (
            f"metric {metric}: its Regex {self.text!r} takes too long on a line of this log and is "
            "no longer searched for; avoid nested repetitions such as (a|aa)+"
        )
