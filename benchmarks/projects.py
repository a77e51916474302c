"""Moved to ``benchmarks.new_projects``: the package of this name stands before it."""
