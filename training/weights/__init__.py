"""Weights that training begins with: fresh ones, those of a base model, or those of a checkpoint.

``initial/`` builds a model on meta and computes its initial values, ``finetuning/`` has base models
and adapters, ``starting_weights.py`` reads what the recipe names. Every byte of this code affects
a training run's identity.
"""
