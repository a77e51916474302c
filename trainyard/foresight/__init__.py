"""Predict the memory, time and cost of a training run before it starts.

``setting`` describes a training run. ``memory``, ``step_time`` and ``interrupted_run`` compute the
predictions, each figure with an interval and each constant with its source. ``advice`` predicts all
``layouts`` and ranks them. Constants are fitted by ``benchmarks.foresight --fit``, never by hand.
The package sends no requests to AWS, and does not import torch.
"""
