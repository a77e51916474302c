"""The data on the page of a step: its results, attempts, arguments, files, cache and times."""
