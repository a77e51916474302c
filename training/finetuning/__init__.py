"""Weights that a training begins with when they are not fresh: base models and adapters."""
