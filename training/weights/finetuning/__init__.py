"""Weights that a training starts from if they are not fresh: base models and adapters."""
