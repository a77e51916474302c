"""The training loop beside a hand-written one and the frameworks.

python -m benchmarks.training
"""
