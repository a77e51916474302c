"""Weights that a training begins with: fresh ones, those of a base model, a checkpoint's.

``initial/`` builds a model on meta and draws its values, ``finetuning/`` has base models and
adapters, ``starting_weights.py`` reads what the recipe names. Every byte counts for the identity.
"""
