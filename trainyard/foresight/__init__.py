"""Predict what a training will need, take and cost, before any of it has run.

``setting`` describes a training; ``memory``, ``step_time`` and ``interrupted_run`` compute, each
figure with an interval and each constant with its source; ``advice`` tries ``layouts`` and ranks
them. Constants are fitted by ``benchmarks.foresight --fit``, never by hand. It asks AWS nothing,
and imports no torch.
"""
