"""Others' loops on our shards: losses, interruptions, cost.

python -m benchmarks.trainer
"""
